"""What stores say of their tables, and why they wait or refuse: the same words whatever holds the rows."""

import sys
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from minerva_acme.replay import base

UNKNOWN = -1  # size of a dimension that is not the same in all items

IN_MEMORY = "in memory"  # where tables are that have no address

DTYPES = tuple(
    np.dtype(name)
    for name in (
        *("float32", "float64", "int32", "uint8", "int16", "int8"),
        *("int64", "bool", "uint16", "float16", "uint32", "uint64"),
    )
)
"""Of the rows that can be stored, in native byte order."""

_UNLIMITED = sys.float_info.max


class Limits(NamedTuple):
    """A rate limiter as numbers. With d = inserted * samples_per_insert - sampled:"""

    samples_per_insert: float
    min_size: int  # sampling waits for so many items; inserting is free up to there
    min_diff: float  # a sample must leave d at or above
    max_diff: float  # an insert must leave d at or below


def limits(limiter: base.RateLimiter) -> Limits:
    """Returns what a rate limiter comes to."""
    match limiter:
        case base.MinSize(min_size):
            return Limits(1.0, min_size, -_UNLIMITED, _UNLIMITED)
        case base.SampleToInsertRatio(ratio, min_size, error_buffer):
            # Measured from where the table has filled up and nothing has been sampled.
            start = ratio * min_size
            return Limits(ratio, min_size, start - error_buffer, start + error_buffer)
        case base.Queue(capacity):
            return Limits(1.0, 1, 0.0, float(capacity))


class TableDescription(NamedTuple):
    """A table as a server, or a checkpoint, describes it."""

    name: str
    max_size: int
    max_times_sampled: int
    sampler: str
    remover: str
    samples_per_insert: float  # this and the next three: see `Limits`
    min_diff: float
    max_diff: float
    min_size: int
    fields: Mapping[str, base.ColumnSpec]  # of whole fields, see `field_specs`
    size: int
    inserted: int
    sampled: int

    def info(self) -> base.TableInfo:
        return base.TableInfo(self.name, self.size, self.max_size, self.inserted, self.sampled, self.min_size)

    def samples_allowed(self) -> int:
        """How many samples can be taken without waiting for an insert."""
        if self.size < self.min_size:
            return 0
        allowed = int(self.inserted * self.samples_per_insert - self.sampled - self.min_diff)
        if self.max_times_sampled:  # The items that are sampled may leave the table.
            allowed = min(allowed, self.size - self.min_size + 1)
        return max(0, allowed)

    def allows_inserting(self) -> bool:
        """Whether the rate limiter would let one more item in."""
        difference = (self.inserted + 1) * self.samples_per_insert - self.sampled
        return self.size < self.min_size or difference <= self.max_diff

    def differences(self, other: "TableDescription") -> list[str]:
        """What is set otherwise in another description, as `max_size` 10 against 20."""
        settings = self._fields[: self._fields.index("size")]
        return [
            f"`{name}` {getattr(self, name)} against {getattr(other, name)}"
            for name in settings
            if getattr(self, name) != getattr(other, name)
        ]


def field_specs(signature: base.ItemSignature) -> dict[str, base.ColumnSpec]:
    """The shape and dtype of each field of an item; the shape begins with the length, or `UNKNOWN`.

    The most rows that a variable field may have is not part of it.
    """
    specs = {}
    for name, field in sorted(signature.fields.items()):
        column = signature.columns[field.column]
        length = UNKNOWN if field.variable else field.length
        specs[name] = base.ColumnSpec((length, *column.shape), np.dtype(column.dtype))
    return specs


def describe(
    config: base.TableConfig, size: int = 0, inserted: int = 0, sampled: int = 0
) -> TableDescription:
    """Describes a table."""

    def selector(selector: base.Selector) -> str:
        return repr(selector) if isinstance(selector, base.Prioritized) else type(selector).__name__

    limit = limits(config.rate_limiter)
    return TableDescription(
        name=config.name,
        max_size=config.max_size,
        max_times_sampled=config.max_times_sampled,
        sampler=selector(config.sampler),
        remover=selector(config.remover),
        samples_per_insert=limit.samples_per_insert,
        min_diff=limit.min_diff,
        max_diff=limit.max_diff,
        min_size=limit.min_size,
        fields=field_specs(config.signature),
        size=size,
        inserted=inserted,
        sampled=sampled,
    )


def check_names(tables: Iterable[base.TableConfig]) -> None:
    """Refuses tables that could not be told apart.

    Raises:
        ValueError: there is none, or two have the same name.
    """
    names = [table.name for table in tables]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"`tables` must be one or more tables of different names, got {names}.")


def check_dtype(field: str, dtype: np.dtype) -> None:
    """Refuses what cannot be stored.

    Raises:
        ValueError: rows of this dtype cannot.
    """
    if dtype not in DTYPES:
        known = ", ".join(known.name for known in DTYPES)
        raise ValueError(f"`{field}` must be of a dtype that can be stored ({known}), got {dtype}.")


def check_same(where: str, found: TableDescription, expected: TableDescription) -> None:
    """Refuses a table that differs from the one expected.

    Raises:
        ReplayError: it differs; the message says in what.
    """
    differences = found.differences(expected)
    if differences:
        raise base.ReplayError(
            f"Table '{expected.name}' {where} differs from the one expected: {'; '.join(differences)}. "
            "Use the settings that it was made with, or begin with an empty one."
        )


def check_checkpoint(
    path: object, found: Iterable[TableDescription], expected: list[TableDescription]
) -> None:
    """Refuses a checkpoint of other tables.

    Raises:
        ReplayError: it holds others, or of other settings; the message says in what.
    """
    stored = {table.name: table for table in found}
    names = [table.name for table in expected]
    if sorted(stored) != sorted(names):
        raise base.ReplayError(
            f"The checkpoint '{path}' must hold the tables {sorted(names)}, but holds {sorted(stored)}."
        )
    for table in expected:
        check_same(f"in checkpoint '{path}'", stored[table.name], table)


def check_priority(priority: float) -> None:
    """Refuses what is no priority of a new item.

    Raises:
        ValueError: it is negative or not finite.
    """
    if not 0.0 <= priority < float("inf"):
        raise ValueError(f"`priority` must be finite and >= 0, got {priority}. Correct the number.")


def check_priorities(keys: np.ndarray, priorities: np.ndarray) -> None:
    """Refuses what are no priorities of these items.

    Raises:
        ValueError: one is negative or not finite, or there is not one for each key.
    """
    if keys.shape != priorities.shape or not np.all(np.isfinite(priorities) & (priorities >= 0)):
        raise ValueError(
            f"`priorities` must be finite and >= 0, one for each of {keys.size} keys, got {priorities}."
        )


def no_checkpoint(where: str, reason: str) -> str:
    """Says that a checkpoint was not written."""
    return f"The server {where} wrote no checkpoint: {reason}."


NO_DIRECTORY = "there is no folder for it. Start it with a `checkpoint_directory`"


def unfinished_checkpoint(path: object, file: str) -> str:
    """Says that a checkpoint is missing or unfinished; `file` is what it would end with."""
    return (
        "`restore_from` must be a finished checkpoint, as `client.checkpoint()` returned it, got "
        f"'{path}', where there is no file '{file}'."
    )


def other_backend(wrote: str, backend: str) -> str:
    """Says whose checkpoint it is that cannot be restored."""
    return f" It was written by replay {wrote}: restore it there, with backend='{backend}'."


def unknown_table(name: str, where: str, known: Iterable[str]) -> str:
    """Says that there is no such table; `where` is as 'at localhost:1234'."""
    names = ", ".join(f"'{table}'" for table in sorted(known))
    return f"There is no table '{name}' {where}. Its tables are {names}."


def sampling_waits(table: TableDescription, batch_size: int, num_taken: int) -> str:
    """Says what a batch that is not complete waits for."""
    if table.size < table.min_size:
        return f"Waiting for {table.min_size} items in table '{table.name}', has {table.size}."
    if not table.samples_allowed():
        return (
            f"Table '{table.name}' holds samples back: {table.inserted} inserted, {table.sampled} "
            f"sampled, {table.size} stored. Its rate limiter waits for more to be written."
        )
    return (
        f"Waiting for a batch of {batch_size} items from table '{table.name}': {num_taken} have "
        f"come, {table.size} are stored."
    )


def inserting_waits(table: TableDescription) -> str:
    """Says why a table takes no item."""
    return (
        f"Table '{table.name}' holds inserts back: {table.inserted} inserted, {table.sampled} sampled, "
        f"{table.size} stored. Sample from it, or let its rate limiter allow more."
    )


def sampler_closed(table: str) -> str:
    """Says that a sampler cannot be used any more."""
    return f"The sampler of table '{table}' is closed. Make a new one with `client.sampler`."


WRITER_CLOSED = "The writer is closed. Make a new one with `client.writer`."


def items_lost(count: int, tables: Iterable[str]) -> str:
    """Says that a writer was closed before its items were taken."""
    names = ", ".join(f"table '{table}'" for table in sorted(tables))
    return f"closed a writer with up to {count} items that {names} did not take: they are lost"


def unknown_column(field: str, column: str, known: Iterable[str]) -> str:
    """Says that an item has a window of a column without rows."""
    names = ", ".join(f"'{name}'" for name in known)
    return f"`{field}` must be a window of a column that has rows ({names}), got '{column}'."


def out_of_reach(field: str, window: base.Window, first: int, num_rows: int) -> str:
    """Says that an item has a window of rows that are not kept, or not yet there."""
    return (
        f"`{field}` must be a window of the rows {first} to {num_rows - 1} of column "
        f"'{window.column}', which are kept, got {window.length} rows from {window.start} on. "
        "Ask for a writer with a larger `max_window`, or create items sooner."
    )


def changed_row(column: str, expected: base.ColumnSpec, found: base.ColumnSpec) -> str:
    """Says that a row is not like those before it."""
    return (
        f"A row of column '{column}' must be {_describe(expected)} as those before it, got "
        f"{_describe(found)}."
    )


def misfit(
    table: str, expected: Mapping[str, base.ColumnSpec], found: Mapping[str, base.ColumnSpec]
) -> str | None:
    """Says in what an item's fields differ from the table's, or None where they do not."""
    wrong = [f"`{name}` is missing" for name in sorted(expected.keys() - found.keys())]
    wrong += [f"`{name}` is unknown" for name in sorted(found.keys() - expected.keys())]
    for name in sorted(expected.keys() & found.keys()):
        length = expected[name].shape[0]
        shape = (found[name].shape[0] if length == UNKNOWN else length, *expected[name].shape[1:])
        if found[name] != (shape, expected[name].dtype):
            wrong.append(
                f"`{name}` must be {_describe(base.ColumnSpec(shape, expected[name].dtype))}, got "
                f"{_describe(found[name])}"
            )
    if not wrong:
        return None
    return (
        f"The item does not fit table '{table}', whose fields are {', '.join(expected)}: {'; '.join(wrong)}."
    )


def _describe(spec: base.ColumnSpec) -> str:
    return f"{np.dtype(spec.dtype).name} of shape {tuple(spec.shape)}"
