"""Waits for a store: they say what for, and end where they are asked to or could never end."""

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import TypeVar

from minerva_acme.replay import base

T = TypeVar("T")

SLICE_SECONDS = 0.5
"""How long Ctrl-C or another thread may have to wait, where what waits does not hear of it."""

_REPORT_SECONDS = 10.0  # after which a wait says what it is for; then at ever longer intervals
_MAX_REPORT_SECONDS = 600.0  # of these
# How long nothing may happen where a rate limiter makes the only thread wait: items that another thread has
# taken ahead may still be on their way.
_STILL_SECONDS = 2.0

_logger = logging.getLogger(__name__)


class _Thread(threading.local):
    should_stop: Callable[[], bool] | None = None  # set while the thread may be asked to stop
    is_alone = False


_this_thread = _Thread()


@contextlib.contextmanager
def alone(should_stop: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Says that nobody but this thread writes and samples: nothing ends its wait for a rate limiter.

    Such a wait is a ReplayDeadlock after a moment. And any wait is a ReplayStopped once the thread is asked
    to stop. Of several of these around each other the inner one counts.

    Args:
        should_stop: asked twice a second in each wait of this thread.
    """
    with _stoppable(should_stop, is_alone=True):
        yield


@contextlib.contextmanager
def stoppable(should_stop: Callable[[], bool]) -> Iterator[None]:
    """Makes any wait of this thread a ReplayStopped once it is asked to stop; others write and sample too.

    Args:
        should_stop: asked twice a second in each wait.
    """
    with _stoppable(should_stop, is_alone=False):
        yield


@contextlib.contextmanager
def _stoppable(should_stop: Callable[[], bool], *, is_alone: bool) -> Iterator[None]:
    before = _this_thread.should_stop, _this_thread.is_alone
    _this_thread.should_stop, _this_thread.is_alone = should_stop, is_alone
    try:
        yield
    finally:
        _this_thread.should_stop, _this_thread.is_alone = before


class Wait:
    """A wait in slices: `while not is_done(seconds=wait.slice()): wait.go_on(reason)`."""

    def __init__(self, timeout_seconds: float | None = None) -> None:
        """Begins now. Args: timeout_seconds: how long it may take; None for as long as it takes."""
        self._start = time.monotonic()
        self._deadline = math.inf if timeout_seconds is None else self._start + timeout_seconds
        self._next_report = self._start + _REPORT_SECONDS
        self._reason = ""
        self._still_since = self._start

    def slice(self) -> float:
        """Returns how long to wait before the next call of `go_on`, in seconds."""
        return max(0.0, min(SLICE_SECONDS, self._deadline - time.monotonic()))

    def go_on(self, reason: base.ReplayTimeout) -> None:
        """Returns if the wait is to go on.

        Args:
            reason: what is waited for.

        Raises:
            ReplayTimeout: the reason, once the time is over.
            ReplayStopped: the thread is asked to stop.
            ReplayDeadlock: the wait cannot end.
        """
        now = time.monotonic()
        if now >= self._deadline:
            raise reason
        if _this_thread.should_stop is not None:
            if _this_thread.should_stop():
                raise base.ReplayStopped(f"Asked to stop while waiting: {reason}")
        if _this_thread.is_alone:
            # Whatever happens in a table changes the counts that the reason tells.
            if not reason.held_back or str(reason) != self._reason:
                self._reason, self._still_since = str(reason), now
            elif now - self._still_since >= _STILL_SECONDS:
                raise base.ReplayDeadlock(
                    f"{reason} That would take for ever: nobody else writes to it or samples from it."
                )
        if now >= self._next_report:
            waited = now - self._start
            _logger.warning("%s %.0f s so far.", reason, waited)
            self._next_report = now + min(waited, _MAX_REPORT_SECONDS)


def call(function: Callable[[], T], reason: base.ReplayTimeout, timeout_seconds: float | None = None) -> T:
    """Calls what blocks in C++, where neither Ctrl-C nor a limit reaches it, and waits for its result.

    Args:
        function: to be called; where the wait ends early it stays behind in a daemon thread.
        reason: what is waited for.
        timeout_seconds: how long it may take; None for as long as it takes.

    Raises:
        ReplayTimeout: as `Wait.go_on`; and whatever the function raises.
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
