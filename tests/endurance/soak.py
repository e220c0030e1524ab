"""Long trainings, whose process must hold no more at the end than after warm-up."""

import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

_MAX_GROWTH = 0.02  # of resident memory
_WARM_UP = 1 / 3  # of the time; replay must be full by then
_WINDOW = 1 / 5  # of the samples after it, at their beginning and at their end: what is compared
_GRACE_SECONDS = 300.0  # to start, to save and to end, on a machine that does much else
_PROGRAM = """
import pathlib, sys
from tests.endurance import training
training.prepare()
training.soak(*sys.argv[1:3], pathlib.Path(sys.argv[3]), float(sys.argv[4]))
"""


class Sample(NamedTuple):
    """What a process holds."""

    seconds: float
    env_steps: int
    learner_steps: int
    resident_bytes: int
    threads: int
    open_files: int


class Result(NamedTuple):
    """What became of a training."""

    name: str
    warm: list[Sample]
    """The samples after warm-up."""
    faults: list[str]

    def windows(self) -> tuple[list[Sample], list[Sample]]:
        """The first and the last of them."""
        size = max(1, int(len(self.warm) * _WINDOW))
        return self.warm[:size], self.warm[-size:]

    def growth(self) -> float:
        """By which part resident memory grew, from the median of the first window to that of the last."""
        first, last = (statistics.median(s.resident_bytes for s in window) for window in self.windows())
        return last / first - 1.0


def run(agent: str, store: str, folder: pathlib.Path, *, seconds: float) -> Result:
    """Trains for a while and judges what the process held meanwhile.

    Raises:
        RuntimeError: the training failed.
    """
    folder.mkdir(parents=True)
    command = [sys.executable, "-c", _PROGRAM, agent, store, str(folder), str(seconds)]
    start = time.time()
    with open(folder / "output.txt", "wb") as output:
        done = subprocess.run(command, stdout=output, stderr=output, timeout=seconds + _GRACE_SECONDS)
    if done.returncode:
        output_text = (folder / "output.txt").read_text(errors="replace")
        raise RuntimeError(f"{agent}/{store} ended with {done.returncode}:\n{output_text}")
    return judge(f"{agent}/{store}", read(folder / "journal.txt", start))


def read(path: pathlib.Path, start: float) -> list[Sample]:
    """Reads what a training wrote down."""
    lines = (line.split() for line in path.read_text().splitlines())
    return [Sample(float(when) - start, *map(int, numbers)) for when, _, *numbers in lines]


def judge(name: str, samples: Sequence[Sample]) -> Result:
    """Finds what grew after warm-up."""
    first, last = samples[0].seconds, samples[-1].seconds
    warm = [s for s in samples if s.seconds >= first + _WARM_UP * (last - first)]
    result = Result(name, warm, [])
    if result.growth() > _MAX_GROWTH:
        result.faults.append(f"{name}: resident memory grew by {result.growth():.2%}")
    for kind in ("threads", "open_files"):
        most = [max(getattr(s, kind) for s in window) for window in result.windows()]
        if most[1] > most[0]:
            result.faults.append(f"{name}: {kind} grew from {most[0]} to {most[1]}")
    return result


def table(results: Sequence[Result]) -> str:
    """The measurements as a Markdown table."""
    lines = [
        "| run | minutes | environment steps | learner steps | resident MiB after warm-up | at the end "
        "| growth | threads | open files |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        windows = result.windows()
        end = result.warm[-1]
        resident = [statistics.median(s.resident_bytes for s in window) / 2**20 for window in windows]
        held = [
            " -> ".join(_range([getattr(s, kind) for s in window]) for window in windows)
            for kind in ("threads", "open_files")
        ]
        lines.append(
            f"| {result.name} | {end.seconds / 60:.1f} | {end.env_steps:,} | {end.learner_steps:,} "
            f"| {resident[0]:.1f} | {resident[1]:.1f} | {result.growth():+.2%} | {held[0]} | {held[1]} |"
        )
    return "\n".join(lines)


def _range(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low}-{high}"
