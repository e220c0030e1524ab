"""Recorded ratios, to compare later ones with."""

import json
import pathlib
from collections.abc import Mapping
from typing import Any

PATH = pathlib.Path(__file__).with_name("recorded.json")

BAND = 0.3
"""The share by which a ratio may be below the recorded one. Unchanged code on a busy machine was 10 to
33 % below in five rounds of 1 block, so repeat a failure on an idle machine first."""

# Not by wall time, which is meaningless on a busy machine: see `frame`.
_RATIOS = ("cpu_ratio",)


def update(run: Mapping[str, Any], path: pathlib.Path = PATH) -> None:
    """Records the ratios of a run; benchmarks that it did not measure keep theirs."""
    known = _read(path)
    for key, result in run["results"].items():
        if "variants" in result:
            known[key] = {
                "variants": {
                    name: {ratio: round(values[ratio], 2) for ratio in _RATIOS}
                    for name, values in result["variants"].items()
                },
                "cpu": run["machine"]["cpu"],
                "date": run["machine"]["date"],
            }
    path.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def compare(key: str, result: Mapping[str, Any], path: pathlib.Path = PATH) -> list[str]:
    """Returns a line for each ratio of a result that is more than `BAND` below the recorded one.

    A failed benchmark and a missing recorded variant also give a line; a benchmark that was skipped or
    never recorded does not.
    """
    if "failed" in result:
        return [f"{key}: failed, {result['failed']}"]
    recorded = _read(path).get(key)
    if recorded is None or "variants" not in result:
        return []
    lines = []
    for name, before in recorded["variants"].items():
        now = result["variants"].get(name)
        if now is None:
            lines.append(f"{key} {name}: recorded, but not measured now")
            continue
        lines += [
            f"{key} {name}: {ratio} {now[ratio]:.2f}, recorded {before[ratio]:.2f} ({recorded['cpu']})"
            for ratio in _RATIOS
            if now[ratio] < before[ratio] * (1.0 - BAND)
        ]
    return lines


def _read(path: pathlib.Path) -> dict[str, Any]:
    known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return known
