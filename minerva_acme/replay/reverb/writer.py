"""A writer to Reverb, at the level of its C++ writer."""

import collections
import logging
import weakref
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from minerva_acme.replay import base, messages, waiting
from minerva_acme.replay.reverb.connection import ReverbConnection

_logger = logging.getLogger(__name__)

# The rows of a column are sent and stored in chunks, and an item is sent once its last chunk is full. A
# chunk that holds a whole window is cheapest to sample. Larger chunks than this would leave too many items
# waiting; from 50 on, Reverb complains on stderr.
_MAX_CHUNK_ROWS = 16
_CLOSE_SECONDS = 0.4


class ReverbWriter(base.Writer):
    """A writer that appends rows and creates items. At most a few dozen items are unsent at any time.

    Reverb's writer gets them in bursts, a chunk of rows at a time: no item can be sent before its last chunk
    is full, and a call in a burst costs a third of a call between other work.
    """

    def __init__(
        self,
        connection: ReverbConnection,
        max_window: int,
        timeout_seconds: float,
        narrow_columns: Collection[str] = (),
    ) -> None:
        """Makes a writer; see `ReverbClient`.

        Raises:
            ReplayTimeout: The server does not answer.
        """
        if max_window < 1:
            raise ValueError(f"`max_window` must be >= 1 row, got {max_window}.")
        self._connection = connection
        self._max_window = max_window
        self._narrow_columns = narrow_columns
        self._timeout_seconds = timeout_seconds
        self._chunk_rows = min(max_window, _MAX_CHUNK_ROWS)
        self._tables = connection.tables()  # Making a writer also fetches them, but without a time limit.
        options = connection.pybind.ConstantChunkerOptions(self._chunk_rows, max_window)
        writer = waiting.call(
            lambda: connection.client.NewTrajectoryWriter(options, True),
            connection.silence(),
            connection.answer_seconds,
        )
        self._staged = _Staged(writer)
        self._fitting: set[tuple[object, ...]] = set()  # items that fit their tables; see `_check_item`
        # A lower limit would send chunks before they are full.
        self._max_pending = 2 * self._chunk_rows
        # An open Reverb writer waits forever for its items to be taken, even when the interpreter exits,
        # so a writer that is still open then is closed.
        self._finalizer = weakref.finalize(self, _close, self._staged)

    def append(self, rows: Mapping[str, np.ndarray]) -> None:
        staged = self._open()
        for name, row in rows.items():
            column = staged.columns.get(name)
            spec = base.ColumnSpec(row.shape, row.dtype)
            if column is None:
                is_narrow = name in self._narrow_columns
                if is_narrow:  # A chunk of several rows would hold items back until it is full.
                    options = self._connection.pybind.ConstantChunkerOptions(1, 1)
                    staged.writer.ConfigureChunker(len(staged.columns), options)
                staged.columns[name] = _Column(spec, 1 if is_narrow else self._max_window)
            elif spec != column.spec:
                raise base.ReplayError(messages.changed_row(name, column.spec, spec))
        # Copied: the caller may write into its arrays.
        staged.add_row({name: row.copy() for name, row in rows.items()})
        if staged.num_rows >= 2 * self._chunk_rows:
            self._write()

    def create_item(self, table: str, priority: float, fields: Mapping[str, base.Window]) -> None:
        messages.check_priority(table, priority)
        staged = self._open()
        self._check_item(table, fields)
        # Reverb identifies an item's fields only by their order, here the order of their names.
        staged.add_item(_Item(table, priority, [fields[name] for name in sorted(fields)]))
        if staged.num_rows >= self._chunk_rows:
            self._write()
            self._wait_for_pending(self._max_pending)

    def flush(self) -> None:
        self._open()
        self._write()
        self._wait_for_pending(0)

    def end_episode(self) -> None:
        self.flush()
        self._in_slices(lambda milliseconds: self._open().writer.EndEpisode(True, milliseconds))
        for column in self._staged.columns.values():
            column.begin_episode()

    def close(self) -> None:
        self._finalizer()

    def _open(self) -> "_Staged":
        if not self._finalizer.alive:
            raise base.ReplayError(messages.WRITER_CLOSED)
        return self._staged

    def _write(self) -> None:
        """Passes everything that is staged to Reverb's writer."""
        try:
            self._staged.write()
        except (ValueError, RuntimeError) as error:
            raise base.ReplayError(
                f"Reverb at {self._connection.address} did not take rows or an item: {error}"
            ) from error

    def _check_item(self, table: str, fields: Mapping[str, base.Window]) -> None:
        """Checks that an item's rows are in reach and that it fits the table.

        Raises:
            ReplayError: They are not, or it does not.
        """
        columns = self._staged.columns
        messages.check_windows(fields, columns, self._max_window)
        # All rows of a column have the same shape and dtype, so the lengths decide whether an item fits.
        kind = (table, *((name, window.column, window.length) for name, window in fields.items()))
        if kind in self._fitting:
            return
        known = self._tables.get(table)
        if known is None or messages.misfit(table, known.fields, fields, columns) is not None:
            # Ask the server, since the table may have been replaced.
            self._tables[table] = self._connection.table(table)
            reason = messages.misfit(table, self._tables[table].fields, fields, columns)
            if reason is not None:
                raise base.ReplayError(reason)
        self._fitting.add(kind)

    def _wait_for_pending(self, max_pending: int) -> None:
        self._in_slices(lambda milliseconds: self._open().writer.Flush(max_pending, milliseconds))
        self._staged.at_most_unsent(max_pending)

    def _in_slices(self, call: Any) -> None:
        """Repeats a call with a time limit until it succeeds or the writer's own limit is over."""
        wait = waiting.Wait(self._timeout_seconds)
        while True:
            try:
                call(max(1, round(1000 * wait.slice())))  # 0 would mean no limit.
                return
            except RuntimeError as error:
                if "Timeout exceeded" not in str(error):
                    raise base.ReplayError(
                        f"Writing to {self._connection.address} failed: {error}"
                    ) from error
            wait.go_on(self._explain_wait())

    def _explain_wait(self) -> base.ReplayTimeout:
        try:
            tables = self._connection.tables(timeout_seconds=1.0)
        except base.ReplaySilence as silence:  # The server may come back.
            return silence
        for name in sorted(self._staged.unsent_tables & tables.keys()):
            table = tables[name]
            if not table.allows_inserting():
                return messages.inserting_waits(table)
        return base.ReplayTimeout(
            f"The replay server at {self._connection.address} answers, but has not taken up to "
            f"{self._staged.num_unsent} items. Find out what slows it down."
        )


class _Column:
    """The rows of a column in this episode."""

    def __init__(self, spec: base.ColumnSpec, max_window: int) -> None:
        self.spec = spec
        self.num_rows = 0  # appended
        self.num_written = 0  # passed to Reverb's writer
        self.references: collections.deque[Any] = collections.deque(
            maxlen=max_window
        )  # to the newest written rows

    def begin_episode(self) -> None:
        """Drops the rows. Windows count from 0 again."""
        self.num_rows = self.num_written = 0
        self.references.clear()


class _Item(NamedTuple):
    table: str
    priority: float
    windows: list[base.Window]  # in the order of the fields' names


class _Staged:
    """Rows and items, in order, that wait to be passed to Reverb's writer."""

    def __init__(self, writer: Any) -> None:
        self.writer = writer
        self.columns: dict[str, _Column] = {}
        self.num_rows = 0  # staged
        self.num_unsent = 0  # the most items that the server may not have yet, including staged ones
        self.unsent_tables: set[str] = set()
        self._queue: collections.deque[dict[str, np.ndarray] | _Item] = collections.deque()

    def add_row(self, row: dict[str, np.ndarray]) -> None:
        for name in row:
            self.columns[name].num_rows += 1
        self._queue.append(row)
        self.num_rows += 1

    def add_item(self, item: _Item) -> None:
        self._queue.append(item)
        self.num_unsent += 1
        self.unsent_tables.add(item.table)

    def write(self) -> None:
        """Passes everything to Reverb's writer. An entry that it rejects is dropped, and its error raised."""
        while self._queue:
            entry = self._queue.popleft()
            if isinstance(entry, _Item):
                windows = [self._window(window) for window in entry.windows]
                self.writer.CreateItem(entry.table, entry.priority, windows, [False] * len(windows))
            else:
                self.num_rows -= 1
                new = self.writer.Append([entry.get(name) for name in self.columns])
                for column, reference in zip(self.columns.values(), new, strict=True):
                    if reference is not None:
                        column.references.append(reference)
                        column.num_written += 1

    def at_most_unsent(self, num_items: int) -> None:
        """Records that at most `num_items` items are unsent."""
        self.num_unsent = min(self.num_unsent, num_items)
        if not self.num_unsent:
            self.unsent_tables.clear()

    def _window(self, window: base.Window) -> list[Any]:
        column = self.columns[window.column]
        start = window.start - (column.num_written - len(column.references))
        return list(column.references)[start : start + window.length]


def _close(staged: _Staged) -> None:
    if staged.num_unsent:
        try:
            staged.write()
            staged.writer.Flush(0, round(1000 * _CLOSE_SECONDS))
        except (ValueError, RuntimeError):
            _logger.warning("%s", messages.items_lost(staged.num_unsent, staged.unsent_tables))
    staged.writer.Close()
