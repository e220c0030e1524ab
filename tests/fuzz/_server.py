"""A process that tries cases of commands, each in a child of its own with limits to time and memory.

Python and torch are loaded once, by a process that forks the others: it alone has no threads. A part that
uses it is a file with

    def prepare(folder: pathlib.Path) -> None: ...                   # once
    def try_case(folder: pathlib.Path, seed: int) -> Outcome: ...    # calls `call`, and `judge`s the end
"""

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import pathlib
import pkgutil
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from typing import Any, NamedTuple

from minerva_acme import cli

_SECONDS = 60.0  # a command takes less than one
_STOP_SECONDS = 20.0  # for Ctrl-C to end it
_MEMORY_BYTES = 12 << 30  # of addresses, of which Reverb's and torch's threads take most
_FILE_BYTES = 1 << 28
_ROOT = pathlib.Path(__file__).resolve().parents[2]


class Outcome(NamedTuple):
    """How a case ended."""

    name: str  # "ran", "refused", or "fault" if that is not as it must be
    story: str


class Server:
    """The process that tries the cases of a part, from outside."""

    def __init__(self, part: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix=f"fuzz-{part}-")
        command = [sys.executable, "-m", "tests.fuzz._server", part, self._folder.name]
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        self._process = subprocess.Popen(
            command,
            cwd=_ROOT,
            env=os.environ | threads,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def check(self, seed: int) -> str:
        """Tries a case; returns how it ended. Raises AssertionError if that is not as it must be."""
        assert self._process.stdin and self._process.stdout
        print(seed, file=self._process.stdin, flush=True)
        outcome, found = json.loads(
            self._process.stdout.readline() or '["fault", "the server of cases died"]'
        )
        assert outcome != "fault", found
        return str(outcome)

    def close(self) -> None:
        self._process.communicate()  # it ends where its input does
        self._folder.cleanup()


@functools.cache
def server_of(part: str) -> Server:
    """The server of a part, which is closed when this process ends."""
    server = Server(part)
    atexit.register(server.close)
    return server


def serve(part: str, folder: pathlib.Path) -> None:
    """Reads seeds and writes what became of them, both by lines."""
    # Once, before any fork; torch and others import much only when they are first used.
    for name in ("gymnasium.envs.classic_control", "torch._dynamo", "minerva_acme.loggers.tensorboard"):
        importlib.import_module(name)
    for module in pkgutil.iter_modules(cli.__path__, f"{cli.__name__}."):
        with contextlib.suppress(ModuleNotFoundError):  # of an extra that is not installed
            importlib.import_module(module.name)
    importlib.import_module("minerva_acme.plotting.figure")
    cases = importlib.import_module(f"{__package__}.{part}")
    assert len(os.listdir("/proc/self/task")) == 1, "a fork would lose the locks that other threads hold"
    gc.freeze()
    answers = os.dup(1)  # commands print, too
    os.dup2(2, 1)
    cases.prepare(folder)
    for line in sys.stdin:
        try:
            answer = cases.try_case(folder, int(line))
        except Exception:
            answer = "fault", traceback.format_exc()
        os.write(answers, (json.dumps(answer) + "\n").encode())


def judge(status: int | str, printed: str, story: str) -> Outcome:
    """Returns the outcome of a command: it has run, or refused in one sentence, or is at fault."""
    if status == 0:
        return Outcome("ran", story)
    said = printed.rpartition("minerva: ")[2].strip()
    if status in (1, 2) and said and "\n" not in said and len(said) < 5000 and "weights_only" not in said:
        return Outcome("refused", f"{story}: {said}")
    return Outcome("fault", f"Status {status} after {story}.\n{printed[-4000:]}")


def call(
    output: pathlib.Path, arguments: Sequence[Any], place: pathlib.Path | None = None
) -> tuple[int | str, str]:
    """Calls `minerva` in a process of its own; returns its status, or how it ended, and what it printed.

    Args:
        output: The file for what it prints.
        arguments: The arguments of `minerva`.
        place: The folder where it is called; None for the one where this process is.
    """
    child = os.fork()
    if not child:
        _end_with(output, list(map(str, arguments)), place)
    deadline, is_late = time.monotonic() + _SECONDS, False
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        if time.monotonic() > deadline and not is_late:
            is_late = True
            os.kill(child, signal.SIGINT)
        if time.monotonic() > deadline + _STOP_SECONDS:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "hang", output.read_text(errors="replace")
        time.sleep(0.005)
    code = os.waitstatus_to_exitcode(status)
    if is_late and code in (0, 130):
        return "stopped", output.read_text(errors="replace")
    return (signal.Signals(-code).name if code < 0 else code), output.read_text(errors="replace")


def _end_with(output: pathlib.Path, arguments: list[str], place: pathlib.Path | None) -> None:
    status = 70  # of what is not handled
    try:
        if place is not None:
            os.chdir(place)
        os.setsid()  # what it starts is of its group
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with open(output, "wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_FSIZE, (_FILE_BYTES, _FILE_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        import torch

        from minerva_acme.cli import main

        torch.set_num_threads(1)
        status = main(arguments)
    except SystemExit as exit_:
        status = exit_.code if isinstance(exit_.code, int) else 70
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        serve(sys.argv[1], pathlib.Path(sys.argv[2]))
