"""Selectors: how a table chooses the items that are sampled, and the one that leaves when it is full.

A selector is an object with settings. A table in memory asks it for a `Selection`, which is told of every
item and chooses among them. docs/how-to/replay.md shows a selector of your own, which needs nothing else.

Reverb has selectors of its own: there, those of this module without fading can be used.

Shapes: n items.
"""

import abc
import dataclasses
import math
from typing import Annotated, Any, Literal

import numpy as np

from minerva_acme import constraints
from minerva_acme.replay.fading_tree import FadingTree
from minerva_acme.replay.sum_tree import SumTree

LARGEST_WEIGHT = 1e290
"""The largest weight of an item: weights of as many items as there may be have a finite sum."""


class Items(abc.ABC):
    """The items of a table in memory, as selections see them.

    An item has a number, which grows by 1 with every insert, and lies at place number % capacity. Where only
    the oldest item can leave, the numbers follow each other; elsewhere some are missing. When items are moved
    to other places, selections `rebuild`.

    Attributes:
        generator: The generator of the table's draws; its state is saved.
    """

    generator: np.random.Generator

    @property
    @abc.abstractmethod
    def capacity(self) -> int:
        """The number of places."""

    @property
    @abc.abstractmethod
    def first(self) -> int:
        """The number of the oldest item; equal to `end` if there is none."""

    @property
    @abc.abstractmethod
    def end(self) -> int:
        """The number that the next item gets."""

    @abc.abstractmethod
    def numbers(self) -> np.ndarray:
        """Returns the numbers of all items, [n], the oldest first."""

    @abc.abstractmethod
    def priorities(self, numbers: np.ndarray) -> np.ndarray:
        """Returns the priorities of items, [n], by their numbers."""

    @abc.abstractmethod
    def uniform(self, count: int) -> "Choice":
        """Chooses `count` items with equal probability, with replacement."""


Choice = tuple[np.ndarray, np.ndarray]
"""The numbers of chosen items, [n] int, and the probability with which each was chosen, [n]."""


class Selection:
    """The choices of a selector in one table. It may keep anything by the numbers or places of items."""

    def choose(self, count: int) -> Choice:
        """Chooses `count` items, with replacement, of a table that is not empty."""
        raise NotImplementedError(f"{type(self).__name__} must define `choose`.")

    def rebuild(self) -> None:
        """Starts anew from the items that there are: they have other places, or were restored."""

    def insert(self, number: int, priority: float) -> None:
        """Takes note of a new item."""

    def update(self, numbers: np.ndarray, priorities: np.ndarray) -> None:
        """Takes note of new priorities, [n]; of several for one item, the last counts."""

    def remove(self, number: int) -> None:
        """Takes note that an item leaves."""

    @property
    def nbytes(self) -> int:
        """The size of what is kept, in bytes."""
        return 0


@dataclasses.dataclass(frozen=True)
class Selector(abc.ABC):
    """The settings of a choice: a frozen dataclass, whose fields are saved with a table and compared."""

    @abc.abstractmethod
    def start(self, items: Items) -> Selection:
        """Starts the choices in a table in memory, which is empty, or `rebuild`s the selection next."""

    def check(self, table: Any, role: Literal["sampler", "remover"]) -> None:
        """Checks the settings, and that the selector suits a `TableConfig` in its role.

        Raises:
            ValueError: A setting is invalid, or it does not.
        """
        constraints.check_fields(self, f" of the {role}")

    def ageless(self) -> "Selector":
        """Returns the same selector for items of which none is older than others."""
        return self

    def describe(self) -> str:
        """Describes the selector, for messages and checkpoints: its name and its settings."""
        settings = [f"{field.name}={getattr(self, field.name)}" for field in dataclasses.fields(self)]
        return type(self).__name__ + (f"({', '.join(settings)})" if settings else "")

    @property
    def takes_the_oldest(self) -> bool:
        """Whether it always chooses the oldest item."""
        return False

    @property
    def has_priorities(self) -> bool:
        """Whether priorities or ages of single items matter to it."""
        return True

    @property
    def largest_priority(self) -> float:
        """The largest priority that it can use."""
        return LARGEST_WEIGHT

    @property
    def begins_with_largest(self) -> bool:
        """Whether a new item gets the largest priority that any has had, instead of the one it is given."""
        return False

    @property
    def reverb(self) -> tuple[float, ...] | None:
        """The settings of Reverb's selector with the same name; None if it has no such selector."""
        return None


@dataclasses.dataclass(frozen=True)
class _Plain(Selector):
    """A selector without settings, which every store has."""

    @property
    def has_priorities(self) -> bool:
        return False

    @property
    def reverb(self) -> tuple[float, ...] | None:
        return ()


@dataclasses.dataclass(frozen=True)
class Uniform(_Plain):
    """A selector that chooses every item with equal probability."""

    def start(self, items: Items) -> Selection:
        return _UniformSelection(items)


@dataclasses.dataclass(frozen=True)
class Fifo(_Plain):
    """A selector that chooses the oldest item."""

    def start(self, items: Items) -> Selection:
        return _FifoSelection(items)

    @property
    def takes_the_oldest(self) -> bool:
        return True


@dataclasses.dataclass(frozen=True)
class Lifo(_Plain):
    """A selector that chooses the newest item."""

    def start(self, items: Items) -> Selection:
        return _LifoSelection(items)


@dataclasses.dataclass(frozen=True)
class Prioritized(Selector):
    """A selector that chooses items by priority and, if they fade, by age.

    An item's probability is proportional to max(fading ** age, floor) * priority ** exponent. Its age is the
    number of items inserted after it; without fading, the first factor is 1. Only the store in memory
    supports fading, and new items with the largest priority.

    Sources: Schaul et al. 2016, "Prioritized experience replay", for the second factor; Lyu et al. 2026,
    "Debiased model-based representations for sample-efficient continuous control" (DR.Q), for the first one,
    with `fading` 0.9999 and `floor` 0.1.
    """

    exponent: Annotated[
        float,
        constraints.Constraint(
            "finite and >= 0 (0 draws all items whose priority is above 0 with equal probability; `Uniform` "
            "draws all, and faster)",
            lambda value: 0.0 <= value < math.inf,
        ),
    ]
    fading: float = 1.0
    floor: float = 0.1  # the least value of the first factor
    new_priority: Literal["given", "largest"] = "given"  # by the writer, or the largest that an item has had

    def start(self, items: Items) -> Selection:
        return _PrioritizedSelection(items, self)

    def check(self, table: Any, role: Literal["sampler", "remover"]) -> None:
        super().check(table, role)
        if role == "remover" and self.reverb is None:
            raise ValueError(
                f"The remover must have no more than an `exponent`, got {self}: samplers alone fade."
            )
        if self.fading == 1.0:
            return
        if not (0.0 < self.fading < 1.0 and 1e-6 <= self.floor < 1.0):
            raise ValueError(
                f"`fading` must be in (0, 1] and `floor` in [1e-6, 1), got {self.fading} and {self.floor}. A "
                "`fading` of 1 leaves all weights as they are."
            )
        if not table.remover.takes_the_oldest or table.max_times_sampled:
            raise ValueError(
                f"The items of table '{table.name}' fade only where the oldest one always leaves first, got "
                f"{table.remover} and `max_times_sampled` {table.max_times_sampled}. Use `Fifo()` and 0."
            )

    def ageless(self) -> Selector:
        return dataclasses.replace(self, fading=1.0) if self.exponent else Uniform()

    def describe(self) -> str:
        settings = [f"exponent={float(self.exponent)}"]
        if self.fading != 1.0:
            settings += [f"fading={self.fading}", f"floor={self.floor}"]
        if self.new_priority != "given":
            settings.append(f"new_priority={self.new_priority}")
        return f"Prioritized({', '.join(settings)})"

    @property
    def largest_priority(self) -> float:
        return float(LARGEST_WEIGHT ** (1.0 / max(1.0, self.exponent)))

    @property
    def begins_with_largest(self) -> bool:
        return self.new_priority == "largest"

    @property
    def reverb(self) -> tuple[float, ...] | None:
        return (self.exponent,) if self.fading == 1.0 and self.new_priority == "given" else None


class _UniformSelection(Selection):
    def __init__(self, items: Items) -> None:
        self._items = items

    def choose(self, count: int) -> Choice:
        return self._items.uniform(count)


class _FifoSelection(_UniformSelection):
    def choose(self, count: int) -> Choice:
        return np.full(count, self._items.first), np.ones(count)


class _LifoSelection(_UniformSelection):
    def choose(self, count: int) -> Choice:
        return np.full(count, self._items.end - 1), np.ones(count)


class _PrioritizedSelection(Selection):
    """Choices by a tree of weights, by place."""

    _tree: SumTree | FadingTree
    _capacity: int

    def __init__(self, items: Items, selector: Prioritized) -> None:
        self._items, self._selector = items, selector

    def choose(self, count: int) -> Choice:
        total, items = self._tree.total(), self._items
        if total == 0.0:
            return items.uniform(count)
        places = self._tree.find(items.generator.random(count) * total)
        numbers = items.first + (places - items.first) % self._capacity
        return numbers, self._tree.weights(places) / total

    def rebuild(self) -> None:
        items, selector = self._items, self._selector
        self._capacity = items.capacity
        if selector.fading == 1.0:
            self._tree = SumTree(self._capacity)
        else:
            self._tree = FadingTree(
                self._capacity, fading=selector.fading, floor=selector.floor, newest=items.end - 1
            )
        numbers = items.numbers()
        self.update(numbers, items.priorities(numbers))

    def insert(self, number: int, priority: float) -> None:
        self._tree.insert(number % self._capacity, self._weight(priority))

    def update(self, numbers: np.ndarray, priorities: np.ndarray) -> None:
        # One at a time: numpy's powers of arrays differ from those of floats in the last bit, on CPUs with
        # AVX-512 for any exponent, and an item's weight must not depend on how it was computed.
        weights = np.array([self._weight(priority) for priority in priorities.tolist()])
        self._tree.set_many(numbers % self._capacity, weights)

    def remove(self, number: int) -> None:
        self._tree.set(number % self._capacity, 0.0)

    def _weight(self, priority: float) -> float:
        return float(priority**self._selector.exponent) if priority else 0.0

    @property
    def nbytes(self) -> int:
        return self._tree.nbytes
