"""Compares changes of a preset, run by run: what docs/frontier.md says of them.

python -m tests.learning.screening
"""

import argparse
import collections
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from minerva_acme import results
from tests.learning.against_plain import mean_and_error

PREFIX = "screening3_"  # of the stored experiments
BASELINE = "start"  # with which changes are compared
NUM_EVALUATIONS = 3  # the last ones of a run, which its score is the mean of

Run: TypeAlias = tuple[str, int]  # a task and a seed


class Measured(NamedTuple):
    """A run, as far as it counts here."""

    score: float  # mean return / 1,000
    cpu_minutes: float


def measure(experiment: results.Experiment) -> dict[Run, Measured]:
    """Returns the runs of an experiment by task and seed.

    Raises:
        ValueError: A run has fewer evaluations than its score is the mean of.
    """
    returns: dict[Run, dict[int, float]] = collections.defaultdict(dict)
    seconds: dict[Run, float] = {}
    for row in experiment.rows:
        run = row.env_name, row.seed
        if row.metric == "avg_return" and row.env_step > 0:
            returns[run][row.env_step] = row.value
        elif row.metric == "cpu_seconds":
            seconds[run] = max(row.value, seconds.get(run, 0.0))  # the last evaluation's
    for run, found in returns.items():
        if len(found) < NUM_EVALUATIONS:
            raise ValueError(
                f"{experiment.exp_name}: {run} must have {NUM_EVALUATIONS} evaluations, got {len(found)}."
            )
    return {
        run: Measured(
            statistics.fmean(value for _, value in sorted(found.items())[-NUM_EVALUATIONS:]) / 1000.0,
            seconds[run] / 60.0,
        )
        for run, found in returns.items()
    }


def table(runs: Mapping[str, Mapping[Run, Measured]], baseline: str = BASELINE) -> str:
    """Returns a Markdown table: a row for each change with its scores, best difference first.

    The difference is over the runs that the baseline has too.

    Args:
        runs: The runs of each change, keyed by its name.
        baseline: The name of what they are compared with.
    """
    compared = runs[baseline]
    tasks = sorted({task for own in runs.values() for task, _ in own})
    lines = []
    for name, own in runs.items():
        pairs = [own[run].score - compared[run].score for run in own if run in compared]
        cells = []
        for task in tasks:
            scores = [measured.score for run, measured in own.items() if run[0] == task]
            cells.append(f"{statistics.fmean(scores):.3f}" if scores else "")
        difference, mean = "", -math.inf
        if pairs:
            mean, error = mean_and_error(pairs)
            difference = "" if name == baseline else f"{mean:+.3f}"
            if difference and len(pairs) > 1:
                difference += f" ± {error:.3f}"
        minutes = statistics.fmean(measured.cpu_minutes for measured in own.values())
        cells = [f"`{name}`", *cells, difference, str(len(own)), f"{minutes:.0f}"]
        lines.append((-mean, "| " + " | ".join(cells) + " |"))
    names = [task.removeprefix("dm_control/").replace("/", " ") for task in tasks]
    head = ["change", *names, "difference", "runs", "CPU minutes"]
    return "\n".join(
        ["| " + " | ".join(head) + " |", "|---" * len(head) + "|", *(line for _, line in sorted(lines))]
    )


def main(arguments: Sequence[str] | None = None) -> str:
    """Prints the table of the stored experiments, and returns it."""
    argparse.ArgumentParser(prog="python -m tests.learning.screening", description=__doc__).parse_args(
        arguments
    )
    stored = {name: experiment for name, experiment in results.load().items() if name.startswith(PREFIX)}
    runs = {name.removeprefix(PREFIX): measure(experiment) for name, experiment in stored.items()}
    printed = table(runs)
    print(printed)
    return printed


if __name__ == "__main__":
    main()
