"""Learning curves of finished and of running trainings, read from their folders' CSV files."""

import csv
import difflib
import functools
import importlib.resources
import io
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

STEPS = "actor_steps"
"""The column that counts environment steps, in every file."""

_MAX_POINTS = 200
_PUBLISHED_FILE = "published_curves.csv"


class Curve(NamedTuple):
    """One metric over one run."""

    env_steps: np.ndarray  # [K], growing
    values: np.ndarray  # [K]


class Curves(NamedTuple):
    """The curves of several runs at common steps."""

    env_steps: np.ndarray  # [K], growing
    values: np.ndarray  # [S, K]


class PublishedCurve(NamedTuple):
    """What others have published: means over their seeds."""

    algorithm: str
    num_seeds: int  # that every point has at least
    curve: Curve


def read_curve(directory: pathlib.Path, metric: str) -> Curve:
    """Reads a metric of a run.

    A run that was killed and resumed plays some steps twice; the rows of the first time are left out.
    Rows without a number for the metric, or one that is not finite, are left out too.

    Args:
        directory: the run's folder.
        metric: `<file>/<column>`, such as evaluator/episode_return or learner/loss/total.

    Returns:
        The curve, with no points where the run has not come to any yet.

    Raises:
        ValueError: no such metric was logged; the message names those near it.
    """
    file, _, column = metric.partition("/")
    path = directory / f"{file}.csv"
    rows: list[dict[str, str]] = []
    if path.exists():
        text = path.read_text(encoding="utf-8")
        # A kill, or a look at the wrong moment, leaves half a row at the end.
        rows = list(csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1])))
    if metric not in _metrics(directory) and (rows or not path.exists()):
        raise ValueError(_missing(directory, metric))
    points: list[tuple[float, float]] = []
    for row in rows:
        step, value = _number(row.get(STEPS)), _number(row.get(column))
        if points and step < points[-1][0]:  # resumed from a checkpoint
            points = [point for point in points if point[0] < step]
        if math.isfinite(step) and math.isfinite(value):
            points.append((step, value))
    return _average_equal_steps(np.reshape(points, (-1, 2)))


def at_common_steps(curves: Sequence[Curve], max_points: int = _MAX_POINTS) -> Curves:
    """Brings curves to common steps, without going beyond what any of them has seen.

    Curves with the same steps stay as they are. Otherwise the steps are those of the curve with most
    points (at most `max_points` of them, evenly spread), from the latest of the beginnings to the
    earliest of the ends, and values between two points are interpolated linearly. Of a curve with more
    than `max_points`, such as one of training episodes, neighbours are first averaged.

    Args:
        curves: at least one, each with at least one point.
        max_points: >= 2.

    Raises:
        ValueError: an argument is out of its range, or the curves have no steps in common.
    """
    if not curves or any(len(curve.env_steps) == 0 for curve in curves):
        raise ValueError(f"`curves` must be curves with points, got {[len(c.env_steps) for c in curves]}.")
    if max_points < 2:
        raise ValueError(f"`max_points` must be >= 2, got {max_points}.")
    curves = [thin(curve, max_points) for curve in curves]
    first = max(curve.env_steps[0] for curve in curves)
    last = min(curve.env_steps[-1] for curve in curves)
    if first > last:
        spans = ", ".join(f"{curve.env_steps[0]:.0f}-{curve.env_steps[-1]:.0f}" for curve in curves)
        raise ValueError(f"`curves` must have steps in common, got {spans}. Train the short ones on.")
    finest = max(curves, key=lambda curve: len(curve.env_steps)).env_steps
    inside = finest[(finest > first) & (finest < last)]
    steps = np.unique([first, *inside, last])
    return Curves(steps, np.stack([np.interp(steps, curve.env_steps, curve.values) for curve in curves]))


def thin(curve: Curve, max_points: int = _MAX_POINTS) -> Curve:
    """Averages neighbouring points, steps and values alike, until there are at most `max_points`."""
    if len(curve.env_steps) <= max_points:
        return curve
    ends = np.linspace(0, len(curve.env_steps), max_points + 1).astype(int)
    sizes = np.diff(ends)
    steps, values = (np.add.reduceat(array, ends[:-1]) / sizes for array in curve)
    return Curve(steps, values)


def published_curves(environment_id: str, algorithms: Sequence[str] | None = None) -> list[PublishedCurve]:
    """Returns published curves of a dm_control task: mean return over seeds at environment steps.

    The file's head names the sources; steps are control steps, without action repeat.

    Args:
        environment_id: `dm_control/<domain>/<task>`; there are none of others.
        algorithms: which; None: all.

    Raises:
        ValueError: nobody published here is called so.
    """
    table = _published_table()
    known = sorted({algorithm for task in table.values() for algorithm in task})
    for algorithm in algorithms or ():
        if algorithm not in known:
            raise ValueError(f"`published` must be among {', '.join(known)}, got '{algorithm}'.")
    prefix, _, task_id = environment_id.partition("/")
    task = table.get(task_id.replace("/", "_"), {}) if prefix == "dm_control" else {}
    return [task[name] for name in (known if algorithms is None else algorithms) if name in task]


@functools.cache
def _published_table() -> Mapping[str, Mapping[str, PublishedCurve]]:
    text = importlib.resources.files("minerva_acme.plotting").joinpath(_PUBLISHED_FILE).read_text("utf-8")
    rows: dict[tuple[str, str], list[tuple[float, float, int]]] = {}
    for row in csv.DictReader(line for line in text.splitlines() if not line.startswith("#")):
        point = float(row["environment_steps"]), float(row["mean"]), int(row["num_seeds"])
        rows.setdefault((row["task"], row["algorithm"]), []).append(point)
    table: dict[str, dict[str, PublishedCurve]] = {}
    for (task, algorithm), points in rows.items():
        steps, means, seeds = np.array(sorted(points)).T
        published = PublishedCurve(algorithm, int(seeds.min()), Curve(steps, means))
        table.setdefault(task, {})[algorithm] = published
    return table


def _number(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return math.nan


def _average_equal_steps(points: np.ndarray) -> Curve:
    """Several environments' episodes may end at the same step."""
    steps, index, counts = np.unique(points[:, 0], return_inverse=True, return_counts=True)
    return Curve(steps, np.bincount(index, points[:, 1], minlength=len(steps)) / counts)


def _metrics(directory: pathlib.Path) -> list[str]:
    metrics = []
    for path in sorted(directory.glob("*.csv")):
        with open(path, encoding="utf-8", newline="") as lines:
            metrics += [f"{path.stem}/{column}" for column in next(csv.reader(lines), []) if column != STEPS]
    return metrics


def _missing(directory: pathlib.Path, metric: str) -> str:
    metrics = _metrics(directory)
    if not metrics:
        return f"{directory} has logged nothing yet. Wait for its first evaluation, or train it."
    near = difflib.get_close_matches(metric, metrics, n=3, cutoff=0.4)
    near += [name for name in metrics if name.endswith(f"/{metric}") and name not in near]
    hint = f"Did you mean {', '.join(near)}?" if near else f"There are {', '.join(metrics)}."
    return f"{directory} has no metric '{metric}'. {hint}"
