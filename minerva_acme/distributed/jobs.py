"""Commands in processes of their own: here, or on Ray, on this machine or those of a cluster."""

import contextlib
import ctypes
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

from minerva_acme import thread_settings
from minerva_acme.distributed import ray_engine

_logger = logging.getLogger(__name__)

_MAX_STARTS = 3  # of a command whose machine is lost
_POLL_SECONDS = 0.1
_CONCURRENCY = 2  # `run`, and what interrupts it
_ON_PARENTS_DEATH = 1  # PR_SET_PDEATHSIG of prctl
_OPTIONS = ("-P",)  # without the current folder before everything installed


class Process(Protocol):
    """A command that runs; `subprocess.Popen` is one."""

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

    Args:
        code: What it runs.
        words: Its `sys.argv`, from the second on.
        log: What it prints is added here.
        folder: The folder that it runs in; None: this process's.
        environment: Its environment variables; None: this process's.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "ab") as file:
        return subprocess.Popen(
            [sys.executable, *_OPTIONS, "-c", code, *words],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
        )


class RayJobs:
    """Places for commands on Ray: one CPU each, and no GPU.

    Commands run in this process's folder, which all machines must share. One whose machine is lost is started
    again, on another if need be. On this machine alone Ray is started for them, and ended with them.
    """

    def __init__(self, address: str | None = None, num_places: int | None = None) -> None:
        """Starts Ray, or finds the cluster.

        Args:
            address: `auto` or `host:port` of a cluster; None: this machine.
            num_places: commands at once; by default one for each CPU.

        Raises:
            ValueError: Ray is not installed, or there is no such cluster.
        """
        self._engine = ray_engine.RayEngine(address)
        self.num_places = num_places or thread_settings.num_cores()
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
            code: what it runs.
            words: its `sys.argv`, from the second on.
            log: what it prints is added here.
        """
        return RayJob(self._ray, (code, *words), log.absolute())


class RayJob:
    """A command on Ray, a `Process`."""

    def __init__(self, ray: Any, words: tuple[str, ...], log: pathlib.Path) -> None:
        """Args: ray: the module. words: the code and its words. log: what it prints is added here."""
        self._ray = ray
        self._words = words
        self._log = log
        self._num_starts = 0
        self._is_ending = False
        self._status: int | None = None
        self._start()

    def poll(self) -> int | None:
        """Returns the exit status once it has ended; that of a signal is negative."""
        if self._status is None and self._ray.wait([self._answer], timeout=0)[0]:
            try:
                self._end(self._ray.get(self._answer))
            except self._ray.exceptions.RayTaskError as error:  # it could not be started
                self._note(f"{error.cause}")
                self._end(1)
            except self._ray.exceptions.RayError as error:
                _logger.warning("%s: its process on Ray is gone: %s", self._log.parent, error)
                if self._num_starts < _MAX_STARTS and not self._is_ending:
                    self._start()
                else:
                    self._note(f"It was lost {self._num_starts} times, the last time so: {error}")
                    self._end(-signal.SIGKILL)
        return self._status

    def send_signal(self, number: int) -> None:
        """Sends a signal to its process; one that waits for a place gives it up."""
        if self._status is not None:
            return
        if not self._ray.wait([self._ready], timeout=0)[0]:
            self._end(-number)
        else:
            self._worker.send_signal.remote(number)
            self._is_ending = True

    def wait(self) -> int:
        """Returns its exit status when it has ended."""
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
    """The actor that a command's process is a child of."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._signals: list[int] = []
        self._lock = threading.Lock()

    def ready(self) -> None:
        """Answers once it has a place."""

    def run(self, words: tuple[str, ...], log: str, folder: str) -> int:
        if not os.path.isdir(folder):
            raise ValueError(
                f"The folder {folder} must be on all machines, got none on {os.uname().nodename}. Start the "
                "sweep in a folder that they share."
            )
        code = f"from {__name__} import adopt; adopt({os.getpid()}); {words[0]}"
        with self._lock:
            self._process = start(code, words[1:], pathlib.Path(log), folder=folder)
            for number in self._signals:
                self._process.send_signal(number)
        return self._process.wait()

    def send_signal(self, number: int) -> None:
        with self._lock:
            if self._process is None:
                self._signals.append(number)
            else:
                self._process.send_signal(number)


def adopt(parent: int) -> None:
    """Makes this process one that Ctrl-C interrupts, and which the system interrupts so when its parent ends.

    Args:
        parent: the process that must be the parent.
    """
    # What Ray's processes ignore, and its threads block, their children would too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    ctypes.CDLL(None).prctl(_ON_PARENTS_DEATH, signal.SIGINT)
    if os.getppid() != parent:  # it ended before
        raise KeyboardInterrupt
