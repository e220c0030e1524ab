"""The content of a figure, before anything is drawn."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from minerva_acme.plotting import curves, statistics
from minerva_acme.runs import run_curves

MAX_RUNS_DRAWN = 5
"""The maximum number of single runs drawn in a group; a larger group only has its mean drawn."""

FRAMES = "Frames"
"""The label of an x-axis of frames, which results and published curves count."""

_FEW_SEEDS = (2, 3)  # numbers of seeds for which the bootstrap interval is the range of the seeds


class Group(NamedTuple):
    """Runs that differ only in their seed, and perhaps in their task."""

    label: str
    runs: Sequence[run_curves.Curve]  # each with all of its steps
    seeds_by_task: Sequence[int]  # the number of seeds of each task
    mean: run_curves.Curve  # interquartile mean, at the steps that all runs share
    interval: statistics.Interval | None  # at the mean's steps; None if every task has one seed


class Panel(NamedTuple):
    """A panel for one environment, or for several together."""

    title: str
    groups: Sequence[Group]
    published: Sequence[tuple[str, run_curves.Curve]] = ()  # labels and curves
    random: float | None = None  # return of uniformly random actions
    limits: tuple[float, float] | None = None  # limits of the vertical axis, or None to fit the curves


def make_group(
    label: str, curves_by_task: Sequence[Sequence[run_curves.Curve]], generator: np.random.Generator
) -> Group:
    """Summarises the runs of one task, or of several tasks whose values are on one scale.

    All tasks have equal weight, whatever their number of seeds: see `interquartile_mean`.

    Args:
        label: The group's label.
        curves_by_task: The curves of each task, one per seed.
        generator: The random generator of the bootstrap.

    Raises:
        ValueError: The curves have no points, or no steps in common.
    """
    runs = [curve for task in curves_by_task for curve in task]
    common = curves.at_common_steps(runs)
    seeds_by_task = [len(task) for task in curves_by_task]
    scores_by_task = np.split(common.values, np.cumsum(seeds_by_task)[:-1])
    weights = statistics.task_weights(curves_by_task)
    mean = run_curves.Curve(common.x, statistics.interquartile_mean(common.values.T, weights))
    interval = statistics.bootstrap_interval(scores_by_task, generator=generator)
    return Group(label, runs, seeds_by_task, mean, interval)


def describe_end(name: str, runs: Mapping[str, run_curves.Curve], unit: str = "frames") -> str | None:
    """Describes where a curve ends before some of its runs do, or why it is a point or there is none.

    Args:
        name: What the curve is of.
        runs: The runs, at least one, by their names.
        unit: What the steps count.

    Returns:
        A sentence that names the run which ends first, or None if all end together.
    """
    drawn = {label: curves.thin(run).x for label, run in runs.items()}
    first, last = min(drawn, key=lambda run: drawn[run][-1]), max(drawn, key=lambda run: drawn[run][0])
    end, begin = drawn[first][-1], drawn[last][0]
    if end < begin:
        return (
            f"There is no curve of {name}: {first} ends at {end:,.0f} {unit}, before {last} begins at "
            f"{begin:,.0f}."
        )
    if end == begin and any(len(steps) > 1 for steps in drawn.values()):
        return (
            f"The curve of {name} is the point at {end:,.0f} {unit}, the last of {first} and the first of "
            f"{last}."
        )
    ends = {label: run.x[-1] for label, run in runs.items()}
    first, longest = min(ends, key=lambda run: ends[run]), max(ends.values())
    if ends[first] == longest:
        return None
    return (
        f"The curve of {name} ends at {ends[first]:,.0f} {unit} with {first}; others continue to "
        f"{longest:,.0f}."
    )


def make_title(environment: str) -> str:
    """Returns an environment's name for display: Walker walk, CartPole-v1."""
    name = environment.removeprefix("gymnasium/")
    if not name.startswith("dm_control/"):
        return name
    return " ".join(part.replace("_", " ") for part in name.split("/")[1:]).capitalize()


def describe_seeds(groups: Sequence[Group]) -> str:
    """Returns how many seeds the curves of one label come from, in words."""
    counts = {count for group in groups for count in group.seeds_by_task}
    fewest, most = min(counts), max(counts)
    text = f"{most} seed{'s' * (most > 1)}" if fewest == most else f"{fewest}-{most} seeds"
    num_tasks = max(len(group.seeds_by_task) for group in groups)
    return f"{text} of {num_tasks} tasks" if num_tasks > 1 else text


def describe_band(groups: Sequence[Group]) -> str | None:
    """Describes the bands around the groups' lines; returns None if there are no bands.

    The bootstrap interval for two or three seeds of one task is their range. It is described as an interval
    of the median, with its own level; see `nominal_coverage`.
    """
    banded = [group for group in groups if group.interval is not None]
    few = [group for group in banded if len(group.runs) in _FEW_SEEDS and len(group.seeds_by_task) == 1]
    if not banded:
        return None
    if not few:
        return "95% bootstrap interval"
    coverages = sorted({statistics.nominal_coverage(len(group.runs)) or 0.0 for group in few})
    text = f"{' to '.join(f'{c:.0%}' for c in coverages)} interval of the median (range of the seeds)"
    return text if len(few) == len(banded) else f"95% bootstrap interval; for 2 or 3 seeds, {text}"


def make_caption(panels: Sequence[Panel], y_label: str, x_label: str = FRAMES) -> str:
    """Returns what the legend does not say: what lines and frames are, and how the bands were computed."""
    groups = [group for panel in panels for group in panel.groups]
    tasks = " and tasks" if any(len(group.seeds_by_task) > 1 for group in groups) else ""
    sentences = [f"{y_label}; lines: interquartile mean over seeds{tasks} (mean for fewer than four runs)."]
    if x_label == FRAMES:
        sentences.append("Frames: the environment's own steps, decisions times action repeat.")
    if any(1 < len(group.runs) <= MAX_RUNS_DRAWN for group in groups):
        sentences.append("Thin lines: single runs.")
    if "bootstrap" in (describe_band(groups) or ""):
        sentences.append(f"Bootstrap: stratified, percentile, {statistics.NUM_RESAMPLES} resamples.")
    if tasks and any(panel.published for panel in panels):
        sentences.append("Published lines: interquartile mean over tasks of the means over seeds.")
    return " ".join(sentences)
