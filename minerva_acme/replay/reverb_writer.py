"""Writing into Reverb, at the level of its C++ writer."""

import collections
import logging
import time
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np

from minerva_acme.replay import base, messages
from minerva_acme.replay.reverb_connection import SLICE_SECONDS, ReverbConnection

_logger = logging.getLogger(__name__)

# Rows of a column travel and are stored in chunks, and an item is sent once its last chunk is full. A
# whole window in a chunk is cheapest to sample; more than this would leave too many items waiting,
# about which Reverb complains on stderr from 50 on.
_MAX_CHUNK_ROWS = 16
_CLOSE_SECONDS = 0.4


class ReverbWriter(base.Writer):
    """Appends rows and creates items; at most a few dozen of them are on their way at any time."""

    def __init__(self, connection: ReverbConnection, max_window: int, timeout_seconds: float) -> None:
        """See `ReverbClient`. Raises: ReplayTimeout: the server does not answer."""
        if max_window < 1:
            raise ValueError(f"`max_window` must be >= 1 row, got {max_window}.")
        self._connection = connection
        self._max_window = max_window
        self._timeout_seconds = timeout_seconds
        chunk_rows = min(max_window, _MAX_CHUNK_ROWS)
        self._tables = connection.tables()  # Making a writer fetches them too, but waits for ever.
        options = connection.pybind.ConstantChunkerOptions(chunk_rows, max_window)
        self._writer: Any = connection.call(
            lambda: connection.client.NewTrajectoryWriter(options, True), connection.answer_seconds
        )
        self._columns: dict[str, _Column] = {}
        # Fewer would force chunks out before they are full.
        self._max_pending = 2 * chunk_rows
        self._unsent = _Unsent()
        # Left to itself, Reverb's writer waits for ever for its items to be taken, even when the
        # interpreter exits: a writer that nobody closed is closed then.
        self._finalizer = weakref.finalize(self, _close, self._writer, self._unsent)

    def append(self, rows: Mapping[str, np.ndarray]) -> None:
        for name in rows:
            if name not in self._columns:
                self._columns[name] = _Column(self._max_window)
        try:
            references = self._open().Append([rows.get(name) for name in self._columns])
        except ValueError as error:
            for name, row in rows.items():
                expected, found = self._columns[name].spec, base.ColumnSpec(tuple(row.shape), row.dtype)
                if expected not in (None, found):
                    raise base.ReplayError(messages.changed_row(name, expected, found)) from error
            raise
        for column, reference in zip(self._columns.values(), references, strict=True):
            if reference is not None:
                column.append(reference)

    def create_item(self, table: str, priority: float, fields: Mapping[str, base.Window]) -> None:
        messages.check_priority(priority)
        writer = self._open()
        # Reverb knows an item's fields by their order alone: that of their sorted names.
        windows = [self._window(name, fields[name]) for name in sorted(fields)]
        if table not in self._tables or self._tables[table].fields.keys() != fields.keys():
            self._refuse_misfit(table, fields, None)
        try:
            writer.CreateItem(table, priority, windows, [False] * len(windows))
        except (ValueError, RuntimeError) as error:
            self._refuse_misfit(table, fields, error)
            raise base.ReplayError(f"Table '{table}' did not take an item: {error}") from error
        self._unsent.count += 1
        self._unsent.tables.add(table)
        self._wait_for_pending(self._max_pending)

    def flush(self) -> None:
        self._wait_for_pending(0)

    def end_episode(self) -> None:
        self.flush()
        self._in_slices(lambda milliseconds: self._open().EndEpisode(True, milliseconds))
        for column in self._columns.values():
            column.clear()

    def close(self) -> None:
        self._finalizer()

    def _open(self) -> Any:
        if not self._finalizer.alive:
            raise base.ReplayError(messages.WRITER_CLOSED)
        return self._writer

    def _refuse_misfit(self, table: str, fields: Mapping[str, base.Window], cause: Exception | None) -> None:
        """Says in what an item does not fit, if it does not, by what the server says now of its table."""
        self._tables[table] = self._connection.table(table)
        expected, found = self._tables[table].fields, {}
        for name, window in fields.items():
            shape, dtype = self._columns[window.column].spec or ((), np.dtype(np.void))
            found[name] = base.ColumnSpec((window.length, *shape), dtype)
        reason = messages.misfit(table, expected, found)
        if reason is not None:
            raise base.ReplayError(reason) from cause

    def _window(self, field: str, window: base.Window) -> list[Any]:
        column = self._columns.get(window.column)
        if column is None:
            raise base.ReplayError(messages.unknown_column(field, window.column, self._columns))
        return column.window(field, window)

    def _wait_for_pending(self, max_pending: int) -> None:
        self._in_slices(lambda milliseconds: self._open().Flush(max_pending, milliseconds))
        self._unsent.count = min(self._unsent.count, max_pending)
        if not self._unsent.count:
            self._unsent.tables.clear()

    def _in_slices(self, call: Any) -> None:
        """Repeats a call with a time limit until it succeeds or the writer's own limit is over."""
        deadline = time.monotonic() + self._timeout_seconds
        while True:
            # A limit of 0 would be none.
            left = max(0.001, min(SLICE_SECONDS, deadline - time.monotonic()))
            try:
                call(max(1, round(1000 * left)))
                return
            except RuntimeError as error:
                if "Timeout exceeded" not in str(error):
                    raise base.ReplayError(
                        f"Writing to {self._connection.address} failed: {error}"
                    ) from error
                if time.monotonic() >= deadline:
                    raise base.ReplayTimeout(self._explain_wait()) from None

    def _explain_wait(self) -> str:
        tables = self._connection.tables(timeout_seconds=1.0)  # Says itself that nobody answers.
        for name in sorted(self._unsent.tables & tables.keys()):
            table = tables[name]
            if not table.allows_inserting():
                return messages.inserting_waits(table)
        return (
            f"The replay server at {self._connection.address} answers, but did not take "
            f"up to {self._unsent.count} items within {self._timeout_seconds:g} s. See what slows it down."
        )


class _Unsent:
    """What may still be on its way to the server."""

    def __init__(self) -> None:
        self.count = 0  # items at most
        self.tables: set[str] = set()


def _close(writer: Any, unsent: _Unsent) -> None:
    if unsent.count:
        try:
            writer.Flush(0, round(1000 * _CLOSE_SECONDS))
        except RuntimeError:
            _logger.warning("%s", messages.items_lost(unsent.count, unsent.tables))
    writer.Close()


class _Column:
    """References to a column's newest rows."""

    def __init__(self, max_rows: int) -> None:
        self.spec: base.ColumnSpec | None = None  # of its rows, once there is one
        self._references: collections.deque[Any] = collections.deque(maxlen=max_rows)
        self._num_rows = 0

    def append(self, reference: Any) -> None:
        if self.spec is None:
            self.spec = base.ColumnSpec(tuple(reference.shape), np.dtype(reference.dtype))
        self._references.append(reference)
        self._num_rows += 1

    def clear(self) -> None:
        self._references.clear()
        self._num_rows = 0

    def window(self, field: str, window: base.Window) -> list[Any]:
        first = self._num_rows - len(self._references)
        start = window.start - first
        if start < 0 or window.length < 1 or window.start + window.length > self._num_rows:
            raise base.ReplayError(messages.out_of_reach(field, window, first, self._num_rows))
        return list(self._references)[start : start + window.length]
