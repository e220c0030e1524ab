"""Table descriptions, checks and messages that all stores share."""

import contextlib
import logging
import pathlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from minerva_acme.machine import reading
from minerva_acme.replay import base

_logger = logging.getLogger(__name__)

UNKNOWN = -1  # the size of a dimension that is not the same in all items

IN_MEMORY = "in memory"  # the place of a table without an address

DTYPES = tuple(
    np.dtype(name)
    for name in (
        *("float32", "float64", "int32", "uint8", "int16", "int8"),
        *("int64", "bool", "uint16", "float16", "uint32", "uint64"),
    )
)
"""The dtypes that can be stored, in native byte order."""

MEMORY_FILE = "memory.npz"
# For each backend: the place of its replay, and the file that completes a checkpoint.
_BACKENDS = {"memory": (IN_MEMORY, MEMORY_FILE), "reverb": ("on Reverb", "DONE")}

_UNLIMITED = sys.float_info.max

_CONTENTS = "contents/"  # the prefix of a table's contents among its settings


class Limits(NamedTuple):
    """A rate limiter as numbers, where d = inserted * samples_per_insert - sampled."""

    samples_per_insert: float
    min_size: int  # sampling waits for this many items; below it, inserts are never held back
    min_diff: float  # the smallest d that a sample may leave
    max_diff: float  # the largest d that an insert may leave


def limits(limiter: base.RateLimiter) -> Limits:
    """Returns a rate limiter as numbers."""
    match limiter:
        case base.MinSize(min_size):
            return Limits(1.0, min_size, -_UNLIMITED, _UNLIMITED)
        case base.SampleToInsertRatio(ratio, min_size, error_buffer):
            # Measured from the point at which the table has `min_size` items and no sample has been taken.
            start = float(ratio * min_size)
            buffer = min(error_buffer, _UNLIMITED / 2)  # which may be infinite
            return Limits(float(ratio), min_size, start - buffer, start + buffer)
        case base.Queue(capacity):
            return Limits(1.0, 1, 0.0, float(capacity))


class TableDescription(NamedTuple):
    """The description of a table by a server or a checkpoint."""

    name: str
    max_size: int
    max_times_sampled: int
    sampler: str
    remover: str
    limits: Limits
    fields: Mapping[str, base.ColumnSpec]  # of whole fields, see `field_specs`
    size: int
    inserted: int
    sampled: int
    contents: Mapping[str, str] = {}

    def info(self) -> base.TableInfo:
        return base.TableInfo(
            self.name, self.size, self.max_size, self.inserted, self.sampled, self.limits.min_size
        )

    def samples_allowed(self) -> int:
        """Returns how many samples can be taken without waiting for an insert."""
        per_insert, min_size, min_diff, _ = self.limits
        if self.size < min_size:
            return 0
        allowed = int(self.inserted * per_insert - self.sampled - min_diff)
        if self.max_times_sampled:  # Sampled items may leave the table.
            allowed = min(allowed, self.size - min_size + 1)
        return max(0, allowed)

    def allows_inserting(self) -> bool:
        """Returns whether the rate limiter allows one more insert."""
        per_insert, min_size, _, max_diff = self.limits
        return self.size < min_size or (self.inserted + 1) * per_insert - self.sampled <= max_diff

    def settings(self) -> dict[str, str]:
        """Returns the table's settings as text, by name."""
        values = self._asdict() | self.limits._asdict()
        others = ("name", "limits", "size", "inserted", "sampled", "contents")
        settings = {name: str(value) for name, value in values.items() if name not in others}
        return settings | {f"{_CONTENTS}{name}": value for name, value in self.contents.items()}


def field_specs(signature: base.ItemSignature) -> dict[str, base.ColumnSpec]:
    """Returns the shape and dtype of each field of an item. The shape begins with the length, or `UNKNOWN`.

    The maximum length of a variable field is not included.

    Raises:
        ValueError: A field has a dtype that cannot be stored.
    """
    specs = {}
    for name, field in sorted(signature.fields.items()):
        shape, dtype = signature.columns[field.column]
        if dtype not in DTYPES:
            known = ", ".join(known.name for known in DTYPES)
            raise ValueError(f"`{name}` must have a dtype that can be stored ({known}), got {dtype}.")
        length = UNKNOWN if field.variable else field.length
        specs[name] = base.ColumnSpec((length, *shape), np.dtype(dtype))
    return specs


def describe(
    config: base.TableConfig, size: int = 0, inserted: int = 0, sampled: int = 0
) -> TableDescription:
    """Describes a table."""

    def describe_value(value: str | float) -> str:
        return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)

    return TableDescription(
        name=config.name,
        max_size=config.max_size,
        max_times_sampled=config.max_times_sampled,
        sampler=config.sampler.describe(),
        remover=config.remover.describe(),
        limits=limits(config.rate_limiter),
        fields=field_specs(config.signature),
        size=size,
        inserted=inserted,
        sampled=sampled,
        contents={
            name: describe_value(value)
            for name, value in {**config.contents, **(config.ring._asdict() if config.ring else {})}.items()
        },
    )


def check_names(tables: Iterable[base.TableConfig]) -> None:
    """Checks that the names of the tables are unique.

    Raises:
        ValueError: There are no tables, or two have the same name.
    """
    names = [table.name for table in tables]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"`tables` must be one or more tables with different names, got {names}.")


def check_same(where: str, found: Mapping[str, str], expected: TableDescription) -> None:
    """Checks that a table has the expected settings.

    Of its contents, only entries that both sides have are compared. A warning names those the table lacks.

    Raises:
        ReplayMismatch: The settings differ; the message names the differences.
    """
    settings = expected.settings()
    differences = [
        f"`{name.removeprefix(_CONTENTS)}` {value} against {settings.get(name)}"
        for name, value in found.items()
        if value != settings.get(name, value if name.startswith(_CONTENTS) else None)
    ]
    if untold := [name.removeprefix(_CONTENTS) for name in settings if name not in found]:
        _logger.warning(
            "Table '%s' %s does not record the %s of its items, so this is not compared. The table was "
            "written by an earlier version, or without `contents`.",
            expected.name,
            where,
            " and ".join(f"`{name}`" for name in untold),
        )
    if differences:
        raise base.ReplayMismatch(
            f"Table '{expected.name}' {where} differs from the one expected: {'; '.join(differences)}. "
            "Use the settings that it was made with, or begin with an empty one."
        )


def check_finished(path: pathlib.Path, backend: str) -> None:
    """Checks that a folder is a finished checkpoint of a store.

    Raises:
        ReplayMismatch: The checkpoint is from another store.
        ReplayError: The checkpoint is missing or unfinished.
    """
    _, file = _BACKENDS[backend]
    if (path / file).is_file():
        return
    message = (
        "`restore_from` must be a finished checkpoint, as `client.checkpoint()` returned it, got "
        f"'{path}', where there is no file '{file}'."
    )
    for other, (where, last_file) in _BACKENDS.items():
        if (path / last_file).is_file():
            raise base.ReplayMismatch(
                f"{message} It was written by replay {where}: restore it there, with backend='{other}' (of a "
                f"run `replay='{other}'`, --replay {other})."
            )
    raise base.ReplayError(message)


@contextlib.contextmanager
def explain_damage(checkpoint: pathlib.Path) -> Iterator[None]:
    """Turns any error while reading a checkpoint into one that says that the checkpoint is damaged.

    Raises:
        ReplayError: An error was raised inside. A ReplayError is passed on unchanged.
    """
    try:
        yield
    except base.ReplayError:
        raise
    except Exception as error:  # zipfile, numpy, JSON and Reverb raise a dozen kinds
        raise base.ReplayError(
            f"The checkpoint '{checkpoint}' is damaged: {reading.why(error)}. Restore an older one."
        ) from error


def check_checkpoint(
    path: object, found: Mapping[str, Mapping[str, str]], expected: Iterable[TableDescription]
) -> None:
    """Checks that a checkpoint holds the expected tables.

    Args:
        path: The path of the checkpoint.
        found: The settings of its tables, by table name.
        expected: The tables to restore.

    Raises:
        ReplayMismatch: The tables or their settings differ; the message names the differences.
    """
    tables = {table.name: table for table in expected}
    if sorted(found) != sorted(tables):
        raise base.ReplayMismatch(
            f"The checkpoint '{path}' must hold the tables {sorted(tables)}, but holds {sorted(found)}."
        )
    for name, table in tables.items():
        check_same(f"in checkpoint '{path}'", found[name], table)


def check_priority(table: str, priority: float) -> None:
    """Checks the priority of a new item.

    Raises:
        ValueError: The priority is negative or not finite.
    """
    if not 0.0 <= priority < float("inf"):
        raise ValueError(
            f"`priority` must be finite and >= 0, got {priority} for table '{table}'. Correct the number or "
            "the function."
        )


def check_priorities(keys: Any, priorities: Any) -> tuple[np.ndarray, np.ndarray]:
    """Checks the new priorities of items. Returns keys and priorities as arrays.

    Raises:
        ValueError: A priority is negative or not finite, or the numbers of keys and priorities differ.
    """
    keys, priorities = np.asarray(keys, np.uint64), np.asarray(priorities, np.float64)
    if keys.shape != priorities.shape or not np.all(np.isfinite(priorities) & (priorities >= 0)):
        raise ValueError(
            f"`priorities` must be finite and >= 0, one for each of {keys.size} keys, got {priorities}."
        )
    return keys, priorities


class WrittenColumn(Protocol):
    """The rows of a column that a writer has written."""

    @property
    def spec(self) -> base.ColumnSpec:
        """The shape and dtype of a row."""

    @property
    def num_rows(self) -> int:
        """The number of rows in this episode."""


def check_windows(
    fields: Mapping[str, base.Window], columns: Mapping[str, WrittenColumn], max_window: int
) -> None:
    """Checks that the rows of a new item exist and are still kept by the writer.

    Raises:
        ReplayError: They are not; the message names the field and the rows that it may have.
    """
    for name, (column, start, length) in fields.items():
        if column not in columns:
            known = ", ".join(f"'{known}'" for known in columns)
            raise base.ReplayError(
                f"`{name}` must be a window of a column that has rows ({known}), got '{column}'."
            )
        num_rows = columns[column].num_rows
        first = max(0, num_rows - max_window)
        if start < first or length < 1 or start + length > num_rows:
            raise base.ReplayError(
                f"`{name}` must be a window of the rows {first} to {num_rows - 1} of column '{column}', "
                f"which are kept, got {length} rows from {start} on. Ask for a writer with a larger "
                "`max_window`, or create items sooner."
            )


def misfit(
    table: str,
    expected: Mapping[str, base.ColumnSpec],
    fields: Mapping[str, base.Window],
    columns: Mapping[str, WrittenColumn],
) -> str | None:
    """Describes how a new item differs from a table's fields, or returns None if it does not."""
    wrong = [f"`{name}` is missing" for name in sorted(expected.keys() - fields.keys())]
    wrong += [f"`{name}` is unknown" for name in sorted(fields.keys() - expected.keys())]
    for name in sorted(expected.keys() & fields.keys()):
        (length, *shape), dtype = expected[name]
        row = columns[fields[name].column].spec
        found = base.ColumnSpec((fields[name].length, *row.shape), row.dtype)
        fitting = base.ColumnSpec((found.shape[0] if length == UNKNOWN else length, *shape), dtype)
        if found != fitting:
            wrong.append(f"`{name}` must be {_describe(fitting)}, got {_describe(found)}")
    if not wrong:
        return None
    return (
        f"The item does not fit table '{table}', whose fields are {', '.join(expected)}: {'; '.join(wrong)}."
    )


def changed_row(column: str, expected: base.ColumnSpec, found: base.ColumnSpec) -> str:
    """Returns the message that a row differs from the rows before it."""
    return (
        f"A row of column '{column}' must be {_describe(expected)} like the rows before it, got "
        f"{_describe(found)}."
    )


def unknown_table(name: str, where: str, known: Iterable[str]) -> str:
    """Returns the message that there is no such table; `where` is for example 'at localhost:1234'."""
    names = ", ".join(f"'{table}'" for table in sorted(known))
    return f"There is no table '{name}' {where}. Its tables are {names}."


def sampling_waits(table: TableDescription, batch_size: int, num_taken: int) -> base.ReplayTimeout:
    """Returns an error that says why a batch is incomplete."""
    if table.size < table.limits.min_size:
        return base.ReplayTimeout(
            f"Waiting for {table.limits.min_size} items in table '{table.name}', has {table.size}.",
            held_back=True,
        )
    if not table.samples_allowed():
        return base.ReplayTimeout(
            f"Table '{table.name}' holds samples back: {table.inserted} inserted, {table.sampled} "
            f"sampled, {table.size} stored. Its rate limiter waits for more to be written.",
            held_back=True,
        )
    return base.ReplayTimeout(
        f"Waiting for a batch of {batch_size} items from table '{table.name}': {num_taken} have "
        f"come, {table.size} are stored."
    )


def inserting_waits(table: TableDescription) -> base.ReplayTimeout:
    """Returns an error that says why a table does not take an item."""
    return base.ReplayTimeout(
        f"Table '{table.name}' holds inserts back: {table.inserted} inserted, {table.sampled} sampled, "
        f"{table.size} stored. Sample from it, or let its rate limiter allow more.",
        held_back=True,
    )


def sampler_closed(table: str) -> str:
    """Returns the message that a sampler is closed."""
    return f"The sampler of table '{table}' is closed. Make a new one with `client.sampler`."


WRITER_CLOSED = "The writer is closed. Make a new one with `client.writer`."


def items_lost(count: int, tables: Iterable[str]) -> str:
    """Returns the message that a writer was closed before the tables took its items."""
    names = ", ".join(f"table '{table}'" for table in sorted(tables))
    return f"closed a writer with up to {count} items that {names} did not take: they are lost"


def no_checkpoint(where: str, reason: str) -> str:
    """Returns the message that a checkpoint was not written."""
    return f"The server {where} wrote no checkpoint: {reason}."


NO_DIRECTORY = "it has no folder for them. Start it with a `checkpoint_directory`"


def _describe(spec: base.ColumnSpec) -> str:
    return f"{np.dtype(spec.dtype).name} of shape {tuple(spec.shape)}"
