"""Ctrl-C and SIGTERM as a request to save and stop."""

import contextlib
import logging
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

# `timeout` and other supervisors signal a process and its group, so the process gets the signal twice.
_SAME_REQUEST_SECONDS = 0.5

_logger = logging.getLogger(__name__)


class StopRequest:
    """True once the run was asked to stop."""

    def __init__(self) -> None:
        self.signal_name: str | None = None
        self.made_at = 0.0  # by the monotonic clock

    def __bool__(self) -> bool:
        return self.signal_name is not None


@contextlib.contextmanager
def stop_request_on_signals() -> Iterator[StopRequest]:
    """Turns the first SIGINT or SIGTERM into a request and the second into KeyboardInterrupt.

    A signal within half a second of the first belongs to the same request.

    Outside the main thread signals cannot be handled, so no request is ever made.
    """
    request = StopRequest()

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        if request:
            if time.monotonic() - request.made_at < _SAME_REQUEST_SECONDS:
                return
            raise KeyboardInterrupt
        request.made_at = time.monotonic()
        request.signal_name = signal.Signals(number).name
        _logger.warning("%s: saving and stopping. Again to stop without saving.", request.signal_name)

    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
