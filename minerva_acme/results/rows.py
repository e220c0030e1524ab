"""Rows: one number of one run at one step.

The columns are the same as in the public files of SimbaV2 and FlashSAC. Nothing here imports numpy.
"""

import csv
import io
import pathlib
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from minerva_acme.machine import reading


class Row(NamedTuple):
    """One number of one run."""

    exp_name: str  # agent and preset or variant, such as mpo_control
    env_name: str  # the environment's id, without an action repeat and without `gymnasium/`
    seed: int
    metric: str  # usually one of `METRICS`
    env_step: int  # frames of training when it was measured: decisions times action repeat
    value: float


METRICS: Mapping[str, str] = MappingProxyType(
    {
        "avg_return": "mean return of the episodes of an evaluation during training, without exploration",
        "final_return": "mean return of the last policy in episodes from initial states unseen in training",
        "final_return_std": "standard deviation over the episodes of `final_return`",
        "random_return": "mean return of uniformly random actions, before training",
        "learner_steps": "learner steps made",
        "wall_seconds": "time since the run began, including evaluations but not pauses between sessions",
        "cpu_seconds": "CPU time of the run's process and its finished children, at each evaluation",
    }
)
"""The metrics of this library's rows, with descriptions. A run's own `metric` has the name of its column, and
rows from elsewhere may have other metrics."""

RETURN = "avg_return"
"""The metric that is compared unless another is asked for."""

RETURN_OF = "avg_return/"
"""The beginning of the metric of one reward among several, by name: avg_return/energy. `avg_return` is then
the sum of them."""

MAX_NUMBER = 1e30
"""The largest valid number. Sums and squares of such numbers are finite, so that all can be drawn."""

_DIGITS = 7  # significant digits in files


def read_rows(path: pathlib.Path) -> list[Row]:
    """Reads a CSV file of rows. Raises: ValueError: See `parse_rows`."""
    with reading.open_text(path) as file:
        try:
            text = file.read()
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} must be CSV in UTF-8, but is not: {error}.") from error
    return parse_rows(text, path)


def parse_rows(text: str, path: pathlib.Path | str) -> list[Row]:
    """Reads rows.

    Args:
        text: CSV with the fields of `Row` as columns, in any order.
        path: The path of the text, for messages.

    Raises:
        ValueError: A column is missing or unknown, a cell is invalid, or a number is given twice; the message
            names the line.
    """
    reader = csv.DictReader(io.StringIO(text), strict=True)
    found: dict[tuple[Any, ...], Row] = {}
    try:
        columns = list(reader.fieldnames or ())
        if sorted(columns) != sorted(Row._fields):
            raise ValueError(
                f"{path} must have the columns {','.join(Row._fields)}, got {','.join(columns) or 'none'}."
            )
        for cells in reader:
            where = f"{path}, line {reader.line_num}"
            row = _make_row(cells, where)
            if row[:-1] in found:
                raise ValueError(
                    f"{where}: {row.metric} of {row.exp_name} on {row.env_name}, seed {row.seed}, at step "
                    f"{row.env_step} is given twice. Keep one of them."
                )
            found[row[:-1]] = row
    except csv.Error as error:
        raise ValueError(f"{path}, after line {reader.line_num}, must be CSV: {error}.") from error
    return list(found.values())


def format_rows(rows: Iterable[Row]) -> str:
    """Formats rows as CSV, sorted, with seven significant digits per value."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Row._fields)
    order = list(METRICS)

    def key(row: Row) -> tuple[Any, ...]:
        metric = order.index(row.metric) if row.metric in order else len(order)
        return row.exp_name, row.env_name.lower(), row.seed, metric, row.metric, row.env_step

    for row in sorted(rows, key=key):
        writer.writerow([*row[:-1], f"{row.value:.{_DIGITS}g}"])
    return text.getvalue()


def _make_row(cells: Mapping[str | None, Any], where: str) -> Row:
    if None in cells or None in cells.values():
        raise ValueError(f"{where} must have {len(Row._fields)} cells, got another number.")
    for name in ("exp_name", "env_name", "metric"):
        if not cells[name]:
            raise ValueError(f"{where}: `{name}` must not be empty.")
    return Row(
        cells["exp_name"],
        cells["env_name"],
        _number(cells, "seed", _natural, "a whole number >= 0", where),
        cells["metric"],
        _number(cells, "env_step", _natural, "a whole number >= 0", where),
        _number(cells, "value", _finite, f"a finite number of magnitude at most {MAX_NUMBER:g}", where),
    )


def _number(
    cells: Mapping[str | None, Any], name: str, convert: Callable[[str], Any], kind: str, where: str
) -> Any:
    try:
        return convert(cells[name])
    except (OverflowError, ValueError):
        raise ValueError(f"{where}: `{name}` must be {kind}, got '{cells[name]}'.") from None


def _natural(text: str) -> int:
    value = float(text)  # other libraries write 50000.0
    if not value.is_integer() or value < 0:
        raise ValueError
    return int(value)


def _finite(text: str) -> float:
    value = float(text)
    if not abs(value) <= MAX_NUMBER:  # also true for nan
        raise ValueError
    return value
