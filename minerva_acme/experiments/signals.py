"""Ctrl-C and SIGTERM as a request to save and stop; calls of an environment that take long."""

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from types import FrameType

from minerva_acme.environments import loop
from minerva_acme.replay import waiting

# `timeout` and other supervisors signal a process and its group, so the process gets the signal twice.
_SAME_REQUEST_SECONDS = 0.5
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_POLL_SECONDS = 0.5
_DEAF_SECONDS = 3.0  # after which a thread that does not hear of the second signal will not
_LONG_CALL_SECONDS = 60.0
_EXIT_STATUS = 130  # as shells have it for Ctrl-C

_logger = logging.getLogger(__name__)


class StopRequest:
    """True once the run was asked to stop."""

    def __init__(self) -> None:
        self.signal_name: str | None = None
        self.made_at = 0.0  # by the monotonic clock
        self.num_handled = 0  # signals

    def __bool__(self) -> bool:
        return self.signal_name is not None


@contextlib.contextmanager
def stop_request_on_signals(
    last_checkpoint: Callable[[], str] = lambda: "unknown",
) -> Iterator[StopRequest]:
    """Turns the first SIGINT or SIGTERM into a request and the second into KeyboardInterrupt.

    A signal within half a second of the first belongs to the same request, which ends this thread's waits
    for replay too. Where this thread is in C code, which does not hear of signals, another one says that the
    first has come, and ends the process a few seconds after the second. That one also says where `step` or
    `reset` of an environment takes longer than a minute.

    Outside the main thread signals cannot be handled, so no request is ever made.

    Args:
        last_checkpoint: says what the run can be resumed from. Called while a signal is handled.
    """
    request = StopRequest()

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        request.num_handled += 1
        if request:
            if time.monotonic() - request.made_at < _SAME_REQUEST_SECONDS:
                return
            raise KeyboardInterrupt(_stopped(last_checkpoint))
        request.made_at = time.monotonic()
        request.signal_name = signal.Signals(number).name
        _say_noted(request.signal_name, last_checkpoint)

    with contextlib.ExitStack() as resources:
        resources.enter_context(waiting.alone(lambda: bool(request)))
        arrived = None
        if threading.current_thread() is threading.main_thread():
            arrived = resources.enter_context(_arriving_signals())
            for number in _SIGNALS:
                resources.callback(signal.signal, number, signal.signal(number, handle))
        watcher = _Watcher(request, arrived, last_checkpoint)
        resources.callback(watcher.stop)
        watcher.start()
        yield request


def _say_noted(signal_name: str, last_checkpoint: Callable[[], str]) -> None:
    _logger.warning(
        "%s: stopping after this step, then saving; press Ctrl-C again to end now. Last checkpoint: %s.",
        signal_name,
        last_checkpoint(),
    )


def _stopped(last_checkpoint: Callable[[], str]) -> str:
    return f"stopped without saving; last checkpoint: {last_checkpoint()}"


@contextlib.contextmanager
def _arriving_signals() -> Iterator[socket.socket]:
    """Gives a socket that the signals that arrive can be read from, whatever the main thread is doing."""
    reader, writer = socket.socketpair()
    with reader, writer:
        reader.setblocking(False)
        writer.setblocking(False)
        before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        try:
            yield reader
        finally:
            signal.set_wakeup_fd(before)


class _Watcher(threading.Thread):
    """Looks twice a second at what the thread that made it is kept by."""

    def __init__(
        self, request: StopRequest, arrived: socket.socket | None, last_checkpoint: Callable[[], str]
    ) -> None:
        super().__init__(name="watcher", daemon=True)
        self._request = request
        self._arrived = arrived
        self._last_checkpoint = last_checkpoint
        self._watched = threading.get_ident()
        self._began_at = time.perf_counter()
        self._done = threading.Event()
        self._num_handled = 0
        self._unheard: list[float] = []  # when the signals came that the thread has not heard of
        self._has_said = False
        self._report_at: dict[float, float] = {}  # of the open calls, by when they began

    def stop(self) -> None:
        self._done.set()
        self.join()

    def run(self) -> None:
        while not self._done.wait(_POLL_SECONDS):
            self._look_for_signals()
            self._look_for_long_calls()

    def _look_for_signals(self) -> None:
        if self._arrived is None:
            return
        now = time.monotonic()
        if self._request.num_handled != self._num_handled:
            self._num_handled = self._request.num_handled
            self._unheard.clear()
        if self._unheard:
            already = 1 if self._request else 0
            if already + len(self._unheard) > 1 and now - self._unheard[-1] >= _DEAF_SECONDS:
                _logger.warning("%s", _stopped(self._last_checkpoint))
                logging.shutdown()
                os._exit(_EXIT_STATUS)
            if not already and not self._has_said:
                self._has_said = True
                _say_noted("Ctrl-C", self._last_checkpoint)
        with contextlib.suppress(BlockingIOError):
            has_come = bool(set(self._arrived.recv(4096)) & set(_SIGNALS))
            if has_come and self._request.num_handled == self._num_handled:
                self._unheard.append(now)

    def _look_for_long_calls(self) -> None:
        now = time.perf_counter()
        open_calls = [call for call in loop.open_calls() if call.started_at >= self._began_at]
        self._report_at = {
            call.started_at: self._report_at.get(call.started_at, call.started_at + _LONG_CALL_SECONDS)
            for call in open_calls
        }
        for method, started_at in open_calls:
            if now >= self._report_at[started_at]:
                seconds = now - started_at
                self._report_at[started_at] = now + seconds
                _logger.warning(
                    "`%s` of the environment has not returned for %.0f s; the run is at %s.",
                    method,
                    seconds,
                    _line(self._watched),
                )


def _line(thread: int) -> str:
    """The line that a thread is at."""
    frame = sys._current_frames().get(thread)
    if frame is None:
        return "its end"
    place = traceback.extract_stack(frame, limit=1)[0]
    return f"{place.filename}:{place.lineno}, in {place.name}"
