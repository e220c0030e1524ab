"""Waiting for a store. Waits report their reason, and end on request or if they would never end."""

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import NamedTuple, TypeVar

from minerva_acme.replay import base

T = TypeVar("T")

SLICE_SECONDS = 0.5
"""The longest time until Ctrl-C or another thread takes effect, if a wait cannot be interrupted."""

_REPORT_SECONDS = 10.0  # after which a wait logs its reason, then at ever longer intervals
_MAX_REPORT_SECONDS = 600.0  # the longest such interval
# How long nothing may happen while a rate limiter makes the only thread wait: items that another thread has
# prefetched may still be on their way.
_STILL_SECONDS = 2.0

_logger = logging.getLogger(__name__)


class _Rules(NamedTuple):
    should_stop: Callable[[], bool] = lambda: False
    is_alone: bool = False
    tells_of_limiters: bool = True


class _Thread(threading.local):
    rules = _Rules()


_this_thread = _Thread()


@contextlib.contextmanager
def rules(
    should_stop: Callable[[], bool] = lambda: False, *, is_alone: bool = False, tells_of_limiters: bool = True
) -> Iterator[None]:
    """Sets the rules of this thread's waits in the block. Of nested blocks, the inner one applies.

    Args:
        should_stop: Called twice a second in each wait, which raises ReplayStopped once it returns true.
        is_alone: Whether this is the only thread that writes and samples. Nothing could then end a wait for
            a rate limiter, so it soon raises ReplayDeadlock.
        tells_of_limiters: Whether to log long waits for a rate limiter; other long waits are always logged.
    """
    before, _this_thread.rules = _this_thread.rules, _Rules(should_stop, is_alone, tells_of_limiters)
    try:
        yield
    finally:
        _this_thread.rules = before


class Wait:
    """A wait in slices: `while not is_done(seconds=wait.slice()): wait.go_on(reason)`."""

    def __init__(self, timeout_seconds: float | None = None) -> None:
        """Starts the wait.

        Args:
            timeout_seconds: The time limit; None for no limit.
        """
        self._start = time.monotonic()
        self._deadline = math.inf if timeout_seconds is None else self._start + timeout_seconds
        self._next_report = self._start + _REPORT_SECONDS
        self._reason = ""
        self._still_since = self._start

    def slice(self) -> float:
        """Returns the time to wait before the next call of `go_on`, in seconds."""
        return max(0.0, min(SLICE_SECONDS, self._deadline - time.monotonic()))

    def go_on(self, reason: base.ReplayTimeout) -> None:
        """Returns if the wait should continue, and raises an error otherwise.

        Args:
            reason: The reason for the wait.

        Raises:
            ReplayTimeout: The time is over; this is `reason` itself.
            ReplayStopped: The thread is asked to stop.
            ReplayDeadlock: The wait cannot end.
        """
        now, own = time.monotonic(), _this_thread.rules
        if now >= self._deadline:
            raise reason
        if own.should_stop():
            raise base.ReplayStopped(f"Asked to stop while waiting: {reason}")
        if own.is_alone:
            # Everything that happens in a table changes the counts in the reason.
            if not reason.held_back or str(reason) != self._reason:
                self._reason, self._still_since = str(reason), now
            elif now - self._still_since >= _STILL_SECONDS:
                raise base.ReplayDeadlock(f"{reason} This would wait forever: nothing else uses the table.")
        if now >= self._next_report and (own.tells_of_limiters or not reason.held_back):
            waited = now - self._start
            _logger.warning("%s Waited %.0f s so far.", reason, waited)
            self._next_report = now + min(waited, _MAX_REPORT_SECONDS)


def call(function: Callable[[], T], reason: base.ReplayTimeout, timeout_seconds: float | None = None) -> T:
    """Calls a function that blocks in C++, where Ctrl-C and time limits have no effect; returns its result.

    Args:
        function: The function to call. If the wait ends early, it keeps running in a daemon thread.
        reason: The reason for the wait.
        timeout_seconds: The time limit; None for no limit.

    Raises:
        ReplayTimeout: As in `Wait.go_on`. Errors of the function are raised, too.
    """
    answer: futures.Future[T] = futures.Future()

    def target() -> None:
        try:
            answer.set_result(function())
        except BaseException as error:
            answer.set_exception(error)

    wait = Wait(timeout_seconds)
    threading.Thread(target=target, name="replay-call", daemon=True).start()
    while not futures.wait([answer], wait.slice()).done:
        wait.go_on(reason)
    return answer.result()
