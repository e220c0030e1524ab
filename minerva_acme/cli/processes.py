"""Runs commands in separate processes, several at a time."""

import collections
import contextlib
import functools
import os
import pathlib
import signal
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from minerva_acme.distributed import jobs as distributed_jobs
from minerva_acme.experiments import interrupts
from minerva_acme.machine import threads

_POLL_SECONDS = 0.1
_CODE = "import sys; from minerva_acme.cli import main; sys.exit(main())"  # as the installed `minerva` does


class Job(NamedTuple):
    """A command of `minerva`."""

    words: tuple[str, ...]  # after `minerva`
    log: pathlib.Path  # its output is appended here


class Watcher(Protocol):
    """Is told when jobs start and end, by their index in the sequence."""

    def started(self, index: int) -> None: ...

    def ended(self, index: int, status: int) -> None: ...

    def tick(self) -> None:
        """Called several times a second."""


Start: TypeAlias = Callable[[str, Sequence[str], pathlib.Path], distributed_jobs.Process]
"""Starts Python code with the words of its command; its output goes to a log. See `RayJobs.start`."""


def run_all(
    jobs: Sequence[Job],
    *,
    at_once: int,
    watcher: Watcher,
    start: Start | None = None,
    unwanted: Collection[int] = (),
) -> str | None:
    """Runs commands; as soon as one ends, successfully or not, the next one starts.

    Ctrl-C, SIGTERM and SIGHUP are passed on to the running commands, every time; no further command is
    started, and this returns when all have ended. Outside the main thread signals are not handled.

    Args:
        jobs: The commands.
        at_once: How many run at the same time, >= 1. If there are several, each uses one thread, unless the
            user has set OMP_NUM_THREADS.
        watcher: Told when jobs start and end.
        start: Starts a job; by default as a child of this process.
        unwanted: The indices of jobs that are not started, or are interrupted once if they are running. The
            watcher may add to them meanwhile.

    Returns:
        The name of the signal that ended the jobs early, or None.
    """
    waiting = collections.deque(enumerate(jobs))
    running: dict[int, distributed_jobs.Process] = {}
    start = start or functools.partial(distributed_jobs.start, environment=_environment(at_once))
    with _signals() as came:
        num_passed_on, interrupted = 0, set[int]()
        try:
            while running or (waiting and not came):
                while waiting and len(running) < at_once and not came:
                    index, job = waiting.popleft()
                    if index in unwanted:
                        continue
                    running[index] = start(_CODE, job.words, job.log)
                    watcher.started(index)
                # Not in the signal handler, which may interrupt a call of Ray.
                for _ in came[num_passed_on:]:
                    num_passed_on += 1
                    _interrupt(running.values())
                for index, process in list(running.items()):
                    if (status := process.poll()) is not None:
                        del running[index]
                        watcher.ended(index, status)
                watcher.tick()
                for index in running.keys() & set(unwanted) - interrupted:
                    interrupted.add(index)
                    _interrupt([running[index]])
                if running:
                    time.sleep(_POLL_SECONDS)
        finally:  # after an error some may still be running; they save first
            _interrupt(running.values())
            for process in running.values():
                process.wait()
    return signal.Signals(came[-1]).name if came else None


def _interrupt(running: Iterable[distributed_jobs.Process]) -> None:
    # A terminal sends its Ctrl-C to these processes too; training treats both as one request.
    for process in running:
        process.send_signal(signal.SIGINT)


def _environment(at_once: int) -> dict[str, str]:
    chosen_here = {setting.name for setting in threads.describe() if setting.is_default}
    if at_once > 1 and "OMP_NUM_THREADS" in chosen_here:
        return {**os.environ, "OMP_NUM_THREADS": "1"}
    return dict(os.environ)


@contextlib.contextmanager
def _signals() -> Iterator[list[int]]:
    """Collects the signals that would end this process."""
    came: list[int] = []
    with contextlib.ExitStack() as resources:
        with contextlib.suppress(ValueError):  # not the main thread
            for number in interrupts.stop_signals():
                before = signal.signal(number, lambda number, frame: came.append(number))
                resources.callback(signal.signal, number, before)
        yield came
