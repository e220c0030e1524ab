"""Drawing with probability proportional to a weight that fades with age down to a floor."""

import math

import numpy as np

from minerva_acme.replay.sum_tree import SumTree


class FadingTree:
    """Draws an item with probability proportional to max(fading ** age, floor) * weight.

    Between two inserts, the ratio of the weights of two items changes only where the floor is reached. So the
    items younger than that are in one tree by weight / fading ** number, the others in one by weight alone:

        age            0    1    2   ...  window - 1 | window  ...
        factor now     1    f    f^2 ...             | floor   floor
        tree           young, times fading ** (age)  | old, times floor

    An insert moves one item from the first tree to the second. Every `window` inserts the numbers in the
    first one are counted from 0 again, which bounds its weights.

    As a `SumTree`, it takes places: item number n lies at place n % capacity, and the numbers of the items
    that there are follow each other. The same items and weights give the same trees, to the bit.
    """

    def __init__(self, capacity: int, *, fading: float, floor: float, newest: int) -> None:
        """Makes a tree of weights 0.

        Args:
            capacity: The number of places.
            fading: The factor of each insert, in (0, 1).
            floor: The least product of these factors, in (0, 1).
            newest: The number of the newest item; -1 before the first.
        """
        self._capacity = capacity
        self._window = min(capacity, math.ceil(math.log(floor) / math.log(fading)))
        self._fading, self._floor, self._newest = fading, floor, newest
        # By slot of a number of the window before the current one, then by slot of one of the current window.
        self._growth = fading ** np.arange(self._window, -self._window, -1.0)
        self._plain = np.zeros(self._window)  # the weights of the young, by slot
        self._young, self._old = SumTree(self._window), SumTree(capacity)

    @property
    def nbytes(self) -> int:
        """The size of the trees in bytes."""
        return self._growth.nbytes + self._plain.nbytes + self._young.nbytes + self._old.nbytes

    def insert(self, place: int, weight: float) -> None:
        """Makes all items one insert older, and sets the weight, >= 0, of the new one at the next place."""
        self._newest += 1
        slot = self._newest % self._window
        # The item that was in this slot, if any, has reached the floor.
        self._old.set((self._newest - self._window) % self._capacity, float(self._plain[slot]))
        if slot == 0:
            self._young.set_many(np.arange(self._window), self._plain * self._growth[: self._window])
        self.set(place, weight)

    def set(self, place: int, weight: float) -> None:
        """Sets the weight, >= 0, of an existing item; 0 if it leaves."""
        self.set_many(np.array([place]), np.array([weight]))

    def set_many(self, places: np.ndarray, weights: np.ndarray) -> None:
        """Sets weights [n] of items at places [n]; of several at one place the last counts."""
        ages = self._ages(places)
        is_young = ages < self._window
        slots, fresh = (self._newest - ages[is_young]) % self._window, weights[is_young]
        is_current = ages[is_young] <= self._newest % self._window
        self._plain[slots] = fresh
        self._young.set_many(slots, fresh * self._growth[slots + self._window * is_current])
        self._old.set_many(places[~is_young], weights[~is_young])

    def total(self) -> float:
        """The sum of all weights."""
        return self._factor() * self._young.total() + self._floor * self._old.total()

    def weights(self, places: np.ndarray) -> np.ndarray:
        """The weights at places, faded."""
        ages = self._ages(places)
        young = self._factor() * self._young.weights((self._newest - ages) % self._window)
        return np.where(ages < self._window, young, self._floor * self._old.weights(places))

    def find(self, points: np.ndarray) -> np.ndarray:
        """Returns for each point in [0, total) the place in whose share of the total it lies."""
        factor, places = self._factor(), np.empty(len(points), np.intp)
        share = factor * self._young.total()
        is_young = points < share
        slots = self._young.find(points[is_young] / factor)
        places[is_young] = (self._newest - (self._newest - slots) % self._window) % self._capacity
        places[~is_young] = self._old.find((points[~is_young] - share) / self._floor)
        return places

    def _ages(self, places: np.ndarray) -> np.ndarray:
        return (self._newest - places) % self._capacity

    def _factor(self) -> float:
        """By which the weights in the tree of the young have faded."""
        return float(self._fading ** (self._newest % self._window))
