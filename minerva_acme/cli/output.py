"""The output of commands: text, results of checks or, with `--json`, a single value on standard output."""

import contextlib
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import rich.console

from minerva_acme.names import readable

_STYLES = {"ok": "green", "no": "dim", "warning": "yellow", "wrong": "bold red"}


class Console(rich.console.Console):
    """A console that prints text as it is, in lines of any length.

    What users typed is no markup: Rich would draw the `:Robot:` of `my_robot:Robot: 15 ok` as a face, and
    leave out the `[seed]` of a path.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        """Args: stderr: Whether to print on standard error."""
        super().__init__(highlight=False, soft_wrap=True, markup=False, emoji=False, stderr=stderr)


class Check(NamedTuple):
    """The result of one check, as `minerva doctor` and `minerva check-env` show them."""

    name: str
    status: str  # "ok", "warning" or "wrong"; "no" is an answer, and neither
    words: str
    fix: str = ""  # a command, or other advice


def show_checks(checks: Iterable[Check], console: Console, *, name_width: int) -> dict[str, int]:
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


@contextlib.contextmanager
def json_alone() -> Iterator[None]:
    """Redirects everything printed in the block, including by libraries, to standard error."""
    with contextlib.redirect_stdout(sys.stderr):
        yield


def show_json(value: Any) -> None:
    """Prints a value as JSON, which has no nan and no infinity; they become null."""
    print(json.dumps(_plain(value), indent=2, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if hasattr(value, "item"):  # a number of numpy's
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
