"""Tables in memory, which keep track of items, sample them and remove them."""

import abc
import collections
import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from minerva_acme.replay import base, messages, selectors
from minerva_acme.replay.memory.rows import RowStore, check_array

_MIN_CAPACITY = 16
_COUNTS = ("size", "inserted", "sampled", "_capacity", "_first", "_end")  # attributes of a table
_NUMBERS = (*_COUNTS, "_common_priority")
_MAX_COUNT = 1 << 62
_SPARSE = 4  # with more places per item than this, drawing places at random until one is alive is slower


class Field(NamedTuple):
    """A field of the items and the store of its rows."""

    name: str
    length: int
    variable: bool
    store: RowStore


class Item(NamedTuple):
    """A new item, whose rows are held."""

    owner: Any  # the writer, whose `num_pending` counts the items that are not inserted yet
    starts: list[int]  # for each field, the place of its first row
    lengths: list[int]
    priority: float


class Batch(NamedTuple):
    """Items that were sampled, with their rows."""

    info: base.SampleInfo
    fields: dict[str, Any]  # [B, length, *row shape]
    lengths: dict[str, np.ndarray]  # [B] for each variable field


class _Drawn(NamedTuple):
    """Items that were chosen for a sampler, [B] each."""

    numbers: np.ndarray
    places: np.ndarray
    sizes: np.ndarray  # the table's size at that time
    probabilities: np.ndarray
    times: np.ndarray  # the number of samples so far, including this one


class Tables:
    """The tables of a server, the rows that they share, and their lock.

    All methods except `close` are called with the lock held.
    """

    def __init__(
        self,
        configs: Sequence[base.TableConfig],
        seed: int,
        device: str | None,
        make_ring: "Callable[[base.TableConfig, np.random.Generator], AnyTable]",
    ) -> None:
        """Makes the tables.

        Args:
            configs: The configs of the tables.
            seed: The seed of all draws.
            device: The device of rows that are tensors; None for arrays.
            make_ring: The function that makes a table that is a ring.
        """
        self.lock = threading.Lock()
        self._changed = threading.Condition(self.lock)
        self._num_waiting = 0
        self.is_closed = False
        self.stores: dict[str, RowStore] = {}
        self.tables: dict[str, AnyTable] = {}
        in_order = all(map(_leaves_in_order, configs))  # all of them, since they may share rows
        for config in configs:
            # Each table has its own generator, so that its draws do not depend on the other tables.
            sequence = np.random.SeedSequence([seed, *config.name.encode()])
            generator = np.random.Generator(np.random.PCG64(sequence))
            if config.ring is not None:
                self.tables[config.name] = make_ring(config, generator)
                continue
            stores = {}
            for column, spec in config.signature.columns.items():
                key = store_key(column, spec)
                if key not in self.stores:
                    fill = functools.partial(self._fill, key)
                    self.stores[key] = _make_store(device, spec, fill, in_order)
                stores[column] = self.stores[key]
            self.tables[config.name] = Table(config, stores, generator)

    @property
    def nbytes(self) -> int:
        """The size of rows and items in bytes."""
        parts: list[RowStore | AnyTable] = [*self.stores.values(), *self.tables.values()]
        return sum(part.nbytes for part in parts)

    def table(self, name: str) -> "AnyTable":
        """Returns a table.

        Raises:
            ReplayError: There is no such table, or the server is closed.
        """
        self.check_open()
        if name not in self.tables:
            raise base.ReplayError(messages.unknown_table(name, messages.IN_MEMORY, self.tables))
        return self.tables[name]

    def check_open(self) -> None:
        """Raises a ReplayError if the server is closed."""
        if self.is_closed:
            raise base.ReplayError("The replay server in memory is closed. Make a new one.")

    def close(self) -> None:
        """Ends all waits, prevents further use and frees the memory."""
        with self.lock:
            self.is_closed = True
            self.tables.clear()
            self.stores.clear()
            self.notify()

    def wait(self, is_done: Callable[[], bool], seconds: float) -> bool:
        """Waits until `is_done` returns true or the time is over. Returns whether it is done."""
        self._num_waiting += 1
        try:
            return self._changed.wait_for(is_done, seconds)
        finally:
            self._num_waiting -= 1

    def notify(self) -> None:
        """Wakes all waiting threads after a change."""
        if self._num_waiting:
            self._changed.notify_all()

    def _fill(self, key: str) -> float:
        """Returns how full the tables with rows in a store are: the least of those that have items."""
        shares = [
            table.size / table.config.max_size
            for table in self.tables.values()
            if table.size and any(field.store is self.stores[key] for field in table.fields)
        ]
        return min(shares, default=1e-9)


def _make_store(device: str | None, *arguments: Any) -> RowStore:
    if device is None:
        return RowStore(*arguments)
    from minerva_acme.replay.memory.tensors import TensorRowStore  # imports torch

    return TensorRowStore(device, *arguments)


def store_key(column: str, spec: base.ColumnSpec) -> str:
    """Returns the name of a row store. Columns of the same name, shape and dtype share a store."""
    return f"{column} {list(spec.shape)} {np.dtype(spec.dtype).name}"


class AnyTable(abc.ABC):
    """The base class of tables: their counts, and what their rate limiter allows."""

    fields: Sequence[Field] = ()

    def __init__(self, config: base.TableConfig) -> None:
        """Makes an empty table."""
        self.config = config
        self.field_specs = messages.field_specs(config.signature)
        self.size = self.inserted = self.sampled = 0
        self.pending: collections.deque[Item] = collections.deque()
        self._limits = messages.limits(config.rate_limiter)

    @property
    @abc.abstractmethod
    def nbytes(self) -> int:
        """The size of the items in bytes."""

    def description(self) -> messages.TableDescription:
        """Returns a description of the table's current state."""
        return messages.describe(self.config, self.size, self.inserted, self.sampled)

    def samples_allowed(self) -> int:
        """Returns how many samples can be taken now, as long as no item is removed."""
        per_insert, min_size, min_diff, _ = self._limits
        if self.size < min_size:
            return 0
        return max(0, int(self.inserted * per_insert - self.sampled - min_diff))

    def allows_inserting(self, inserted: int) -> bool:
        """Returns whether the rate limiter allows inserts up to a total of `inserted` items."""
        per_insert, min_size, _, max_diff = self._limits
        return self.size < min_size or inserted * per_insert - self.sampled <= max_diff

    def drop_pending(self, owner: object) -> int:
        """Drops the items of an owner that are not inserted yet. Returns their number."""
        dropped = [item for item in self.pending if item.owner is owner]
        for item in dropped:
            for field, start, length in zip(self.fields, item.starts, item.lengths, strict=True):
                field.store.release(start, length)
        self.pending = collections.deque(item for item in self.pending if item.owner is not owner)
        return len(dropped)

    @abc.abstractmethod
    def draw(self, wanted: int) -> Batch | None:
        """Takes up to `wanted` samples, as many as the rate limiter allows; returns None for none."""

    def update_priorities(self, keys: np.ndarray, priorities: np.ndarray) -> None:
        """Sets the priorities of the items that still exist. The last of several for one item counts.

        Raises:
            ReplayError: Items of the table have no priorities.
        """
        raise base.ReplayError(
            f"Table '{self.config.name}' holds batched steps, whose items have no priorities. Sample "
            "uniformly, or play environments that are not batched."
        )

    @abc.abstractmethod
    def save(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Returns the state of the items: values for JSON, and arrays."""

    @abc.abstractmethod
    def restore(self, numbers: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Restores what `save` returned.

        Raises:
            ValueError: The state does not fit this table.
        """

    def save_draws(self) -> dict[str, Any]:
        """Returns what draws depend on, other than the items: numbers, and arrays by item.

        Raises:
            ReplayError: The table has no such state of its own.
        """
        raise base.ReplayError(f"Table '{self.config.name}' is a ring: save and restore it with its rows.")

    def restore_draws(self, state: Mapping[str, Any]) -> None:
        """Restores what `save_draws` returned, in a table with the same items.

        Raises:
            ReplayError: The table has no such state.
            ValueError: The table has another number of items.
        """
        self.save_draws()


class Table(AnyTable):
    """A table of items, stored as arrays of their first row in each field, priority and number of samples.

    Item number n is at place n % capacity. Every insert takes the next number.

        number   first = 5    6    7    8    9    end = 10
        alive          yes   yes   -   yes  yes

    If only the oldest item can be removed, there are no holes: a number is then also an item's key, and
    nothing needs to be moved once the arrays have their full size. Otherwise keys are stored, in
    ascending order, and from time to time the items are moved to fill the holes.
    """

    def __init__(
        self, config: base.TableConfig, stores: Mapping[str, RowStore], generator: np.random.Generator
    ) -> None:
        """Makes an empty table.

        Args:
            config: The table's config.
            stores: The row store of each column.
            generator: The generator of the table's draws.
        """
        super().__init__(config)
        self.fields = [
            Field(name, field.length, field.variable, stores[field.column])
            for name, field in sorted(config.signature.fields.items())
        ]
        self._generator = generator
        self._max_size = config.max_size
        self._first = self._end = 0
        self._in_order = _leaves_in_order(config)
        # With room for some holes, so that items are not moved at every insert.
        holes = 0 if self._in_order else max(_MIN_CAPACITY, config.max_size // 8)
        self._max_capacity = config.max_size + holes
        self._capacity = 0
        self._arrays = {f"start/{field.name}": np.empty(0, np.int32) for field in self.fields}
        for field in self.fields:
            if field.variable:
                self._arrays[f"length/{field.name}"] = np.empty(0, np.int32)
        self._arrays["times"] = np.empty(0, np.int32)  # the number of samples; -1 for a hole
        if not self._in_order:
            self._arrays["keys"] = np.empty(0, np.uint64)
        # The priority while all items have the same one; otherwise there is an array.
        self._common_priority: float | None = None
        # The largest priority that an item has had, where a new item gets it.
        self._largest_priority = 0.0
        self._most = min(config.sampler.largest_priority, config.remover.largest_priority)
        self._begins_largest = config.sampler.begins_with_largest
        items = _Items(self)
        self._sampling = config.sampler.start(items)
        self._removing = self._sampling if config.remover == config.sampler else config.remover.start(items)
        self._selections = [*dict.fromkeys((self._sampling, self._removing))]
        self._numbers = (*_NUMBERS, *["_largest_priority"] * self._begins_largest)  # of a checkpoint
        self._resize(min(_MIN_CAPACITY, self._max_capacity))

    @property
    def nbytes(self) -> int:
        """The size of the items in bytes, without their rows."""
        parts: list[np.ndarray | selectors.Selection] = [*self._arrays.values(), *self._selections]
        return sum(part.nbytes for part in parts)

    def offer(self, owner: Any, starts: list[int], lengths: list[int], priority: float) -> None:
        """Holds an item's rows, and inserts it once earlier items are in and the rate limiter allows it."""
        if priority > self._most:
            self._refuse(priority)
        for field, start, length in zip(self.fields, starts, lengths, strict=True):
            field.store.hold(start, length)
        if not self.pending and self.allows_inserting(self.inserted + 1):
            self._insert(starts, lengths, priority)
        else:
            self.pending.append(Item(owner, starts, lengths, priority))
            owner.num_pending += 1

    def draw(self, wanted: int) -> Batch | None:
        # One by one if each sample may remove an item.
        most = 1 if self.config.max_times_sampled else wanted
        drawn: list[_Drawn] = []
        while (count := min(wanted, most)) and (count := min(count, self.samples_allowed())):
            if self._is_sparse():
                if drawn:  # Their places must stay until they are taken; the rest is drawn by the next call.
                    break
                self._resize(self._capacity)
            drawn.append(self._sample(count))
            wanted -= count
        batch = None
        if drawn:
            # The rows of removed items stay in place until something is written, which happens below.
            parts = drawn[0] if len(drawn) == 1 else map(np.concatenate, zip(*drawn, strict=True))
            batch = self._take(*parts)
        self._insert_pending()
        return batch

    def update_priorities(self, keys: np.ndarray, priorities: np.ndarray) -> None:
        if self._in_order:
            exists = (keys >= self._first) & (keys < self._end)
            numbers = keys[exists].astype(np.intp)
        else:
            known = self._arrays["keys"][: self._end]  # ascending from `_first` on
            numbers = self._first + np.searchsorted(known[self._first :], keys)
            exists = numbers < self._end
            exists[exists] = known[numbers[exists]] == keys[exists]
            exists[exists] = self._times[numbers[exists]] >= 0
            numbers = numbers[exists]
        priorities = priorities[exists]
        if (largest := float(priorities.max(initial=0.0))) > self._most:
            self._refuse(largest)
        self._largest_priority = max(self._largest_priority, largest)
        if "priorities" in self._arrays or np.any(priorities != self._common_priority):
            self._each_priority()[numbers % self._capacity] = priorities
        for selection in self._selections:
            selection.update(numbers, priorities)

    def save(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        numbers = {name: getattr(self, name) for name in self._numbers}
        return numbers | {"generator": self._generator.bit_generator.state}, self._arrays

    def restore(self, numbers: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Restores what `save` returned, and holds the rows of the items."""
        self._check_numbers(numbers, arrays)
        self._arrays = {name: array[:0] for name, array in arrays.items()}
        self._resize(numbers["_capacity"])
        for name, array in arrays.items():
            self._arrays[name][:] = array
        for name in self._numbers:
            setattr(self, name, numbers[name])
        self._generator.bit_generator.state = numbers["generator"]
        self._rebuild()
        places = self._alive() % self._capacity
        self._check_items(places)
        for place in places.tolist():
            for store, start, length in self._windows(place):
                store.hold(start, length)

    def save_draws(self) -> dict[str, Any]:
        return {
            "size": self.size,
            "sampled": self.sampled,
            "generator": self._generator.bit_generator.state,
            "times": self._times[self._alive() % self._capacity],
            "priorities": self._priorities(self._alive() % self._capacity),
            "largest_priority": self._largest_priority,
        }

    def restore_draws(self, state: Mapping[str, Any]) -> None:
        if state["size"] != self.size:
            raise ValueError(f"Table '{self.config.name}' must have {state['size']} items, got {self.size}.")
        places = self._alive() % self._capacity
        self.sampled, self._generator.bit_generator.state = state["sampled"], state["generator"]
        self._largest_priority = state["largest_priority"]
        self._times[places] = state["times"]
        self._each_priority()[places] = state["priorities"]
        self._rebuild()

    def _check_numbers(self, numbers: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Checks the shapes of a state to restore, and the numbers that refer to the places of items."""
        for name in _COUNTS:
            if type(numbers[name]) is not int or not 0 <= numbers[name] < _MAX_COUNT:
                raise ValueError(f"`{name}` must be a count, got {numbers[name]!r}")
        size, inserted, _, capacity, first, end = (numbers[name] for name in _COUNTS)
        fits = size <= min(self._max_size, capacity) and 1 <= capacity <= self._max_capacity
        if self._in_order:
            fits &= end - first == size and end == inserted
        else:
            fits &= size <= end - first and end <= capacity
        counts = {name: numbers[name] for name in self._numbers}
        common, largest = numbers["_common_priority"], counts.get("_largest_priority", 0.0)
        fits &= all(0.0 <= float(x) <= self._most for x in (largest, 0.0 if common is None else common))
        if not fits:
            raise ValueError(f"its numbers are inconsistent: {counts}")
        expected: dict[str, np.dtype] = {name: array.dtype for name, array in self._arrays.items()}
        if "priorities" in arrays:
            expected["priorities"] = np.dtype(np.float64)
        if arrays.keys() != expected.keys():
            raise ValueError(f"a table must have the arrays {sorted(expected)}, got {sorted(arrays)}")
        for name, dtype in expected.items():
            check_array(name, arrays[name], dtype, (capacity,))
        priorities = arrays.get("priorities", np.zeros(0))
        if not np.all((priorities >= 0.0) & (priorities <= self._most)):
            raise ValueError(f"the priorities of its items must be >= 0 and <= {self._most:g}")

    def _check_items(self, places: np.ndarray) -> None:
        """Checks the restored items, given their places."""
        if len(places) != self.size or np.any(self._times[places] < 0):
            raise ValueError(f"a table must have {self.size} items, got {np.sum(self._times[places] >= 0)}")
        if not self._in_order:
            keys = self._arrays["keys"][self._first : self._end]
            if np.any(keys[1:] <= keys[:-1]) or np.any(keys[-1:] >= self.inserted):
                raise ValueError("the keys of its items must ascend")
        for field in self.fields:
            lengths = np.full(len(places), field.length)
            if field.variable:
                lengths = self._arrays[f"length/{field.name}"][places]
            field.store.check_windows(self._arrays[f"start/{field.name}"][places], lengths)

    def _is_sparse(self) -> bool:
        return self._end - self._first > _SPARSE * self.size

    def _refuse(self, priority: float) -> NoReturn:
        raise ValueError(
            f"A priority in table '{self.config.name}' must be <= {self._most:g}, so that its power and the "
            f"sum of all are finite, got {priority:g}. Scale or clip priorities."
        )

    def _insert_pending(self) -> None:
        while self.pending and self.allows_inserting(self.inserted + 1):
            item = self.pending.popleft()
            item.owner.num_pending -= 1
            self._insert(item.starts, item.lengths, item.priority)

    def _insert(self, starts: list[int], lengths: list[int], priority: float) -> None:
        """Inserts an item whose rows are held. If the table is full, drops one, possibly the new one."""
        if self._in_order:
            if self.size == self._max_size:  # first, so that no extra place is needed
                self._remove(self._first)
            if self.size == self._capacity:
                self._make_room()
        elif self._end == self._capacity:
            self._make_room()
        if self._begins_largest:
            priority = self._largest_priority = max(priority, self._largest_priority)
        place = self._end % self._capacity
        for (start_cells, length_cells), start, length in zip(self._cells, starts, lengths, strict=True):
            start_cells[place] = start
            if length_cells is not None:
                length_cells[place] = length
        self._times_cells[place] = 0
        if self._common_priority is None:
            self._common_priority = priority
        if priority != self._common_priority or "priorities" in self._arrays:
            self._each_priority()[place] = priority
        if not self._in_order:
            self._arrays["keys"][place] = self.inserted
        self._end += 1
        self.size += 1
        self.inserted += 1
        for selection in self._selections:
            selection.insert(self._end - 1, priority)
        if self.size > self._max_size:
            numbers, _ = self._removing.choose(1)
            self._remove(int(numbers[0]))

    def _remove(self, number: int) -> None:
        """Removes an item and releases its rows."""
        place = number % self._capacity
        for store, start, length in self._windows(place):
            store.release(start, length)
        self.size -= 1
        for selection in self._selections:
            selection.remove(number)
        if self._in_order:
            self._first += 1
            return
        self._times_cells[place] = -1
        while self._first < self._end and self._times_cells[self._first] < 0:
            self._first += 1
        while self._first < self._end and self._times_cells[self._end - 1] < 0:
            self._end -= 1

    def _windows(self, place: int) -> list[tuple[RowStore, int, int]]:
        """Returns the store, the first row and the number of rows of an item, for each field."""
        return [
            (field.store, starts[place], field.length if lengths is None else lengths[place])
            for field, (starts, lengths) in zip(self.fields, self._cells, strict=True)
        ]

    def _sample(self, count: int) -> "_Drawn":
        """Chooses items and counts the samples. An item that reaches its maximum number is removed."""
        numbers, probabilities = self._sampling.choose(count)
        places = numbers % self._capacity
        times = self._times[places] + 1
        if count > 1:
            ordered = places.copy()
            ordered.sort()
            if (ordered[1:] == ordered[:-1]).any():
                times += _earlier(places)
        self._times[places] = times  # the last one counts if a place occurs several times
        self.sampled += count
        sizes = np.full(count, self.size)
        if self.config.max_times_sampled and times[0] == self.config.max_times_sampled:
            self._remove(int(numbers[0]))
        return _Drawn(numbers, places, sizes, probabilities, times)

    def _take(
        self,
        numbers: np.ndarray,
        places: np.ndarray,
        sizes: np.ndarray,
        probabilities: np.ndarray,
        times: np.ndarray,
    ) -> Batch:
        info = base.SampleInfo(
            key=numbers.astype(np.uint64) if self._in_order else self._arrays["keys"][places],
            probability=probabilities,
            table_size=sizes,
            priority=self._priorities(places),
            times_sampled=times.astype(np.int32),
        )
        fields, lengths = {}, {}
        for field in self.fields:
            starts = self._arrays[f"start/{field.name}"][places].astype(np.intp)
            longest = field.length
            if field.variable:
                lengths[field.name] = self._arrays[f"length/{field.name}"][places]
                longest = int(lengths[field.name].max())
            fields[field.name] = field.store.gather(starts, longest, lengths.get(field.name))
        return Batch(info, fields, lengths)

    def _choose_uniformly(self, count: int) -> selectors.Choice:
        probabilities = np.full(count, 1.0 / self.size)
        span = self._end - self._first
        if self._is_sparse():
            return self._alive()[self._generator.integers(0, self.size, count)], probabilities
        # Drawing integers takes numpy twice as long, and is only more uniform by 1 part in 2^53 / span.
        numbers = self._first + (self._generator.random(count) * span).astype(np.intp)
        while self.size < span:  # Numbers that hit a hole are drawn again.
            holes = np.flatnonzero(self._times[numbers] < 0)
            if not holes.size:
                break
            numbers[holes] = self._generator.integers(self._first, self._end, holes.size)
        return numbers, probabilities

    def _priorities(self, places: np.ndarray) -> np.ndarray:
        if "priorities" in self._arrays:
            return self._arrays["priorities"][places]
        return np.full(len(places), self._common_priority or 0.0)

    def _each_priority(self) -> np.ndarray:
        """Returns the array of priorities by place, and makes it if needed."""
        if "priorities" not in self._arrays:
            self._arrays["priorities"] = np.full(self._capacity, self._common_priority)
        return self._arrays["priorities"]

    def _alive(self) -> np.ndarray:
        """Returns the numbers of all items, in order."""
        numbers = np.arange(self._first, self._end)
        return numbers if self._in_order else numbers[self._times[numbers] >= 0]

    def _make_room(self) -> None:
        capacity = self._capacity
        if self._in_order or self.size > capacity - capacity // 8:
            capacity = min(self._max_capacity, max(_MIN_CAPACITY, capacity * 3 // 2))
        self._resize(capacity)

    def _resize(self, capacity: int) -> None:
        """Moves the items into arrays of size `capacity`. Fills the holes if numbers are not keys."""
        old: Any = slice(self.size)
        new: Any = old
        if self._end != self.size:  # some were removed
            numbers = self._alive()
            old = numbers % self._capacity
            if not self._in_order:
                self._first, self._end = 0, self.size
                numbers = np.arange(self.size)
            new = numbers % capacity
        for name, array in self._arrays.items():
            moved = np.full(capacity, -1 if name == "times" else 0, array.dtype)
            moved[new] = array[old]
            self._arrays[name] = moved
        self._capacity = capacity
        # Single elements are read and written through memory views, which is twice as fast.
        self._times = self._arrays["times"]
        self._times_cells = self._times.data
        self._cells = [
            (
                self._arrays[f"start/{field.name}"].data,
                self._arrays[f"length/{field.name}"].data if field.variable else None,
            )
            for field in self.fields
        ]
        self._rebuild()

    def _rebuild(self) -> None:
        """Lets the selections start anew."""
        for selection in self._selections:
            selection.rebuild()


class _Items(selectors.Items):
    """The items of a table, for its selections."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.generator = table._generator

    @property
    def capacity(self) -> int:
        return self._table._capacity

    @property
    def first(self) -> int:
        return self._table._first

    @property
    def end(self) -> int:
        return self._table._end

    def numbers(self) -> np.ndarray:
        return self._table._alive()

    def priorities(self, numbers: np.ndarray) -> np.ndarray:
        return self._table._priorities(numbers % self._table._capacity)

    def uniform(self, count: int) -> selectors.Choice:
        return self._table._choose_uniformly(count)


def _leaves_in_order(config: base.TableConfig) -> bool:
    """Returns whether a table always removes its oldest item."""
    return config.remover.takes_the_oldest and (
        not config.max_times_sampled or config.sampler.takes_the_oldest
    )


def _earlier(places: np.ndarray) -> np.ndarray:
    """Returns how often each of the places [B] occurs earlier in the array."""
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    earlier = np.empty_like(order)
    earlier[order] = np.arange(len(places)) - np.searchsorted(ordered, ordered)
    return earlier
