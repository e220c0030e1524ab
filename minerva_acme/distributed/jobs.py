"""Runs commands in separate processes: here, or with Ray on this machine or on a cluster."""

import contextlib
import logging
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

from minerva_acme.distributed import child, ray_engine
from minerva_acme.machine import threads

_logger = logging.getLogger(__name__)

_MAX_STARTS = 3  # of a command whose machine is lost
_POLL_SECONDS = 0.1
_CONCURRENCY = 2  # `run`, and the call that interrupts it
_OPTIONS = ("-P",)  # does not put the script's folder first in `sys.path`


class Process(Protocol):
    """A running command; `subprocess.Popen` is an implementation."""

    def poll(self) -> int | None: ...

    def send_signal(self, number: int, /) -> None: ...

    def wait(self) -> int: ...


def start(
    code: str,
    words: Sequence[str],
    log: pathlib.Path,
    *,
    folder: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Starts Python code as a child of this process.

    On Linux the system interrupts the child, as Ctrl-C does, when the thread that calls this ends, however it
    ends. A run then saves and ends too.

    Args:
        code: The code to run.
        words: Its `sys.argv`, from the second word on.
        log: The file that its output is appended to.
        folder: The folder that it runs in, or None for this process's.
        environment: Its environment variables, or None for this process's.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "ab") as file:
        return subprocess.Popen(
            [sys.executable, *_OPTIONS, child.__file__, str(os.getpid()), code, *words],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
        )


class RayJobs:
    """Runs commands on Ray, each with one CPU and no GPU.

    Commands run in this process's folder, which all machines must share. A command whose machine is lost is
    started again, possibly on another machine. Without a cluster, Ray is started on this machine, and stopped
    on exit.
    """

    def __init__(self, address: str | None = None, num_places: int | None = None) -> None:
        """Starts Ray, or finds the cluster.

        Args:
            address: The address of a cluster, `auto` or `host:port`, or None for this machine.
            num_places: The number of commands at a time; by default one for each CPU.

        Raises:
            ValueError: Ray is not installed, or there is no such cluster.
        """
        self._engine = ray_engine.RayEngine(address)
        self.num_places = num_places or threads.num_cores()
        try:
            self._engine.connect(self.num_places)
            import ray

            self._ray = ray
            if num_places is None:
                self.num_places = max(1, int(ray.cluster_resources().get("CPU", 1)))
        except BaseException:
            self._engine.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._engine.close()

    def start(self, code: str, words: Sequence[str], log: pathlib.Path) -> "RayJob":
        """Starts Python code, as soon as there is room.

        Args:
            code: The code to run.
            words: Its `sys.argv`, from the second word on.
            log: The file that its output is appended to.
        """
        return RayJob(self._ray, (code, *words), log.absolute())


class RayJob:
    """A command on Ray, a `Process`."""

    def __init__(self, ray: Any, words: tuple[str, ...], log: pathlib.Path) -> None:
        """Starts the command.

        Args:
            ray: The module `ray`.
            words: The code, followed by its arguments.
            log: The file that its output is appended to.
        """
        self._ray = ray
        self._words = words
        self._log = log
        self._num_starts = 0
        self._is_ending = False
        self._status: int | None = None
        self._start()

    def poll(self) -> int | None:
        """Returns the exit status, or None if the command still runs. A status is negative after a signal."""
        if self._status is None and self._ray.wait([self._answer], timeout=0)[0]:
            try:
                self._end(self._ray.get(self._answer))
            except self._ray.exceptions.RayTaskError as error:  # it could not be started
                self._note(f"{error.cause}")
                self._end(1)
            except self._ray.exceptions.RayError as error:
                _logger.warning("%s: the process on Ray is gone: %s", self._log.parent, error)
                if self._num_starts < _MAX_STARTS and not self._is_ending:
                    self._start()
                else:
                    self._note(f"The process was lost {self._num_starts} times, the last time: {error}")
                    self._end(-signal.SIGKILL)
        return self._status

    def send_signal(self, number: int) -> None:
        """Sends a signal to the process; a command that is still waiting for a place is cancelled."""
        if self._status is not None:
            return
        if not self._ray.wait([self._ready], timeout=0)[0]:
            self._end(-number)
        else:
            self._worker.send_signal.remote(number)
            self._is_ending = True

    def wait(self) -> int:
        """Waits until the command has ended, and returns its exit status."""
        while (status := self.poll()) is None:
            time.sleep(_POLL_SECONDS)
        return status

    def _start(self) -> None:
        self._num_starts += 1
        self._worker = (
            self._ray.remote(_Worker)
            .options(num_cpus=1, max_concurrency=_CONCURRENCY, scheduling_strategy="SPREAD")
            .remote()
        )
        self._ready = self._worker.ready.remote()
        self._answer = self._worker.run.remote(self._words, str(self._log), os.getcwd())

    def _end(self, status: int) -> None:
        self._status = status
        with contextlib.suppress(Exception):  # Ray may be gone
            self._ray.kill(self._worker)

    def _note(self, message: str) -> None:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with open(self._log, "a") as log:
            log.write(f"{message}\n")


class _Worker:
    """A Ray actor that is the parent of a command's process."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._signals: list[int] = []
        self._lock = threading.Lock()

    def ready(self) -> None:
        """Returns once the actor has a place."""

    def run(self, words: tuple[str, ...], log: str, folder: str) -> int:
        if not os.path.isdir(folder):
            raise ValueError(
                f"The folder {folder} must exist on all machines, but does not on {os.uname().nodename}. "
                "Start the sweep in a folder that they share."
            )
        with self._lock:
            self._process = start(words[0], words[1:], pathlib.Path(log), folder=folder)
            for number in self._signals:
                self._process.send_signal(number)
        return self._process.wait()

    def send_signal(self, number: int) -> None:
        with self._lock:
            if self._process is None:
                self._signals.append(number)
            else:
                self._process.send_signal(number)
