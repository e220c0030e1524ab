"""Commands in processes of their own, several at a time."""

import collections
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import NamedTuple, Protocol

from minerva_acme import thread_settings
from minerva_acme.experiments import interrupts

_POLL_SECONDS = 0.1
_CODE = "import sys; from minerva_acme.cli import main; sys.exit(main())"  # as the installed `minerva` does
_OPTIONS = ("-P",)  # without the current folder before everything installed


class Job(NamedTuple):
    """A command of `minerva`."""

    words: tuple[str, ...]  # behind `minerva`
    log: pathlib.Path  # what it prints is added here


class Watcher(Protocol):
    """Is told what becomes of jobs, each by its place in the sequence."""

    def started(self, index: int) -> None: ...

    def ended(self, index: int, status: int) -> None: ...

    def tick(self) -> None:
        """Called several times a second."""


class Process(Protocol):
    """A command that runs; `subprocess.Popen` is one."""

    def poll(self) -> int | None: ...

    def send_signal(self, number: int, /) -> None: ...

    def wait(self) -> int: ...


class Places(Protocol):
    """Where commands run; see `distributed.RayJobs`."""

    def start(self, code: str, words: Sequence[str], log: pathlib.Path) -> Process: ...


class _Here:
    """As children of this process."""

    def __init__(self, at_once: int) -> None:
        self._environment = _environment(at_once)

    def start(self, code: str, words: Sequence[str], log: pathlib.Path) -> Process:
        log.parent.mkdir(parents=True, exist_ok=True)
        with open(log, "ab") as file:
            return subprocess.Popen(
                [sys.executable, *_OPTIONS, "-c", code, *words],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=self._environment,
            )


class _Request:
    signal_name: str | None = None

    def __init__(self) -> None:
        self.signals: collections.deque[int] = collections.deque()  # that were not passed on yet


def run_all(
    jobs: Sequence[Job], *, at_once: int, watcher: Watcher, places: Places | None = None
) -> str | None:
    """Runs commands, the next one as soon as one has ended, however that ended.

    Ctrl-C, SIGTERM and SIGHUP are passed on to those that run, each time they come; no other is started, and
    this returns when all have ended. Outside the main thread signals are not handled.

    Args:
        jobs: the commands.
        at_once: how many run at the same time, >= 1. Of several, each computes with one thread, unless the
            user has set OMP_NUM_THREADS.
        watcher: told of starts and ends.
        places: where they run; None: here, as children of this process.

    Returns:
        The name of the signal that ended it early, if one did.
    """
    waiting = collections.deque(enumerate(jobs))
    running: dict[int, Process] = {}
    places = places or _Here(at_once)
    with _requests() as request, _none_left(running):
        while running or (waiting and not request.signal_name):
            while waiting and len(running) < at_once and not request.signal_name:
                index, job = waiting.popleft()
                running[index] = places.start(_CODE, job.words, job.log)
                watcher.started(index)
            # Not by the handler: it may come amid a call of Ray's.
            while request.signals:
                request.signals.popleft()
                for process in running.values():
                    process.send_signal(signal.SIGINT)
            for index, process in list(running.items()):
                if (status := process.poll()) is not None:
                    del running[index]
                    watcher.ended(index, status)
            watcher.tick()
            if running:
                time.sleep(_POLL_SECONDS)
    return request.signal_name


def _environment(at_once: int) -> dict[str, str]:
    chosen_here = {setting.name for setting in thread_settings.describe() if setting.is_default}
    if at_once > 1 and "OMP_NUM_THREADS" in chosen_here:
        return {**os.environ, "OMP_NUM_THREADS": "1"}
    return dict(os.environ)


@contextlib.contextmanager
def _requests() -> Iterator[_Request]:
    """Notes signals, to be passed on to the processes that run, as Ctrl-C.

    A terminal sends its Ctrl-C to them too. Training takes both for one request.
    """
    request = _Request()

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        request.signal_name = signal.Signals(number).name
        request.signals.append(number)

    with contextlib.ExitStack() as resources:
        with contextlib.suppress(ValueError):  # not the main thread
            for number in interrupts.stop_signals():
                resources.callback(signal.signal, number, signal.signal(number, handle))
        yield request


@contextlib.contextmanager
def _none_left(running: Mapping[int, Process]) -> Iterator[None]:
    """Ends what still runs if an error comes out of the block; it saves first."""
    try:
        yield
    finally:
        for process in running.values():
            process.send_signal(signal.SIGINT)
        for process in running.values():
            process.wait()
