"""The signals that ask a run to stop, and how they end code that cannot stop and save."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

SAME_REQUEST_SECONDS = 0.5
"""Signals within this time are one request: supervisors such as `timeout` signal a process and its group."""

_before_sigterm: list[Any] = []  # the handlers of SIGTERM before each of the open blocks


def stop_signals() -> tuple[signal.Signals, ...]:
    """Returns SIGINT, SIGTERM and SIGHUP, without SIGHUP if it is ignored, for example under `nohup`."""
    numbers = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # not on Windows
        numbers.append(signal.SIGHUP)
    return tuple(numbers)


@contextlib.contextmanager
def like_ctrl_c() -> Iterator[None]:
    """Makes SIGTERM and SIGHUP raise KeyboardInterrupt in the block, as Ctrl-C does.

    Files, processes and servers are then closed, which would not happen by default. Signals that are ignored
    or have a handler are left alone, and so are handlers that are set in the block. Outside the main thread
    this does nothing.
    """
    last_at = float("-inf")

    def interrupt(number: int, frame: FrameType | None) -> None:
        del number, frame
        nonlocal last_at
        before, last_at = last_at, time.monotonic()
        if last_at - before >= SAME_REQUEST_SECONDS:
            raise KeyboardInterrupt

    is_main = threading.current_thread() is threading.main_thread()
    numbers = [n for n in stop_signals() if is_main and signal.getsignal(n) is signal.SIG_DFL]
    with sigterm_ends_forks():
        for number in numbers:
            signal.signal(number, interrupt)
        try:
            yield
        finally:
            for number in numbers:
                if signal.getsignal(number) is interrupt:
                    signal.signal(number, signal.SIG_DFL)


def ignore() -> None:
    """Ignores the signals from now on, in a program that knows its exit status and only has to exit."""
    if threading.current_thread() is threading.main_thread():
        for number in stop_signals():
            signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def sigterm_ends_forks() -> Iterator[None]:
    """Gives processes that are forked in the block the SIGTERM handler from before the block.

    Parents, above all `multiprocessing`, end their children with SIGTERM and wait until they have ended. The
    children would inherit a handler that does not end them, and write signals to the parent's wakeup fd.
    """
    _before_sigterm.append(signal.getsignal(signal.SIGTERM) or signal.SIG_DFL)  # None: set by C code
    try:
        yield
    finally:
        _before_sigterm.pop()


def _after_fork() -> None:
    if _before_sigterm:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, _before_sigterm[0])


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
