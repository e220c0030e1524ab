"""Descriptions of tables, and the checks and messages that all stores share."""

import contextlib
import logging
import pathlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

import numpy as np

from minerva_acme.replay import base

_logger = logging.getLogger(__name__)

UNKNOWN = -1  # size of a dimension that is not the same in all items

IN_MEMORY = "in memory"  # where a table without an address is

DTYPES = tuple(
    np.dtype(name)
    for name in (
        *("float32", "float64", "int32", "uint8", "int16", "int8"),
        *("int64", "bool", "uint16", "float16", "uint32", "uint64"),
    )
)
"""The dtypes that can be stored, in native byte order."""

MEMORY_FILE = "memory.npz"
# Of each backend: where its replay is, and the file that its checkpoints end with.
_BACKENDS = {"memory": (IN_MEMORY, MEMORY_FILE), "reverb": ("on Reverb", "DONE")}

_UNLIMITED = sys.float_info.max

_CONTENTS = "contents/"  # before the names of a table's contents among its settings


class Limits(NamedTuple):
    """A rate limiter as numbers. With d = inserted * samples_per_insert - sampled:"""

    samples_per_insert: float
    min_size: int  # sampling waits for this many items; below it inserting is never held back
    min_diff: float  # a sample must leave d at or above
    max_diff: float  # an insert must leave d at or below


def limits(limiter: base.RateLimiter) -> Limits:
    """Returns a rate limiter as numbers."""
    match limiter:
        case base.MinSize(min_size):
            return Limits(1.0, min_size, -_UNLIMITED, _UNLIMITED)
        case base.SampleToInsertRatio(ratio, min_size, error_buffer):
            # Measured from where the table has filled up and nothing has been sampled.
            start = float(ratio * min_size)
            return Limits(float(ratio), min_size, start - error_buffer, start + error_buffer)
        case base.Queue(capacity):
            return Limits(1.0, 1, 0.0, float(capacity))


class TableDescription(NamedTuple):
    """A table as a server or a checkpoint describes it."""

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
        """How many samples can be taken without waiting for an insert."""
        per_insert, min_size, min_diff, _ = self.limits
        if self.size < min_size:
            return 0
        allowed = int(self.inserted * per_insert - self.sampled - min_diff)
        if self.max_times_sampled:  # The items that are sampled may leave the table.
            allowed = min(allowed, self.size - min_size + 1)
        return max(0, allowed)

    def allows_inserting(self) -> bool:
        """Whether the rate limiter would let one more item in."""
        per_insert, min_size, _, max_diff = self.limits
        return self.size < min_size or (self.inserted + 1) * per_insert - self.sampled <= max_diff

    def settings(self) -> dict[str, str]:
        """What the table was made with, by name and in words."""
        values = self._asdict() | self.limits._asdict()
        others = ("name", "limits", "size", "inserted", "sampled", "contents")
        settings = {name: str(value) for name, value in values.items() if name not in others}
        return settings | {f"{_CONTENTS}{name}": value for name, value in self.contents.items()}


def field_specs(signature: base.ItemSignature) -> dict[str, base.ColumnSpec]:
    """The shape and dtype of each field of an item; the shape begins with the length, or `UNKNOWN`.

    The most rows that a variable field may have are not part of it.

    Raises:
        ValueError: a field is of a dtype that cannot be stored.
    """
    specs = {}
    for name, field in sorted(signature.fields.items()):
        shape, dtype = signature.columns[field.column]
        if dtype not in DTYPES:
            known = ", ".join(known.name for known in DTYPES)
            raise ValueError(f"`{name}` must be of a dtype that can be stored ({known}), got {dtype}.")
        length = UNKNOWN if field.variable else field.length
        specs[name] = base.ColumnSpec((length, *shape), np.dtype(dtype))
    return specs


def describe(
    config: base.TableConfig, size: int = 0, inserted: int = 0, sampled: int = 0
) -> TableDescription:
    """Describes a table."""

    def describe_selector(selector: base.Selector) -> str:
        if not isinstance(selector, base.Prioritized):
            return type(selector).__name__
        settings = [f"exponent={float(selector.exponent)}"]
        if selector.fading != 1.0:
            settings += [f"fading={selector.fading}", f"floor={selector.floor}"]
        if selector.new_priority != "given":
            settings.append(f"new_priority={selector.new_priority}")
        return f"Prioritized({', '.join(settings)})"

    def describe_value(value: str | float) -> str:
        return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)

    return TableDescription(
        name=config.name,
        max_size=config.max_size,
        max_times_sampled=config.max_times_sampled,
        sampler=describe_selector(config.sampler),
        remover=describe_selector(config.remover),
        limits=limits(config.rate_limiter),
        fields=field_specs(config.signature),
        size=size,
        inserted=inserted,
        sampled=sampled,
        contents={name: describe_value(value) for name, value in config.contents.items()},
    )


def check_names(tables: Iterable[base.TableConfig]) -> None:
    """Checks that the tables can be told apart.

    Raises:
        ValueError: there is none, or two have the same name.
    """
    names = [table.name for table in tables]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"`tables` must be one or more tables of different names, got {names}.")


def check_same(where: str, found: Mapping[str, str], expected: TableDescription) -> None:
    """Checks that the settings of a table are those expected.

    Of its contents, only what both sides tell is compared. A warning names what the table does not tell.

    Raises:
        ReplayMismatch: they differ; the message says in what.
    """
    settings = expected.settings()
    differences = [
        f"`{name.removeprefix(_CONTENTS)}` {value} against {settings.get(name)}"
        for name, value in found.items()
        if value != settings.get(name, value if name.startswith(_CONTENTS) else None)
    ]
    if untold := [name.removeprefix(_CONTENTS) for name in settings if name not in found]:
        _logger.warning(
            "Table '%s' %s does not tell the %s that its items were made with, so that it is not compared: "
            "it was written by an earlier version, or without `contents`.",
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
        ReplayMismatch: It is another store's.
        ReplayError: It is missing or unfinished.
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
                f"{message} It was written by replay {where}: restore it there, with backend='{other}'."
            )
    raise base.ReplayError(message)


@contextlib.contextmanager
def explain_damage(checkpoint: pathlib.Path) -> Iterator[None]:
    """Says that a checkpoint is damaged, in place of whatever reading it raises.

    Raises:
        ReplayError: in place of anything but a ReplayError.
    """
    try:
        yield
    except base.ReplayError:
        raise
    except Exception as error:  # zipfile, numpy, JSON and Reverb raise a dozen kinds
        missing = isinstance(error, KeyError) and len(error.args) == 1
        reason = f"{error} is missing" if missing else str(error) or type(error).__name__
        raise base.ReplayError(
            f"The checkpoint '{checkpoint}' is damaged: {' '.join(reason.split())}. Restore an older one."
        ) from error


def check_checkpoint(
    path: object, found: Mapping[str, Mapping[str, str]], expected: Iterable[TableDescription]
) -> None:
    """Checks that a checkpoint holds the tables expected.

    Args:
        path: of the checkpoint.
        found: the settings of its tables, by their names.
        expected: the tables to restore.

    Raises:
        ReplayMismatch: it holds others, or with other settings; the message says which.
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
        ValueError: it is negative or not finite.
    """
    if not 0.0 <= priority < float("inf"):
        raise ValueError(
            f"`priority` must be finite and >= 0, got {priority} for table '{table}'. Correct the number or "
            "the function."
        )


def check_priorities(keys: np.ndarray, priorities: np.ndarray) -> None:
    """Checks new priorities of some items.

    Raises:
        ValueError: one is negative or not finite, or there is not one for each key.
    """
    if keys.shape != priorities.shape or not np.all(np.isfinite(priorities) & (priorities >= 0)):
        raise ValueError(
            f"`priorities` must be finite and >= 0, one for each of {keys.size} keys, got {priorities}."
        )


class WrittenColumn(Protocol):
    """The rows of a column that a writer has written."""

    @property
    def spec(self) -> base.ColumnSpec:
        """Of a row."""

    @property
    def num_rows(self) -> int:
        """Rows of this episode."""


def check_windows(
    fields: Mapping[str, base.Window], columns: Mapping[str, WrittenColumn], max_window: int
) -> None:
    """Checks that the rows of a new item are there and within the writer's reach.

    Raises:
        ReplayError: they are not; the message names the field and says which rows it may have.
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
    """Says how a new item differs from a table's fields; None where it does not."""
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
    """Says that a row is not like those before it."""
    return (
        f"A row of column '{column}' must be {_describe(expected)} as those before it, got "
        f"{_describe(found)}."
    )


def unknown_table(name: str, where: str, known: Iterable[str]) -> str:
    """Says that there is no such table; `where` is as 'at localhost:1234'."""
    names = ", ".join(f"'{table}'" for table in sorted(known))
    return f"There is no table '{name}' {where}. Its tables are {names}."


def sampling_waits(table: TableDescription, batch_size: int, num_taken: int) -> base.ReplayTimeout:
    """Says what an incomplete batch is waiting for."""
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
    """Says why a table takes no item."""
    return base.ReplayTimeout(
        f"Table '{table.name}' holds inserts back: {table.inserted} inserted, {table.sampled} sampled, "
        f"{table.size} stored. Sample from it, or let its rate limiter allow more.",
        held_back=True,
    )


def sampler_closed(table: str) -> str:
    """Says that a sampler cannot be used any more."""
    return f"The sampler of table '{table}' is closed. Make a new one with `client.sampler`."


WRITER_CLOSED = "The writer is closed. Make a new one with `client.writer`."


def items_lost(count: int, tables: Iterable[str]) -> str:
    """Says that a writer was closed before its items were taken."""
    names = ", ".join(f"table '{table}'" for table in sorted(tables))
    return f"closed a writer with up to {count} items that {names} did not take: they are lost"


def no_checkpoint(where: str, reason: str) -> str:
    """Says that a checkpoint was not written."""
    return f"The server {where} wrote no checkpoint: {reason}."


NO_DIRECTORY = "there is no folder for it. Start it with a `checkpoint_directory`"


def _describe(spec: base.ColumnSpec) -> str:
    return f"{np.dtype(spec.dtype).name} of shape {tuple(spec.shape)}"
