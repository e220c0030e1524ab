"""Learning curves of finished and running runs, read from the CSV files in their folders."""

import contextlib
import csv
import difflib
import logging
import pathlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from minerva_acme import results
from minerva_acme.results import rows as results_rows

_logger = logging.getLogger(__name__)

STEPS = "actor_steps"
"""The column that counts environment steps, in every file."""

_MAX_POINTS = 200


class Curve(NamedTuple):
    """One metric of one run, or of several runs at the same steps."""

    x: np.ndarray  # [K], increasing: environment steps, or another requested column
    values: np.ndarray  # [K], or [S, K] of S runs


class PublishedCurve(NamedTuple):
    """Results published by others: means over their seeds."""

    algorithm: str
    title: str  # for display
    num_seeds: int  # the smallest number at any point
    curve: Curve


def read_curve(directory: pathlib.Path, metric: str, x: str = STEPS) -> Curve:
    """Reads a metric of a run.

    A run that was killed and resumed plays some steps twice: only the later rows count. Rows whose value is
    missing or not finite are left out, those beyond 1e30 with a warning, and rows at the same step are
    averaged.

    Args:
        directory: The run's folder.
        metric: The metric as `<file>/<column>`, such as evaluator/episode_return or learner/loss/total.
        x: The column of the same file for the horizontal axis; its values must increase.

    Returns:
        The curve; it has no points if the run has not logged any yet.

    Raises:
        ValueError: There is no such metric or `x` in the logs; the message suggests similar names.
    """
    file, _, column = metric.partition("/")
    path = directory / f"{file}.csv"
    # A killed run, or one that is writing at this moment, leaves an incomplete row at the end.
    text = path.read_text(encoding="utf-8", errors="replace").rpartition("\n")[0] if path.exists() else ""
    with _explain(path):
        rows = list(csv.DictReader(text.splitlines()))
    metrics = list_metrics(directory)
    if metric not in metrics and (rows or not path.exists()):
        raise ValueError(_missing(directory, metric, metrics))
    if x != STEPS and rows and f"{file}/{x}" not in metrics:
        raise ValueError(
            f"{path} has no column '{x}' for the x-axis: it is not logged there, or was not by the version "
            "that made the run. Use environment steps instead."
        )
    points: list[tuple[float, float, float]] = []
    num_too_large = 0
    for row in rows:
        step, place, value = (_number(row.get(name)) for name in (STEPS, x, column))
        if points and step < points[-1][0]:  # resumed from a checkpoint
            points = [point for point in points if point[0] < step]
        if np.isfinite([step, place, value]).all():
            if max(abs(step), abs(place), abs(value)) <= results_rows.MAX_NUMBER:
                points.append((step, place, value))
            else:
                num_too_large += 1
    if num_too_large:
        _logger.warning(
            "%s: %d rows with a number beyond %g are left out, because they cannot be drawn",
            path,
            num_too_large,
            results_rows.MAX_NUMBER,
        )
    _, all_places, values = np.reshape(points, (-1, 3)).T
    # Episodes of several environments may end at the same step.
    places, index, counts = np.unique(all_places, return_inverse=True, return_counts=True)
    return Curve(places, np.bincount(index, values, minlength=len(places)) / counts)


def at_common_steps(curves: Sequence[Curve], max_points: int = _MAX_POINTS) -> Curve:
    """Interpolates curves to common steps, never beyond the steps of any of them.

    Curves with the same steps are unchanged. Otherwise the steps are those of the curve with the most
    points, from the latest first step to the earliest last step, and values between two points are
    interpolated linearly. In a curve with more than `max_points`, such as one of training episodes,
    neighbouring points are averaged first.

    Args:
        curves: S curves, at least one, each with at least one point.
        max_points: The maximum number of points of a curve, >= 2.

    Returns:
        The common steps [K] and the values [S, K].

    Raises:
        ValueError: An argument is out of range, or the curves have no steps in common.
    """
    if not curves or any(len(curve.x) == 0 for curve in curves):
        raise ValueError(f"`curves` must be curves with points, got {[len(c.x) for c in curves]}.")
    if max_points < 2:
        raise ValueError(f"`max_points` must be >= 2, got {max_points}.")
    curves = [thin(curve, max_points) for curve in curves]
    first = max(curve.x[0] for curve in curves)
    last = min(curve.x[-1] for curve in curves)
    if first > last:
        spans = ", ".join(f"{curve.x[0]:.0f}-{curve.x[-1]:.0f}" for curve in curves)
        raise ValueError(f"`curves` must have steps in common, got {spans}. Train the short runs for longer.")
    finest = max(curves, key=lambda curve: len(curve.x)).x
    steps = np.unique(np.clip(finest, first, last))
    return Curve(steps, np.stack([np.interp(steps, curve.x, curve.values) for curve in curves]))


def thin(curve: Curve, max_points: int = _MAX_POINTS) -> Curve:
    """Averages neighbouring points, steps and values alike, until there are at most `max_points`."""
    if len(curve.x) <= max_points:
        return curve
    ends = np.linspace(0, len(curve.x), max_points + 1).astype(int)
    return Curve(*(np.add.reduceat(array, ends[:-1]) / np.diff(ends) for array in curve))


def published_curves(environment_id: str, algorithms: Sequence[str] | None = None) -> list[PublishedCurve]:
    """Returns published curves of a dm_control task: mean return over seeds at environment steps.

    The curves come from `results.load_published`; steps are control steps, before action repeat.

    Args:
        environment_id: The id `dm_control/<domain>/<task>`; other environments have no published curves.
        algorithms: The names of the published results, or None for all.

    Raises:
        ValueError: There is no published result with this name.
    """
    published = results.load_published()
    found = []
    for algorithm in published if algorithms is None else algorithms:
        if algorithm not in published:
            raise ValueError(f"`published` must be among {', '.join(published)}, got '{algorithm}'.")
        if points := published[algorithm].points.get(environment_id):
            steps, num_seeds, means, _ = np.array(points, float).T
            curve = Curve(steps, means)
            found.append(PublishedCurve(algorithm, published[algorithm].title, int(num_seeds.min()), curve))
    return found


@contextlib.contextmanager
def _explain(path: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except csv.Error as error:
        raise ValueError(f"{path} must be a CSV file with a comma as delimiter: {error}.") from error


def _number(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return np.nan


def list_metrics(directory: pathlib.Path) -> list[str]:
    """Returns the metrics that a run has logged, each as `<file>/<column>`."""
    metrics = []
    for path in sorted(directory.glob("*.csv")):
        with open(path, encoding="utf-8", errors="replace", newline="") as lines, _explain(path):
            metrics += [f"{path.stem}/{column}" for column in next(csv.reader(lines), []) if column != STEPS]
    return metrics


def _missing(directory: pathlib.Path, metric: str, metrics: Sequence[str]) -> str:
    if not metrics:
        return f"{directory} has no logs yet. Wait for its first evaluation, or train it."
    near = difflib.get_close_matches(metric, metrics, n=3, cutoff=0.4)
    near += [name for name in metrics if name.endswith(f"/{metric}") and name not in near]
    hint = f"Did you mean {', '.join(near)}?" if near else f"Its metrics are {', '.join(metrics)}."
    return f"{directory} has no metric '{metric}'. {hint}"
