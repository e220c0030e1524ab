"""Returns after some minutes of CPU time, from the evaluations of runs.

    python -m tests.learning.per_cpu_minute runs/frontier/*

CPU time includes evaluations. For each time, the last evaluation before it counts.
Runs of the same agent, settings and task are one row, which shows the mean over seeds and each seed.
"""

import argparse
import collections
import pathlib
import statistics
from collections.abc import Mapping, Sequence

from minerva_acme.runs import run_curves, run_results

MINUTES = (5.0, 10.0, 20.0)


def returns(run: pathlib.Path, minutes: Sequence[float]) -> list[float | None]:
    """Returns the last evaluation of a run within each time; None if there is none or the run ended."""
    curve = run_curves.read_curve(run, "evaluator/episode_return", "cpu_seconds")

    def within(seconds: float) -> float | None:
        known = curve.values[curve.x <= seconds]
        return float(known[-1]) if len(known) and curve.x[-1] >= seconds else None

    return [within(60.0 * each) for each in minutes]


def table(found: Mapping[tuple[str, str], Sequence[Sequence[float | None]]], minutes: Sequence[float]) -> str:
    """Returns a Markdown table: a row for each task and experiment.

    Args:
        found: The returns after each time, for each run, keyed by task and experiment.
        minutes: The times.
    """
    lines = ["| task | agent | " + " | ".join(f"{at:g} minutes" for at in minutes) + " |"]
    lines.append("|---" * (2 + len(minutes)) + "|")
    for (task, name), runs in sorted(found.items()):
        cells = []
        for values in zip(*runs, strict=True):
            known = [value for value in values if value is not None]
            seeds = ", ".join("-" if value is None else f"{value:.0f}" for value in values)
            cells.append(f"{statistics.fmean(known):.0f} ({seeds})" if known else "-")
        lines.append(f"| {task} | {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> str:
    """Prints the table of runs, and returns it."""
    parser = argparse.ArgumentParser(prog="python -m tests.learning.per_cpu_minute", description=__doc__)
    parser.add_argument("runs", nargs="+", type=pathlib.Path, help="folders of runs")
    parser.add_argument("--minutes", nargs="+", type=float, default=MINUTES)
    chosen = parser.parse_args(arguments)
    found: dict[tuple[str, str], dict[int, list[float | None]]] = collections.defaultdict(dict)
    for run in chosen.runs:
        (experiment,) = run_results.collect([run], num_episodes=0)
        ((task, seed),) = experiment.trainings
        found[task, experiment.exp_name][seed] = returns(run, chosen.minutes)
    by_seed = {key: [values for _, values in sorted(runs.items())] for key, runs in found.items()}
    printed = table(by_seed, chosen.minutes)
    print(printed)
    return printed


if __name__ == "__main__":
    main()
