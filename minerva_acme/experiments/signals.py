"""Turns Ctrl-C, SIGTERM and SIGHUP into a request to save and stop, and reports slow environment calls."""

import contextlib
import contextvars
import logging
import math
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

from minerva_acme.environments import loop
from minerva_acme.experiments import interrupts
from minerva_acme.replay import waiting

_POLL_SECONDS = 0.5
_DEAF_SECONDS = 3.0  # a thread that has not reacted to the second request for so long never will
_LONG_CALL_SECONDS = 60.0
_EXIT_STATUS = 130  # the status that shells use for Ctrl-C
# Asks the main thread whether it handles signals. It is ignored by default, and Python runs the handlers of
# the other signals first, whose numbers are lower.
_ARE_YOU_THERE = getattr(signal, "SIGURG", None)  # None on Windows

_logger = logging.getLogger(__name__)
_keeps = contextvars.ContextVar("_keeps", default=True)  # whether runs keep what they save


class StopRequest:
    """A value that is true once the run was asked to stop."""

    def __init__(self) -> None:
        self.signal_name: str | None = None

    def __bool__(self) -> bool:
        return self.signal_name is not None


class Requests:
    """Tells stop requests apart by the times of their signals, and detects a main thread that handles none.

    Signals and the calls of their handlers cannot be matched one to one: the kernel merges pending signals of
    the same kind, Python calls a handler once for all signals that have arrived meanwhile, and a call may
    come before the watcher learns of the signal. So time distinguishes a second request from an echo of the
    first, and the main thread itself reports that it handles signals: it counts as deaf only if it was asked
    and does not answer.
    """

    def __init__(self) -> None:
        """Begins without a request."""
        self.is_said = False  # whether the first request was announced
        self._num = 0
        self._first_at = math.inf
        self._is_first_over = False  # whether later signals are no longer echoes of the first
        self._second_at = math.inf
        self._heard_at = -math.inf

    def look(self, now: float, has_arrived: bool) -> None:
        """Records what the watcher has observed.

        Args:
            now: The time in seconds, by a monotonic clock.
            has_arrived: Whether signals have arrived since the last call.
        """
        if has_arrived and self._num == 0:
            self._num, self._first_at = 1, now
        elif has_arrived and self._num == 1 and self._is_first_over:
            self._num, self._second_at = 2, now
        # This takes effect at the next call: this one may be late, and have seen an echo.
        self._is_first_over = now - self._first_at >= interrupts.SAME_REQUEST_SECONDS

    def hear(self, now: float) -> bool:
        """Records that the main thread handles signals; returns whether it should end at once."""
        if self._num < 2 or now - self._heard_at < interrupts.SAME_REQUEST_SECONDS:
            return False
        self._heard_at = now
        return True

    @property
    def is_first_unheard(self) -> bool:
        """True if the first request was not announced yet, although no echo of it is expected any more."""
        return self._is_first_over and not self.is_said

    @property
    def is_second_heard(self) -> bool:
        """True if the main thread has reacted to a second request."""
        return self._heard_at > -math.inf

    @property
    def is_second_unheard(self) -> bool:
        """True if there is a second request that the main thread has not reacted to."""
        return self._num == 2 and not self.is_second_heard

    def is_deaf(self, now: float) -> bool:
        """Returns whether the main thread has not reacted to the second request for too long."""
        return self.is_second_unheard and now - self._second_at >= _DEAF_SECONDS

    def next_look(self, now: float) -> float:
        """Returns the most seconds to wait before the next call of `look`."""
        is_open = self._num == 1 and not self._is_first_over
        end = self._first_at + interrupts.SAME_REQUEST_SECONDS if is_open else math.inf
        return max(1e-3, min(_POLL_SECONDS, end - now))


@contextlib.contextmanager
def keeping_nothing() -> Iterator[None]:
    """Says nothing of saving when a signal stops a run in the block, whose folder is removed after it."""
    token = _keeps.set(False)
    try:
        yield
    finally:
        _keeps.reset(token)


@contextlib.contextmanager
def stop_request_on_signals(
    last_checkpoint: Callable[[], str] = lambda: "unknown", *, until: contextlib.ExitStack | None = None
) -> Iterator[StopRequest]:
    """Turns the first SIGINT, SIGTERM or SIGHUP into a request and the second into KeyboardInterrupt.

    Signals within half a second of the first belong to the same request, which also ends this thread's waits
    for replay. The run may take any time to stop: only a second request ends it at once. If this thread is in
    C code, where Python cannot handle signals, a watcher thread announces the first request, and ends the
    process a few seconds after the second. The watcher also logs calls of an environment's `step` or `reset`
    that take longer than a minute.

    A SIGHUP that is ignored stays ignored, so that a run under `nohup` outlives its terminal. Outside the
    main thread signals cannot be handled, so no request is ever made.

    Args:
        last_checkpoint: Returns a description of the checkpoint that the run can be resumed from. Called
            while a signal is handled.
        until: A stack that is closed after the run's parts. From the end of the block until then everything
            is saved, so a first signal only logs a message, and a second one interrupts the closing. By
            default, the earlier signal handlers are back in place after the block.
    """
    request = StopRequest()
    with contextlib.ExitStack() as resources:
        resources.enter_context(waiting.rules(lambda: bool(request), is_alone=True))
        watcher = _Watcher(request, last_checkpoint)
        (resources if until is None else until).enter_context(watcher.watching())
        resources.callback(watcher.begin_closing)
        yield request


class _Watcher:
    """Handles signals in the main thread, and watches in another thread what blocks the main one."""

    def __init__(self, request: StopRequest, last_checkpoint: Callable[[], str]) -> None:
        self._request = request
        self._last_checkpoint = last_checkpoint
        self._requests = Requests()
        self._is_closing = False
        self._keeps = _keeps.get()
        self._signals: tuple[signal.Signals, ...] = ()
        self._arrived_name = ""  # the name of the newest signal
        self._watched = threading.get_ident()
        self._began_at = time.perf_counter()
        self._done = threading.Event()
        self._report_at: dict[float, float] = {}  # when to report open calls, by the time that they began

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watches while the block runs."""
        with contextlib.ExitStack() as resources:
            # Python writes the number of each arriving signal to it, whatever the main thread is doing.
            reader, writer = map(resources.enter_context, socket.socketpair())
            writer.setblocking(False)
            if threading.current_thread() is threading.main_thread():
                self._signals = interrupts.stop_signals()
                resources.enter_context(interrupts.sigterm_ends_forks())
                before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
                resources.callback(signal.set_wakeup_fd, before)
                for number in filter(None, (_ARE_YOU_THERE, *self._signals)):
                    resources.callback(signal.signal, number, signal.signal(number, self._handle))
            thread = threading.Thread(target=self._watch, args=(reader,), name="watcher", daemon=True)
            thread.start()
            try:
                yield
            finally:
                self._done.set()
                with contextlib.suppress(BlockingIOError):  # it is full: the watcher is about to read it
                    writer.send(b"\0")
                thread.join()

    def begin_closing(self) -> None:
        """Records that nothing is left to save; later signals are separate requests."""
        self._is_closing = True
        if not self._requests.is_second_heard:  # otherwise any further signal interrupts the closing
            self._requests = Requests()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Handles, in the main thread, all signals of a kind that have arrived since the last call."""
        del frame
        # Python may ask late, after the signal's own handler has raised: a second answer would interrupt the
        # closing.
        is_answered = number == _ARE_YOU_THERE and self._requests.is_second_heard
        if not is_answered and self._requests.hear(time.monotonic()):
            raise KeyboardInterrupt(self._ended())
        if number == _ARE_YOU_THERE:
            return
        name = signal.Signals(number).name
        if not self._is_closing and not self._request:
            self._request.signal_name = name
        self._say(name)

    def _watch(self, reader: socket.socket) -> None:
        while not self._done.is_set():
            reader.settimeout(self._requests.next_look(time.monotonic()))
            numbers = b""
            with contextlib.suppress(TimeoutError):
                numbers = reader.recv(4096)
            self._look_for_signals([number for number in numbers if number])
            self._look_for_long_calls()

    def _look_for_signals(self, numbers: Sequence[int]) -> None:
        requests, now = self._requests, time.monotonic()
        arrived = [number for number in numbers if number in self._signals]
        if arrived:
            self._arrived_name = signal.Signals(arrived[-1]).name
        requests.look(now, bool(arrived))
        if requests.is_first_unheard:
            self._say(self._arrived_name)
        if requests.is_deaf(now):
            _logger.warning("%s", self._ended())
            _end_process()
        # Not if only the signal of the last question has arrived: that would make this an endless exchange.
        if requests.is_second_unheard and (arrived or not numbers) and _ARE_YOU_THERE:
            signal.pthread_kill(self._watched, _ARE_YOU_THERE)

    def _say(self, signal_name: str) -> None:
        if self._requests.is_said:
            return
        self._requests.is_said = True
        saving = ", then saving" if self._keeps else ""
        doing = "closing the run" if self._is_closing else f"stopping after this step{saving}"
        again = "press Ctrl-C again" if signal_name == signal.SIGINT.name else "send it again"
        resumable = f" Last checkpoint: {self._last_checkpoint()}." if self._keeps else ""
        _logger.warning("%s: %s; %s to end now.%s", signal_name, doing, again, resumable)

    def _ended(self) -> str:
        if not self._keeps:
            return "stopped"
        what = "stopped before all was closed" if self._is_closing else "stopped without saving"
        return f"{what}; last checkpoint: {self._last_checkpoint()}"

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


def _end_process() -> None:
    logging.shutdown()
    os._exit(_EXIT_STATUS)


def _line(thread: int) -> str:
    """Returns the line that a thread is executing."""
    frame = sys._current_frames().get(thread)
    if frame is None:
        return "its end"
    place = traceback.extract_stack(frame, limit=1)[0]
    return f"{place.filename}:{place.lineno}, in {place.name}"
