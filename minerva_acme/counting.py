"""Counters that the parts of a run share."""

import contextlib
import numbers
import threading
from collections.abc import Iterator
from typing import Self

from minerva_acme import core

Number = int | float


class Counter(core.Saveable):
    """Adds up named numbers; safe to use from several threads.

    Counters form a tree. A child holds no counts: it adds to its parent's counts, with its prefix before
    each name, and sees all of them.

        root = Counter()
        actor = Counter(root, "actor")
        actor.increment(steps=1)  # {"actor_steps": 1}, and the same from root.get_counts()

    Since only the root holds counts, only the root needs to be saved. A child's state is empty, so that
    nothing is counted twice when both are restored.
    """

    def __init__(self, parent: Self | None = None, prefix: str = "") -> None:
        """Initialises the counter.

        Args:
            parent: The counter that holds the counts; None makes a root.
            prefix: The prefix of this counter's names, which distinguishes it from other children.
        """
        self._root: Counter = self if parent is None else parent._root
        self._prefix: str = ("" if parent is None else parent._prefix) + (f"{prefix}_" if prefix else "")
        self._counts: dict[str, Number] = {}  # only the root's counts and lock are used
        self._lock = threading.Lock()

    def tick(self, name: str) -> None:
        """Adds 1 to a count, five times faster than `increment`, for use in every step."""
        root, full_name = self._root, self._prefix + name
        with root._lock:
            root._counts[full_name] = root._counts.get(full_name, 0) + 1

    def increment(self, **counts: Number) -> dict[str, Number]:
        """Adds to the counts, either all or none of them, and returns them as `get_counts` does.

        Raises:
            ValueError: A count is not a number.
        """
        root, prefix = self._root, self._prefix
        plain = {prefix + name: _to_plain(prefix + name, value) for name, value in counts.items()}
        with root._lock:
            for name, value in plain.items():
                root._counts[name] = root._counts.get(name, 0) + value
            return dict(root._counts)

    @contextlib.contextmanager
    def at_least_once(self, name: str) -> Iterator[None]:
        """Adds 1 to a count after a block that has not raised it itself, unless the block raises an error."""
        full_name = self._prefix + name
        before = self.get_count(full_name)
        yield
        if self.get_count(full_name) == before:
            self.tick(name)

    def get_counts(self) -> dict[str, Number]:
        """Returns a copy of all the tree's counts, each under its full name."""
        with self._root._lock:
            return dict(self._root._counts)

    def get_count(self, name: str) -> Number:
        """Returns one of the counts by its full name, 0 if there is none yet; fast enough for each step."""
        return self._root._counts.get(name, 0)

    def get_steps_key(self) -> str:
        """Returns the full name of this counter's `steps`, for the logs."""
        return self._prefix + "steps"

    def save(self) -> core.State:
        return self.get_counts() if self._root is self else {}

    def restore(self, state: core.State) -> None:
        if self._root is not self:
            return
        plain = {name: _to_plain(name, value) for name, value in state.items()}
        with self._lock:
            self._counts = plain


def _to_plain(name: str, value: object) -> Number:
    if type(value) is int:  # the usual case; checking abstract classes takes ten times as long
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    raise ValueError(f"Count `{name}` must be a number, got {value!r} of type {type(value).__name__}.")
