"""Learning curves of finished and running runs, read from the CSV files in their folders."""

import contextlib
import csv
import difflib
import logging
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from minerva_acme.machine import reading
from minerva_acme.results import rows as results_rows

_logger = logging.getLogger(__name__)

STEPS = "actor_steps"
"""The column that counts environment steps, in every file: the agent's decisions, whatever their repeat."""


class Curve(NamedTuple):
    """One metric of one run, or of several runs at the same steps."""

    x: np.ndarray  # [K], increasing: environment steps, or another requested column
    values: np.ndarray  # [K], or [S, K] of S runs


def read_curve(directory: str | os.PathLike[str], metric: str, x: str = STEPS) -> Curve:
    """Reads a metric of a run.

    A run that was killed and resumed plays some steps twice: only the later rows count. Rows whose value is
    missing or not finite are left out, those beyond 1e30 with a warning, and rows at the same step are
    averaged.

    Args:
        directory: The run's folder.
        metric: The metric as `<file>/<column>`, such as evaluator/episode_return or learner/loss/network.
        x: The column of the same file for the horizontal axis; its values must increase.

    Returns:
        The curve; it has no points if the run has not logged any yet.

    Raises:
        ValueError: There is no such metric or `x` in the logs; the message suggests similar names.
    """
    directory = pathlib.Path(directory)
    file, _, column = metric.partition("/")
    path = directory / f"{file}.csv"
    rows = read_rows(path)
    metrics = list_metrics(directory)
    if metric not in metrics and (rows or not path.exists()):
        raise ValueError(_missing(directory, metric, metrics))
    if x != STEPS and rows and f"{file}/{x}" not in metrics:
        raise ValueError(
            f"{path} has no column '{x}' for the x-axis: it is not logged there, or was not by the version "
            "that made the run. Use environment steps instead."
        )
    return make_curve(rows, column, x, source=str(path)) if rows else Curve(np.empty(0), np.empty(0))


def read_rows(path: pathlib.Path) -> list[dict[str, str]]:
    """Reads the rows of a log that are complete; there are none if there is no file.

    A run that was killed, or that is writing at this moment, leaves an incomplete row at the end.

    Raises:
        ValueError: The file is not CSV.
    """
    if not path.exists():
        return []
    with reading.open_text(path, errors="replace") as file, _explain(path):
        return list(csv.DictReader(file.read().rpartition("\n")[0].splitlines()))


def make_curve(
    rows: Iterable[Mapping[str, Any]], metric: str, x: str = STEPS, *, source: str = "the rows"
) -> Curve:
    """Makes a curve from rows, such as those of a logger, of `csv.DictReader` or of a data frame.

    Steps that were played again, missing values and equal steps are treated as by `read_curve`.

    Args:
        rows: The rows, in the order in which they were written; values are numbers or their text.
        metric: The column of the values.
        x: The column of the horizontal axis; its values must increase.
        source: The name of the rows in a warning.

    Raises:
        ValueError: No row has the column `metric` or `x`.
    """
    rows = list(rows)
    columns = dict.fromkeys(name for row in rows for name in row)
    for name in (metric, x):
        if name not in columns:
            raise ValueError(f"`rows` must have the column '{name}', got {', '.join(columns) or 'no row'}.")
    points: list[tuple[float, float, float]] = []
    num_too_large = 0
    steps = STEPS if STEPS in columns else x
    for row in rows:
        step, place, value = (_number(row.get(name)) for name in (steps, x, metric))
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
            source,
            num_too_large,
            results_rows.MAX_NUMBER,
        )
    _, all_places, values = np.reshape(points, (-1, 3)).T
    # Episodes of several environments may end at the same step.
    places, index, counts = np.unique(all_places, return_inverse=True, return_counts=True)
    return Curve(places, np.bincount(index, values, minlength=len(places)) / counts)


@contextlib.contextmanager
def _explain(path: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except csv.Error as error:
        raise ValueError(f"{path} must be a CSV file with a comma as delimiter: {error}.") from error


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):  # nothing, or text
        return np.nan


def list_metrics(directory: str | os.PathLike[str]) -> list[str]:
    """Returns the metrics that a run has logged, each as `<file>/<column>`."""
    metrics = []
    for path in sorted(pathlib.Path(directory).glob("*.csv")):
        with reading.open_text(path, errors="replace", newline="") as lines, _explain(path):
            metrics += [f"{path.stem}/{column}" for column in next(csv.reader(lines), []) if column != STEPS]
    return metrics


def _missing(directory: pathlib.Path, metric: str, metrics: Sequence[str]) -> str:
    if not metrics:
        return f"{directory} has no logs yet. Wait for its first evaluation, or train it."
    near = difflib.get_close_matches(metric, metrics, n=3, cutoff=0.4)
    near += [name for name in metrics if name.endswith(f"/{metric}") and name not in near]
    hint = f"Did you mean {', '.join(near)}?" if near else f"Its metrics are {', '.join(metrics)}."
    return f"{directory} has no metric '{metric}'. {hint}"
