"""A table in memory: which items there are, which is sampled next, which leaves."""

import collections
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from minerva_acme.replay import base, messages
from minerva_acme.replay.memory.rows import RowStore
from minerva_acme.replay.memory.sum_tree import SumTree

_MIN_CAPACITY = 16
_SPARSE = 4  # places for each item, from which on it is not worth guessing where one is


class Field(NamedTuple):
    """A field of the items and where its rows lie."""

    name: str
    column: str
    length: int
    variable: bool
    store: RowStore


class Owner(Protocol):
    """Who created an item that its table has not yet taken."""

    num_pending: int


class Pending(NamedTuple):
    """An item that waits for the rate limiter; its rows are held."""

    owner: Owner
    starts: list[int]
    lengths: list[int]
    priority: float


class Drawn(NamedTuple):
    """Some items, taken out for a sampler."""

    info: base.SampleInfo
    starts: list[np.ndarray]  # of each field: [B]
    lengths: list[np.ndarray | None]  # of each variable field: [B]


def leaves_in_order(config: base.TableConfig) -> bool:
    """Whether it is always the oldest item that leaves a table."""
    return isinstance(config.remover, base.Fifo) and (
        not config.max_times_sampled or isinstance(config.sampler, base.Fifo)
    )


class Table:
    """Items as arrays: of each item its first row in each field, its priority, how often it was sampled.

    Item number n lies at place n % capacity; numbers count up with the inserts.

        number   first = 5    6    7    8    9    end = 10
        alive          yes   yes   -   yes  yes

    Where only the oldest item can leave, there is never a hole: a number is then an item's key, and
    nothing needs to be moved once the arrays have their full size. Otherwise keys are kept, in
    ascending order, and from time to time the items move up to fill the holes.
    """

    def __init__(
        self, config: base.TableConfig, stores: Mapping[str, RowStore], generator: np.random.Generator
    ) -> None:
        """Args: config: of the table. stores: of its columns. generator: of its draws."""
        signature = config.signature
        self.config = config
        self.generator = generator
        self.fields = [
            Field(name, field.column, field.length, field.variable, stores[field.column])
            for name, field in sorted(signature.fields.items())
        ]
        self.size = self.inserted = self.sampled = 0
        self.pending: collections.deque[Pending] = collections.deque()
        self._max_size = config.max_size
        self._has_variable = any(field.variable for field in self.fields)
        self._limits = messages.limits(config.rate_limiter)
        self._first = self._end = 0
        in_order = leaves_in_order(config)
        # With room for some holes, so that they are not filled at every insert.
        self._max_capacity = config.max_size + (0 if in_order else max(_MIN_CAPACITY, config.max_size // 8))
        self._capacity = 0
        self._starts = [np.empty(0, np.int32) for _ in self.fields]
        self._lengths = [np.empty(0, np.int32) if field.variable else None for field in self.fields]
        self._times = np.empty(0, np.int32)  # -1: no item
        self._priorities = _Priorities()
        self._keys = None if in_order else np.empty(0, np.uint64)
        self._trees: dict[base.Prioritized, SumTree] = {}
        self._resize(min(_MIN_CAPACITY, self._max_capacity))

    @property
    def nbytes(self) -> int:
        """Bytes that the items take, without their rows."""
        arrays = [*self._starts, *self._lengths, self._times, self._keys]
        trees = sum(tree.nbytes for tree in self._trees.values())
        return sum(array.nbytes for array in arrays if array is not None) + self._priorities.nbytes + trees

    def description(self) -> messages.TableDescription:
        """Describes the table as it is."""
        return messages.describe(self.config, self.size, self.inserted, self.sampled)

    def can_insert(self) -> bool:
        """Whether the rate limiter lets one more item in."""
        limits = self._limits
        return (
            self.size < limits.min_size
            or (self.inserted + 1) * limits.samples_per_insert - self.sampled <= limits.max_diff
        )

    def samples_allowed(self, wanted: int) -> int:
        """How many of `wanted` samples can be taken now, as long as no item leaves."""
        limits = self._limits
        if self.size < limits.min_size:
            return 0
        left = self.inserted * limits.samples_per_insert - self.sampled - limits.min_diff
        return wanted if left >= wanted else max(0, int(left))

    def insert(self, starts: list[int], lengths: list[int], priority: float) -> None:
        """Inserts an item and keeps its rows; drops one if they are too many, be it the new one."""
        if self._keys is None:
            if self.size == self._max_size:  # first, so that there need be no place for one more
                self._remove(self._first)
            if self.size == self._capacity:
                self._make_room()
        elif self._end == self._capacity:
            self._make_room()
        place = self._end % self._capacity
        for cells, start in zip(self._start_cells, starts, strict=True):
            cells[place] = start
        if self._has_variable:
            for variable, length in zip(self._lengths, lengths, strict=True):
                if variable is not None:
                    variable[place] = length
        self._times_cells[place] = 0
        if priority != self._priorities.common or self._priorities.each is not None:
            self._priorities.set(place, priority, self._capacity)
        if self._keys is not None:
            self._keys[place] = self.inserted
        for selector, tree in self._trees.items():
            tree.set(place, _weight(priority, selector.exponent))
        self._end += 1
        self.size += 1
        self.inserted += 1
        if self.size > self._max_size:
            self._remove(int(self._draw(self.config.remover, 1)[0]))

    def draw(self, wanted: int) -> Drawn | None:
        """Takes up to `wanted` samples, as many as the rate limiter allows; None if it allows none."""
        if self.config.max_times_sampled:
            return self._draw_limited(wanted)
        count = self.samples_allowed(wanted)
        if not count:
            return None
        numbers = self._draw(self.config.sampler, count)
        places = numbers % self._capacity
        times = self._times[places] + 1
        ordered = np.sort(places)
        if (ordered[1:] == ordered[:-1]).any():
            times += _earlier(places)
        self._times[places] = times  # of several at one place the last counts
        self.sampled += count
        return self._take(numbers, places, np.full(count, self.size), self._probabilities(places), times)

    def update_priorities(self, keys: np.ndarray, priorities: np.ndarray) -> None:
        """Sets the priorities of the items that still exist; of several for one the last counts."""
        if self._keys is None:
            exists = (keys >= self._first) & (keys < self._end)
            places = keys[exists].astype(np.intp) % self._capacity
        else:
            known = self._keys[: self._end]  # ascending from the first on
            places = self._first + np.searchsorted(known[self._first :], keys)
            exists = places < self._end
            exists[exists] = known[places[exists]] == keys[exists]
            exists[exists] = self._times[places[exists]] >= 0
            places = places[exists]
        priorities = priorities[exists]
        self._priorities.set_many(places, priorities, self._capacity)
        for selector, tree in self._trees.items():
            tree.set_many(places, _weights(priorities, selector.exponent))

    def save(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Returns all there is to know of the items: numbers and words, and arrays."""
        numbers = {
            "capacity": self._capacity,
            "first": self._first,
            "end": self._end,
            "size": self.size,
            "inserted": self.inserted,
            "sampled": self.sampled,
            "priority": self._priorities.common,
            "generator": self.generator.bit_generator.state,
        }
        arrays: dict[str, np.ndarray] = {
            f"start/{field.name}": array for field, array in zip(self.fields, self._starts, strict=True)
        }
        for field, lengths in zip(self.fields, self._lengths, strict=True):
            if lengths is not None:
                arrays[f"length/{field.name}"] = lengths
        arrays["times"] = self._times
        if self._keys is not None:
            arrays["keys"] = self._keys
        if self._priorities.each is not None:
            arrays["priorities"] = self._priorities.each
        return numbers, arrays

    def restore(self, numbers: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Takes over what `save` returned, and holds the rows of the items."""
        self._resize(numbers["capacity"])
        self._first, self._end = numbers["first"], numbers["end"]
        self.size, self.inserted, self.sampled = numbers["size"], numbers["inserted"], numbers["sampled"]
        self.generator.bit_generator.state = numbers["generator"]
        for field, starts, lengths in zip(self.fields, self._starts, self._lengths, strict=True):
            starts[:] = arrays[f"start/{field.name}"]
            if lengths is not None:
                lengths[:] = arrays[f"length/{field.name}"]
        self._times[:] = arrays["times"]
        if self._keys is not None:
            self._keys[:] = arrays["keys"]
        self._priorities = _Priorities(numbers["priority"], arrays.get("priorities"))
        places = self._alive() % self._capacity
        for field, starts, lengths in zip(self.fields, self._starts, self._lengths, strict=True):
            long = np.full(self.size, field.length) if lengths is None else lengths[places]
            field.store.hold_many(starts[places], long)
        self._plant()

    def _take(
        self,
        numbers: np.ndarray,
        places: np.ndarray,
        sizes: np.ndarray,
        probabilities: np.ndarray,
        times: np.ndarray,
    ) -> Drawn:
        info = base.SampleInfo(
            key=numbers.astype(np.uint64) if self._keys is None else self._keys[places],
            probability=probabilities,
            table_size=sizes,
            priority=self._priorities.get(places),
            times_sampled=times,
        )
        starts = [array[places].astype(np.intp) for array in self._starts]
        return Drawn(info, starts, [None if array is None else array[places] for array in self._lengths])

    def _draw_limited(self, wanted: int) -> Drawn | None:
        """Draws one by one, since an item may leave with each sample."""
        drawn: list[int] = []
        sizes: list[int] = []
        probabilities: list[float] = []
        times: list[int] = []
        while len(drawn) < wanted and self.samples_allowed(1):
            number = int(self._draw(self.config.sampler, 1)[0])
            place = number % self._capacity
            drawn.append(number)
            sizes.append(self.size)
            probabilities.append(float(self._probabilities(np.array([place]))[0]))
            times.append(self._times_cells[place] + 1)
            self._times_cells[place] = times[-1]
            self.sampled += 1
            if times[-1] == self.config.max_times_sampled:
                # Its rows stay where they are until something is written, which is after they are read.
                self._remove(number)
        if not drawn:
            return None
        numbers = np.array(drawn)
        return self._take(
            numbers,
            numbers % self._capacity,
            np.array(sizes, np.int64),
            np.array(probabilities),
            np.array(times, np.int32),
        )

    def _draw(self, selector: base.Selector, count: int) -> np.ndarray:
        """Returns the numbers of items that a selector chooses; the table must not be empty."""
        match selector:
            case base.Fifo():
                return np.full(count, self._first)
            case base.Lifo():
                return np.full(count, self._end - 1)
            case base.Prioritized():
                tree = self._trees[selector]
                total = tree.total()
                if total > 0.0:
                    places = tree.find(self.generator.random(count) * total)
                    if self._keys is not None:
                        return places
                    return self._first + (places - self._first) % self._capacity
        return self._draw_uniformly(count)

    def _draw_uniformly(self, count: int) -> np.ndarray:
        span = self._end - self._first
        if span > _SPARSE * self.size:
            return self._alive()[self.generator.integers(0, self.size, count)]
        numbers = self.generator.integers(self._first, self._end, count)
        while self.size < span:  # Those that hit a hole are drawn again.
            holes = np.flatnonzero(self._times[numbers] < 0)
            if not holes.size:
                break
            numbers[holes] = self.generator.integers(self._first, self._end, holes.size)
        return numbers

    def _probabilities(self, places: np.ndarray) -> np.ndarray:
        selector = self.config.sampler
        if isinstance(selector, base.Fifo | base.Lifo):
            return np.ones(len(places))
        if isinstance(selector, base.Prioritized):
            tree = self._trees[selector]
            total = tree.total()
            if total > 0.0:
                return tree.weights(places) / total
        return np.full(len(places), 1.0 / self.size)

    def _remove(self, number: int) -> None:
        self._release(number % self._capacity)
        self._forget(number)

    def _release(self, place: int) -> None:
        """Lets go of an item's rows."""
        for field, cells, lengths in zip(self.fields, self._start_cells, self._lengths, strict=True):
            field.store.release(cells[place], field.length if lengths is None else int(lengths[place]))

    def _forget(self, number: int) -> None:
        """Takes an item out of what can be drawn."""
        place = number % self._capacity
        self.size -= 1
        for tree in self._trees.values():
            tree.set(place, 0.0)
        if self._keys is None:
            self._first += 1
            return
        self._times[place] = -1
        if number == self._first:
            self._first += 1
            while self._first < self._end and self._times[self._first % self._capacity] < 0:
                self._first += 1
        elif number == self._end - 1:
            self._end -= 1
            while self._times[self._end - 1] < 0:
                self._end -= 1

    def _alive(self) -> np.ndarray:
        """The numbers of all items, in order."""
        numbers = np.arange(self._first, self._end)
        return numbers if self._keys is None else numbers[self._times[numbers] >= 0]

    def _make_room(self) -> None:
        if self._keys is None or self.size > self._capacity - self._capacity // 8:
            self._resize(min(self._max_capacity, max(_MIN_CAPACITY, self._capacity * 3 // 2)))
        else:
            self._resize(self._capacity)

    def _resize(self, capacity: int) -> None:
        """Moves the items into arrays for `capacity` of them; without holes, if numbers are not keys."""
        old: Any
        new: Any
        if self._end == self.size:  # none has left: there is nothing to be sorted
            old = new = slice(self.size)
        else:
            numbers = self._alive()
            old = numbers % self._capacity
            if self._keys is not None:
                self._first, self._end = 0, self.size
                numbers = np.arange(self.size)
            new = numbers % capacity

        def moved(array: np.ndarray) -> np.ndarray:
            grown = np.zeros(capacity, array.dtype)
            grown[new] = array[old]
            return grown

        self._starts = [moved(array) for array in self._starts]
        self._lengths = [None if array is None else moved(array) for array in self._lengths]
        times = moved(self._times)
        self._times = np.full(capacity, -1, np.int32)
        self._times[new] = times[new]
        if self._keys is not None:
            self._keys = moved(self._keys)
        if self._priorities.each is not None:
            self._priorities.each = moved(self._priorities.each)
        self._capacity = capacity
        # Single elements are reached through views: twice as fast.
        self._start_cells = [array.data for array in self._starts]
        self._times_cells = self._times.data
        self._plant()

    def _plant(self) -> None:
        """Makes the trees of the priorities that there are."""
        for selector in (self.config.sampler, self.config.remover):
            if isinstance(selector, base.Prioritized):
                places = self._alive() % self._capacity
                tree = self._trees[selector] = SumTree(self._capacity)
                tree.set_many(places, _weights(self._priorities.get(places), selector.exponent))


class _Priorities:
    """The items' priorities: one number as long as all have the same, which costs nothing."""

    def __init__(self, common: float | None = None, each: np.ndarray | None = None) -> None:
        self.common = common
        self.each = each

    @property
    def nbytes(self) -> int:
        return 0 if self.each is None else self.each.nbytes

    def get(self, places: np.ndarray) -> np.ndarray:
        if self.each is None:
            return np.full(len(places), 0.0 if self.common is None else self.common)
        return self.each[places]

    def set(self, place: int, priority: float, capacity: int) -> None:
        if self.each is None:
            if self.common is None:
                self.common = priority
            if priority == self.common:
                return
            self.each = np.full(capacity, self.common)
        self.each[place] = priority

    def set_many(self, places: np.ndarray, priorities: np.ndarray, capacity: int) -> None:
        if self.each is None:
            if self.common is None or np.all(priorities == self.common):
                return
            self.each = np.full(capacity, self.common)
        self.each[places] = priorities


def _earlier(places: np.ndarray) -> np.ndarray:
    """How often each of the places [B] stands before in the array."""
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    earlier = np.empty_like(order)
    earlier[order] = np.arange(len(places)) - np.searchsorted(ordered, ordered)
    return earlier


def _weight(priority: float, exponent: float) -> float:
    return priority**exponent if priority else 0.0


def _weights(priorities: np.ndarray, exponent: float) -> np.ndarray:
    return np.where(priorities > 0.0, priorities**exponent, 0.0)
