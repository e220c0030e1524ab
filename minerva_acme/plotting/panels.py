"""What a figure shows, before anything is drawn."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from minerva_acme.plotting import curves, statistics


class Group(NamedTuple):
    """Runs that differ only in their seed, and perhaps in their task."""

    label: str
    runs: Sequence[curves.Curve]  # each with all of its steps
    seeds_by_task: Sequence[int]  # how many, for each task
    mean: curves.Curve  # interquartile mean, at the steps that all runs share
    interval: statistics.Interval | None  # at the mean's steps; None where every task has one seed


class Panel(NamedTuple):
    """One environment, or several together."""

    title: str
    groups: Sequence[Group]
    published: Sequence[tuple[str, curves.Curve]] = ()  # with their labels
    random: float | None = None  # return of uniformly random actions
    limits: tuple[float, float] | None = None  # of the vertical axis; None: fitted to the curves


def make_group(
    label: str, curves_by_task: Sequence[Sequence[curves.Curve]], generator: np.random.Generator
) -> Group:
    """Summarises the runs of one task, or of several whose values are on one scale.

    Args:
        label: names the group.
        curves_by_task: the seeds' curves of each task.
        generator: of the bootstrap.

    Raises:
        ValueError: the curves have no points, or no steps in common.
    """
    runs = [curve for task in curves_by_task for curve in task]
    common = curves.at_common_steps(runs)
    seeds_by_task = [len(task) for task in curves_by_task]
    scores_by_task = np.split(common.values, np.cumsum(seeds_by_task)[:-1])
    mean = curves.Curve(common.x, statistics.interquartile_mean(common.values.T))
    interval = statistics.bootstrap_interval(scores_by_task, generator=generator)
    return Group(label, runs, seeds_by_task, mean, interval)


def describe_seeds(groups: Sequence[Group]) -> str:
    """Says how many seeds one label's curves come from, and how much a band of so few is worth."""
    counts = sorted({count for group in groups for count in group.seeds_by_task})
    fewest, most = counts[0], counts[-1]
    text = f"{most} seed" if most == 1 else f"{fewest if fewest == most else f'{fewest}-{most}'} seeds"
    num_tasks = max(len(group.seeds_by_task) for group in groups)
    if num_tasks > 1:
        text += f" of {num_tasks} tasks"
    if most == 1:
        return f"{text}, no interval"
    if num_tasks > 1:
        return text
    if fewest == 1:
        text += " (no interval for 1)"
    coverages = [statistics.nominal_coverage(count) for count in counts]
    few = " to ".join(f"{coverage:.0%}" for coverage in coverages if coverage is not None)
    return f"{text}, band is their range (covers {few})" if few else text
