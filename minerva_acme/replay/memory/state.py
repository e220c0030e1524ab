"""All that a server in memory holds, and the one lock around it."""

import collections
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np

from minerva_acme.replay import base, messages
from minerva_acme.replay.memory.rows import Arrays, RowStore
from minerva_acme.replay.memory.table import Owner, Pending, Table, leaves_in_order

_SLICE_SECONDS = 0.5  # how long Ctrl-C may go unheard where a lock does not hear it


class State:
    """The tables, the rows that they share, and who waits for what.

    Everything is used with `changed` held: a lock, and the condition for which all waits are.
    """

    def __init__(
        self,
        tables: Sequence[base.TableConfig],
        seed: int,
        arrays: Arrays,
    ) -> None:
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        self.is_closed = False
        self.stores: dict[tuple[str, tuple[int, ...], np.dtype], RowStore] = {}
        self.tables: dict[str, Table] = {}
        self._num_waiting = 0
        in_order = all(map(leaves_in_order, tables))  # rows may be shared by all of them
        for config in tables:
            stores = {}
            for column, spec in config.signature.columns.items():
                key = (column, tuple(spec.shape), np.dtype(spec.dtype))
                if key not in self.stores:
                    self.stores[key] = RowStore(spec, self._fill_of(key), arrays, in_order)
                stores[column] = self.stores[key]
            # A stream of its own for each table, so that what one does changes no other's draws.
            sequence = np.random.SeedSequence([seed, *config.name.encode()])
            self.tables[config.name] = Table(config, stores, np.random.Generator(np.random.PCG64(sequence)))

    @property
    def nbytes(self) -> int:
        """Bytes that rows and items take."""
        return sum(store.nbytes for store in self.stores.values()) + sum(
            table.nbytes for table in self.tables.values()
        )

    def table(self, name: str) -> Table:
        """Returns a table.

        Raises:
            ReplayError: there is no such table, or the server is closed.
        """
        self.check_open()
        if name not in self.tables:
            raise base.ReplayError(messages.unknown_table(name, messages.IN_MEMORY, self.tables))
        return self.tables[name]

    def check_open(self) -> None:
        """Refuses the use of a server that is closed."""
        if self.is_closed:
            raise base.ReplayError("The replay server in memory is closed. Make a new one.")

    def close(self) -> None:
        """Wakes all who wait, lets nobody in again and frees the memory."""
        with self.lock:
            self.is_closed = True
            self.tables.clear()
            self.stores.clear()
            self.changed.notify_all()

    def insert(
        self, table: Table, owner: Owner, starts: list[int], lengths: list[int], priority: float
    ) -> None:
        """Inserts an item, now or once those before it are in and the rate limiter allows it."""
        if table.pending or not table.can_insert():
            table.pending.append(Pending(owner, starts, lengths, priority))
            owner.num_pending += 1
        else:
            table.insert(starts, lengths, priority)
            if self._num_waiting:
                self.changed.notify_all()

    def draw_done(self, table: Table) -> None:
        """Lets in what waited for the samples that were just taken."""
        pending = table.pending
        while pending and table.can_insert():
            item = pending.popleft()
            item.owner.num_pending -= 1
            table.insert(item.starts, item.lengths, item.priority)
        if self._num_waiting:
            self.changed.notify_all()

    def drop_pending(self, owner: Owner) -> list[str]:
        """Forgets what an owner's tables have not taken; returns the names of those tables."""
        names = []
        for name, table in self.tables.items():
            dropped = [item for item in table.pending if item.owner is owner]
            for item in dropped:
                for field, start, length in zip(table.fields, item.starts, item.lengths, strict=True):
                    field.store.release(start, length)
            if dropped:
                names.append(name)
                table.pending = collections.deque(item for item in table.pending if item.owner is not owner)
        owner.num_pending = 0
        return names

    def wait(self, is_done: Callable[[], bool], deadline: float | None) -> bool:
        """Waits for a change until `is_done` or the deadline, or at most for a slice of time.

        Returns whether it is done.
        """
        seconds = _SLICE_SECONDS
        if deadline is not None:
            seconds = min(seconds, deadline - time.monotonic())
        if seconds > 0 and not is_done():
            self._num_waiting += 1
            try:
                self.changed.wait(seconds)
            finally:
                self._num_waiting -= 1
        return is_done()

    def _fill_of(self, key: tuple[str, tuple[int, ...], np.dtype]) -> Callable[[], float]:
        """How full the tables are that have rows in a store; of several, the fullest that is not."""

        def fill() -> float:
            store = self.stores[key]
            tables = [
                table
                for table in self.tables.values()
                if any(field.store is store for field in table.fields) and table.size
            ]
            shares = [table.size / table.config.max_size for table in tables]
            return min(shares, default=1e-9)

        return fill
