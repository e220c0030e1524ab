"""Returns after some minutes of CPU time, from the evaluations of runs.

    python -m tests.learning.per_cpu_minute sac_control_simba runs/mpo

Takes what `minerva report` takes: folders of runs, files of rows, stored experiments. CPU time includes
evaluations. For each time, the last evaluation before it counts. Runs of the same experiment and task are one
row, which shows the mean over seeds and each seed.
"""

import argparse
import statistics
from collections.abc import Mapping, Sequence

from minerva_acme import results
from minerva_acme.cli import report

MINUTES = (5.0, 10.0, 20.0)


def returns(experiment: results.Experiment, minutes: Sequence[float]) -> dict[str, list[list[float | None]]]:
    """Returns the last evaluation within each time: for each task, the runs in the order of their seeds.

    A value is None if the run had no evaluation by then, or ended earlier.

    Raises:
        ValueError: There are evaluations without CPU times.
    """
    of_run: dict[tuple[str, int], dict[str, dict[int, float]]] = {}
    for row in experiment.rows:
        metrics = of_run.setdefault((row.env_name, row.seed), {"avg_return": {}, "cpu_seconds": {}})
        if row.metric in metrics:
            metrics[row.metric][row.env_step] = row.value
    found: dict[str, list[list[float | None]]] = {}
    for (task, seed), metrics in sorted(of_run.items()):
        evaluations, spent = metrics["avg_return"], metrics["cpu_seconds"]
        if missing := evaluations.keys() - spent.keys():
            raise ValueError(
                f"{experiment.exp_name} on {task} with seed {seed} must have a CPU time at each evaluation, "
                f"got none at {len(missing)} of {len(evaluations)}. Collect the run again: minerva collect"
            )
        found.setdefault(task, []).append([_within(60.0 * limit, evaluations, spent) for limit in minutes])
    return found


def _within(seconds: float, evaluations: Mapping[int, float], spent: Mapping[int, float]) -> float | None:
    before = [step for step in evaluations if spent[step] <= seconds]
    return evaluations[max(before)] if before and max(spent.values()) >= seconds else None


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
    parser.add_argument("results", nargs="+", help="folders of runs, files of rows or stored experiments")
    parser.add_argument("--minutes", nargs="+", type=float, default=MINUTES)
    parser.add_argument("--env", nargs="+", default=(), help="these tasks only")
    chosen = parser.parse_args(arguments)
    experiments = report.read_experiments(chosen.results)
    if chosen.env:
        experiments = [results.select(experiment, chosen.env) for experiment in experiments]
    found = {
        (task, experiment.exp_name): runs
        for experiment in experiments
        for task, runs in returns(experiment, chosen.minutes).items()
    }
    printed = table(found, chosen.minutes)
    print(printed)
    return printed


if __name__ == "__main__":
    main()
