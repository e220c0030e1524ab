"""Writing into tables in memory."""

import collections
import logging
import sys
import time
from collections.abc import Mapping
from typing import NoReturn

import numpy as np

from minerva_acme.replay import base, messages
from minerva_acme.replay.memory.rows import RowStore
from minerva_acme.replay.memory.state import State

_logger = logging.getLogger(__name__)

_MAX_PENDING_ROWS = 16  # as Reverb's writer
_CLOSE_SECONDS = 0.4


class MemoryWriter(base.Writer):
    """Appends rows and creates items.

    An item is in its table when `create_item` returns, unless the rate limiter holds it back: a few may
    wait for it, as many as with Reverb, before the writer does.
    """

    def __init__(self, state: State, max_window: int, timeout_seconds: float) -> None:
        """See `MemoryClient`."""
        if max_window < 1:
            raise ValueError(f"`max_window` must be >= 1 row, got {max_window}.")
        self._state = state
        self._lock = state.lock
        self._max_window = max_window
        self._timeout_seconds = timeout_seconds
        self._max_pending = 2 * min(max_window, _MAX_PENDING_ROWS)
        self._streams: dict[str, _Stream] = {}
        self._is_open = True
        self.num_pending = 0

    def append(self, rows: Mapping[str, np.ndarray]) -> None:
        streams = self._streams
        with self._lock:
            if not self._is_open:
                self._refuse_use()
            for name, row in rows.items():
                stream = streams.get(name)
                if stream is None or row.dtype is not stream.dtype or row.shape != stream.shape:
                    stream = self._stream(name, rows)
                number = stream.num_rows
                if number == stream.page_end:
                    stream.turn()
                store = stream.store
                if store is not None:
                    store.rows[number + stream.shift] = row
                stream.num_rows = number + 1

    def create_item(self, table: str, priority: float, fields: Mapping[str, base.Window]) -> None:
        if not 0.0 <= priority < float("inf"):
            messages.check_priority(priority)
        state = self._state
        with self._lock:
            if not self._is_open or state.is_closed:
                self._refuse_use()
            target = state.tables.get(table)
            if target is None or len(fields) != len(target.fields):
                self._refuse_item(table, fields)
            starts, lengths = [], []
            for name, _, field_length, is_variable, store in target.fields:
                if name not in fields:
                    self._refuse_item(table, fields)
                column, start, length = fields[name]
                stream = self._streams.get(column)
                if stream is None or stream.store is not store:
                    self._refuse_item(table, fields)
                number = stream.origin + start
                if (
                    start < 0
                    or number < stream.num_rows - self._max_window
                    or number + length > stream.num_rows
                    or (length != field_length and (not is_variable or length < 1))
                ):
                    self._refuse_item(table, fields)
                starts.append(
                    number + stream.shift
                    if number >= stream.page_end - store.page_rows
                    else stream.place(number)
                )
                lengths.append(length)
            for field, start, length in zip(target.fields, starts, lengths, strict=True):
                field.store.hold(start, length)
            state.insert(target, self, starts, lengths, float(priority))
            if self.num_pending > self._max_pending:
                self._wait_for_pending(self._max_pending)

    def flush(self) -> None:
        with self._lock:
            if not self._is_open or self._state.is_closed:
                self._refuse_use()
            if self.num_pending:
                self._wait_for_pending(0)

    def end_episode(self) -> None:
        self.flush()
        with self._lock:
            for stream in self._streams.values():
                stream.begin()

    def close(self) -> None:
        state = self._state
        with self._lock:
            if not self._is_open:
                return
            deadline = time.monotonic() + _CLOSE_SECONDS
            while self.num_pending and not state.is_closed:
                if state.wait(lambda: not self.num_pending, deadline) or time.monotonic() >= deadline:
                    break
            lost = self.num_pending
            tables = state.drop_pending(self)
            self._is_open = False
            for stream in self._streams.values():
                stream.close()
            self._streams.clear()
        if lost and tables:
            _logger.warning("%s", messages.items_lost(lost, tables))

    def _refuse_use(self) -> NoReturn:
        self._state.check_open()
        raise base.ReplayError(messages.WRITER_CLOSED)

    def _stream(self, name: str, rows: Mapping[str, np.ndarray]) -> "_Stream":
        """The stream that takes a row; a new one for the first row of a column."""
        row = rows[name]
        spec = base.ColumnSpec(tuple(row.shape), row.dtype)
        stream = self._streams.get(name)
        if stream is not None:
            expected = base.ColumnSpec(stream.shape, stream.dtype)
            if spec == expected:
                return stream
            for earlier in rows:  # Nothing of what is refused is kept.
                if earlier == name:
                    break
                self._streams[earlier].num_rows -= 1
            raise base.ReplayError(messages.changed_row(name, expected, spec))
        stream = _Stream(self._state.stores.get((name, *spec)), spec, self._max_window)
        self._streams[name] = stream
        return stream

    def _refuse_item(self, table: str, fields: Mapping[str, base.Window]) -> NoReturn:
        for name, window in sorted(fields.items()):
            stream = self._streams.get(window.column)
            if stream is None:
                raise base.ReplayError(messages.unknown_column(name, window.column, self._streams))
            num_rows = stream.num_rows - stream.origin
            first = max(0, num_rows - self._max_window)
            if window.start < first or window.length < 1 or window.start + window.length > num_rows:
                raise base.ReplayError(messages.out_of_reach(name, window, first, num_rows))
        expected = messages.field_specs(self._state.table(table).config.signature)
        found = {}
        for name, window in fields.items():
            stream = self._streams[window.column]
            found[name] = base.ColumnSpec((window.length, *stream.shape), stream.dtype)
        raise base.ReplayError(messages.misfit(table, expected, found))

    def _wait_for_pending(self, max_pending: int) -> None:
        state = self._state
        deadline = time.monotonic() + self._timeout_seconds
        while not state.wait(lambda: state.is_closed or self.num_pending <= max_pending, deadline):
            if time.monotonic() >= deadline:
                held_back = next(
                    name
                    for name, table in sorted(state.tables.items())
                    if any(item.owner is self for item in table.pending)
                )
                raise base.ReplayTimeout(messages.inserting_waits(state.tables[held_back].description()))
        state.check_open()


class _Stream:
    """The rows of one column that a writer has written, by numbers that count up without end.

    Row number n of those in the page that is being filled lies at place `n + shift` of the store.
    """

    __slots__ = (
        "dtype",
        "first_page",
        "max_window",
        "num_rows",
        "origin",
        "page_end",
        "pages",
        "shape",
        "shift",
        "store",
    )

    def __init__(self, store: RowStore | None, spec: base.ColumnSpec, max_window: int) -> None:
        self.store = store  # None: no table has such a column; rows are only counted
        self.shape, self.dtype = spec
        self.max_window = max_window
        self.num_rows = 0
        self.origin = 0  # number of the first row of this episode
        self.page_end = 0  # number of the first row that no longer fits into the newest page
        self.shift = 0
        self.pages: collections.deque[int] = collections.deque()  # that rows in reach lie in
        self.first_page = 0  # how many were let go before

    def turn(self) -> None:
        """Takes a page, and lets go of those that the next row's windows do not reach."""
        if self.store is None:
            self.page_end = sys.maxsize
            return
        self.pages.append(self.store.take_page(self.pages[-1] if self.pages else None))
        self.shift = (self.pages[-1] << self.store.shift) - self.page_end
        self.page_end += self.store.page_rows
        oldest = max(self.origin, self.num_rows + 1 - self.max_window)
        while (self.first_page + 1) << self.store.shift <= oldest:
            self._drop()

    def place(self, number: int) -> int:
        """Where a row in reach lies in the store."""
        assert self.store is not None
        page = self.pages[(number >> self.store.shift) - self.first_page]
        return (page << self.store.shift) + number % self.store.page_rows

    def begin(self) -> None:
        """Begins an episode: earlier rows are out of reach."""
        self.origin = self.num_rows
        while len(self.pages) > 1:
            self._drop()

    def close(self) -> None:
        """Lets go of everything."""
        while self.pages:
            self._drop()

    def _drop(self) -> None:
        assert self.store is not None
        self.store.release_page(self.pages.popleft())
        self.first_page += 1
