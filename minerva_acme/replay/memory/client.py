"""The client of tables in memory, with its writers and samplers."""

import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from minerva_acme.replay import base, messages, waiting
from minerva_acme.replay.memory.rows import Stream
from minerva_acme.replay.memory.table import AnyTable, Batch, Table, Tables, store_key

_logger = logging.getLogger(__name__)

_MAX_PENDING_ROWS = 16  # as Reverb's writer
_CLOSE_SECONDS = 0.4


class MemoryClient(base.ReplayClient):
    """A client that reads and writes the tables of a `MemoryServer`."""

    def __init__(self, tables: Tables, save: Callable[[Tables], str], timeout_seconds: float) -> None:
        """Makes a client; see `MemoryServer.client`."""
        base.check_timeout(timeout_seconds)
        self._tables = tables
        self._save = save
        self._timeout_seconds = timeout_seconds

    def __reduce__(self) -> Any:
        raise base.ReplayError(
            "A store in memory cannot be reached from another process. Use Reverb (backend='reverb'), "
            "or a thread."
        )

    def writer(self, max_window: int, narrow_columns: Collection[str] = ()) -> "MemoryWriter":
        with self._tables.lock:
            self._tables.check_open()
        return MemoryWriter(self._tables, max_window, self._timeout_seconds, narrow_columns)

    def batched_writer(self, table: str) -> base.BatchedWriter:
        with self._tables.lock:
            found = self._tables.table(table)
        if found.config.ring is None:
            raise base.ReplayError(
                f"Table '{table}' must be a ring to take batched steps, got one of items that writers create "
                "one by one. Give its config a `ring`."
            )
        from minerva_acme.replay.memory import ring

        return ring.RingWriter(self._tables, found, self._timeout_seconds)

    def sampler(self, table: str) -> "MemorySampler":
        with self._tables.lock:
            return MemorySampler(self._tables, self._tables.table(table))

    def check_table(self, config: base.TableConfig) -> None:
        with self._tables.lock:
            found = self._tables.table(config.name).description().settings()
        messages.check_same(messages.IN_MEMORY, found, messages.describe(config))

    def table_info(self, table: str) -> base.TableInfo:
        with self._tables.lock:
            return self._tables.table(table).description().info()

    def memory_bytes(self) -> int:
        with self._tables.lock:
            return self._tables.nbytes

    def update_priorities(self, table: str, keys: np.ndarray, priorities: np.ndarray) -> None:
        keys, priorities = messages.check_priorities(keys, priorities)
        with self._tables.lock:
            self._tables.table(table).update_priorities(keys.ravel(), priorities.ravel())

    def checkpoint(self) -> str:
        with self._tables.lock:
            self._tables.check_open()
            return self._save(self._tables)

    def close(self) -> None:
        """Does nothing. Writers and samplers are closed separately."""


class MemoryWriter(base.Writer):
    """A writer that appends rows and creates items.

    An item is in its table when `create_item` returns, unless the rate limiter holds it back. The writer
    waits only when a few items are held back, as many as with Reverb.
    """

    def __init__(
        self,
        tables: Tables,
        max_window: int,
        timeout_seconds: float,
        narrow_columns: Collection[str] = (),
    ) -> None:
        """Makes a writer; see `MemoryClient.writer`."""
        if max_window < 1:
            raise ValueError(f"`max_window` must be >= 1 row, got {max_window}.")
        self._tables = tables
        self._max_window = max_window
        self._narrow_columns = narrow_columns
        self._timeout_seconds = timeout_seconds
        self._max_pending = 2 * min(max_window, _MAX_PENDING_ROWS)
        self._streams: dict[str, Stream] = {}
        self._is_closed = False
        self.num_pending = 0

    def append(self, rows: Mapping[str, np.ndarray]) -> None:
        streams = self._streams
        with self._tables.lock:
            if self._is_closed or self._tables.is_closed:
                self._refuse_use()
            for name, row in rows.items():
                stream = streams.get(name)
                if stream is None or row.dtype is not stream.dtype or row.shape != stream.shape:
                    self._check_row(name, base.ColumnSpec(row.shape, row.dtype))
            for name, row in rows.items():
                streams[name].append(row)

    def create_item(self, table: str, priority: float, fields: Mapping[str, base.Window]) -> None:
        if not 0.0 <= priority < math.inf:
            messages.check_priority(table, priority)
        with self._tables.lock:
            if self._is_closed or self._tables.is_closed:
                self._refuse_use()
            target = self._tables.tables.get(table)
            if not isinstance(target, Table) or len(fields) != len(target.fields):
                self._refuse_item(table, fields)
            starts, lengths = [], []
            for field in target.fields:
                if field.name not in fields:
                    self._refuse_item(table, fields)
                column, start, length = fields[field.name]
                stream = self._streams.get(column)
                if stream is None or stream.store is not field.store:
                    self._refuse_item(table, fields)
                place = stream.find(start, length)
                if place is None or (length != field.length and not field.variable):
                    self._refuse_item(table, fields)
                starts.append(place)
                lengths.append(length)
            target.offer(self, starts, lengths, float(priority))
            self._tables.notify()
            if self.num_pending > self._max_pending:
                self._wait_for_pending(self._max_pending)

    def flush(self) -> None:
        with self._tables.lock:
            if self._is_closed or self._tables.is_closed:
                self._refuse_use()
            self._wait_for_pending(0)

    def end_episode(self) -> None:
        self.flush()
        with self._tables.lock:
            for stream in self._streams.values():
                stream.begin()

    def close(self) -> None:
        tables = self._tables
        with tables.lock:
            if self._is_closed:
                return
            tables.wait(lambda: tables.is_closed or not self.num_pending, _CLOSE_SECONDS)
            lost = {
                name: count for name, table in tables.tables.items() if (count := table.drop_pending(self))
            }
            self._is_closed = True
            for stream in self._streams.values():
                stream.close()
        if lost:
            _logger.warning("%s", messages.items_lost(sum(lost.values()), lost))

    def _refuse_use(self) -> NoReturn:
        self._tables.check_open()
        raise base.ReplayError(messages.WRITER_CLOSED)

    def _check_row(self, name: str, spec: base.ColumnSpec) -> None:
        """Rejects a row that differs from those before it. The first row of a column begins a stream."""
        stream = self._streams.get(name)
        if stream is None:
            store = self._tables.stores.get(store_key(name, spec))
            max_window = 1 if name in self._narrow_columns else self._max_window
            self._streams[name] = Stream(store, spec, max_window)
        elif spec != stream.spec:
            raise base.ReplayError(messages.changed_row(name, stream.spec, spec))

    def _refuse_item(self, table: str, fields: Mapping[str, base.Window]) -> NoReturn:
        messages.check_windows(fields, self._streams, self._max_window)
        target = self._tables.table(table)
        if target.config.ring is not None:
            raise base.ReplayError(
                f"Table '{table}' takes batched steps, which make its items, but got an item. Write to it "
                "with `client.batched_writer`, as a `BatchedAdder` does."
            )
        raise base.ReplayError(messages.misfit(table, target.field_specs, fields, self._streams))

    def _wait_for_pending(self, max_pending: int) -> None:
        if self.num_pending <= max_pending:  # the usual case
            return
        tables = self._tables
        wait = waiting.Wait(self._timeout_seconds)
        while not tables.wait(lambda: tables.is_closed or self.num_pending <= max_pending, wait.slice()):
            held_back = next(
                table
                for _, table in sorted(tables.tables.items())
                if any(item.owner is self for item in table.pending)
            )
            wait.go_on(messages.inserting_waits(held_back.description()))
        tables.check_open()


class MemorySampler(base.Sampler):
    """A sampler of one table that works in the caller's thread and takes only the requested items."""

    def __init__(self, tables: Tables, table: AnyTable) -> None:
        """Makes a sampler; see `MemoryClient.sampler`."""
        self._tables = tables
        self._table = table
        self._is_closed = False
        self._taken: list[Batch] = []  # taken before a timeout, or left over from a larger batch

    @property
    def prefetch(self) -> int:
        return 0

    def sample_batch(
        self, batch_size: int, timeout_seconds: float | None = None
    ) -> tuple[base.SampleInfo, dict[str, Any]]:
        if batch_size < 1:
            raise ValueError(f"`batch_size` must be >= 1 item, got {batch_size}.")
        with self._tables.lock:
            self._check_open()
            self._collect(batch_size, timeout_seconds)
            batch = self._taken[0] if len(self._taken) == 1 else _join(self._taken)
            self._taken.clear()
            if len(batch.info.key) > batch_size:
                self._taken.append(_cut(batch, slice(batch_size, None)))
                batch = _cut(batch, slice(batch_size))
            return batch.info, batch.fields

    def close(self) -> None:
        with self._tables.lock:
            self._is_closed = True
            self._tables.notify()

    def _check_open(self) -> None:
        if self._is_closed:
            raise base.ReplayError(messages.sampler_closed(self._table.config.name))
        self._tables.check_open()

    def _collect(self, batch_size: int, timeout_seconds: float | None) -> None:
        """Takes items from the table, and waits for more, until there are enough for a batch."""
        wait: waiting.Wait | None = None
        while (num_taken := sum(len(batch.info.key) for batch in self._taken)) < batch_size:
            batch = self._table.draw(batch_size - num_taken)
            if batch is not None:
                self._taken.append(batch)
                self._tables.notify()
                continue
            wait = wait or waiting.Wait(timeout_seconds)
            has_news = self._tables.wait(self._has_news, wait.slice())
            self._check_open()
            if not has_news:
                wait.go_on(messages.sampling_waits(self._table.description(), batch_size, num_taken))

    def _has_news(self) -> bool:
        return self._is_closed or self._tables.is_closed or self._table.samples_allowed() > 0


def join_samples(
    samples: Sequence[tuple[base.SampleInfo, Mapping[str, Any]]],
) -> tuple[base.SampleInfo, dict[str, Any]]:
    """Joins samples into one; fields [B, length, ...] are padded with rows of 0 to the longest of them."""
    infos, fields = zip(*samples, strict=True)
    info = base.SampleInfo(*map(np.concatenate, zip(*infos, strict=True)))
    return info, {name: _join_padded([part[name] for part in fields]) for name in fields[0]}


def _join_padded(parts: Sequence[Any]) -> Any:
    first = parts[0]
    shape = (sum(map(len, parts)), max(part.shape[1] for part in parts), *first.shape[2:])
    joined = np.zeros(shape, first.dtype) if isinstance(first, np.ndarray) else first.new_zeros(shape)
    start = 0
    for part in parts:
        joined[start : start + len(part), : part.shape[1]] = part
        start += len(part)
    return joined


def _join(batches: Sequence[Batch]) -> Batch:
    """Joins batches into one."""
    lengths = {
        name: np.concatenate([batch.lengths[name] for batch in batches]) for name in batches[0].lengths
    }
    return Batch(*join_samples([(batch.info, batch.fields) for batch in batches]), lengths)


def _cut(batch: Batch, part: slice) -> Batch:
    """Returns some items of a batch, with each field as long as its longest item."""
    lengths = {name: each[part] for name, each in batch.lengths.items()}
    fields = {
        name: field[part, : lengths[name].max()] if name in lengths else field[part]
        for name, field in batch.fields.items()
    }
    return Batch(base.SampleInfo(*(array[part] for array in batch.info)), fields, lengths)
