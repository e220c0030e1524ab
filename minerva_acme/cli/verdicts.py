"""A table of verdicts, as `minerva doctor` and `minerva check-env` show them."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from minerva_acme import readable
from minerva_acme.cli.console import Console

_STYLES = {"ok": "green", "no": "dim", "warning": "yellow", "wrong": "bold red"}


class Check(NamedTuple):
    """The result of one check."""

    name: str
    status: str  # "ok", "warning" or "wrong"; "no" is an answer, and neither
    words: str
    fix: str = ""  # a command, or other advice


def show(checks: Iterable[Check], console: Console, *, name_width: int) -> dict[str, int]:
    """Prints each check as it is made; returns the number of checks by status."""
    counts = dict.fromkeys(_STYLES, 0)
    for check in checks:
        counts[check.status] += 1
        console.print(f"{check.status:8}", style=_STYLES[check.status], end="")
        console.print(f"{check.name:{name_width}} {check.words}")
        if check.fix:
            console.print(f"{'':{name_width + 9}}-> {check.fix}")
    return counts


def sum_up(counts: Mapping[str, int]) -> str:
    """Returns a sentence with the number of checks by status."""
    warnings = readable.count(counts["warning"], "warning")
    return f"{counts['ok']} ok, {warnings}, {counts['wrong']} wrong."
