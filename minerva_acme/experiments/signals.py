"""Ctrl-C and SIGTERM as a request to save and stop."""

import contextlib
import logging
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_logger = logging.getLogger(__name__)


class StopRequest:
    """Whether somebody asked the run to stop."""

    def __init__(self) -> None:
        self.signal_name: str | None = None

    def __bool__(self) -> bool:
        return self.signal_name is not None


@contextlib.contextmanager
def stop_request_on_signals() -> Iterator[StopRequest]:
    """Turns the first SIGINT or SIGTERM into a request and the second into KeyboardInterrupt.

    Outside the main thread signals cannot be handled, and the request is never made.
    """
    request = StopRequest()

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        if request:
            raise KeyboardInterrupt
        request.signal_name = signal.Signals(number).name
        _logger.warning("%s: saving and stopping. Once more to stop without saving.", request.signal_name)

    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
