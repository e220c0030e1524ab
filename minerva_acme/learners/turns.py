"""Turns of threads at what only one may touch at a time, in the order in which they ask."""

import contextlib
import threading
from collections.abc import Iterator


class Turns:
    """A fair lock: threads get it in the order in which they asked.

    So a learner that steps without a pause and readers that ask without a pause alternate. With
    `threading.Lock`, the thread that releases it usually gets it again. A thread that has its turn may take
    the lock again within it.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._next = 0  # the number that the next thread draws
        self._called = 0  # the number whose turn it is
        self._left: set[int] = set()  # numbers of threads that stopped waiting
        self._owner: int | None = None  # the thread that has its turn

    @contextlib.contextmanager
    def take(self) -> Iterator[None]:
        """Waits for a turn, which lasts as long as the block."""
        if self._owner == threading.get_ident():
            yield
            return
        with self._condition:
            number, self._next = self._next, self._next + 1
            try:
                self._condition.wait_for(lambda: self._called == number)
            except BaseException:  # as by Ctrl-C
                self._left.add(number)
                self._call()
                raise
            self._owner = threading.get_ident()
        try:
            yield
        finally:
            with self._condition:
                self._owner = None
                self._called += 1
                self._call()

    def _call(self) -> None:
        while self._called in self._left:
            self._left.remove(self._called)
            self._called += 1
        self._condition.notify_all()
