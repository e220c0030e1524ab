"""Processes that have imported modules when they begin: importing takes most of the time of a short one."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

# Ends like any program of `python -c`: a child leaves the loop and runs its script as `__main__`.
_PROGRAM = """# A nursery of tests.
import gc, importlib, json, os, socket, sys

requests = socket.socket(fileno=int(sys.argv[1]))
for module in sys.argv[2:]:
    importlib.import_module(module)
gc.collect()
gc.freeze()
while True:
    request, files, _, _ = socket.recv_fds(requests, 1 << 16, 1)
    if not request:
        sys.exit()
    if files:
        pid = os.fork()
        if pid == 0:
            break
        os.close(files[0])
        requests.send(json.dumps(pid).encode())
    else:
        ended, status = os.waitpid(json.loads(request), os.WNOHANG)
        requests.send(json.dumps(os.waitstatus_to_exitcode(status) if ended else None).encode())
requests.close()
os.setsid()
for stream in (1, 2):
    os.dup2(files[0], stream)
os.close(files[0])
script, *sys.argv[1:] = json.loads(request)
exec(script)
"""


class Nursery:
    """A process that imports modules once, and is forked for each script."""

    def __init__(self, *modules: str) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-u", "-X", "faulthandler", "-c", _PROGRAM, str(theirs.fileno()), *modules],
                pass_fds=[theirs.fileno()],
            )

    def start(self, script: str, *arguments: str) -> "Child":
        """Starts a script in a session of its own, which has these arguments behind `sys.argv[0]`."""
        reading, writing = os.pipe()
        socket.send_fds(self._requests, [json.dumps([script, *arguments]).encode()], [writing])
        os.close(writing)
        return Child(self, json.loads(self._requests.recv(1 << 16)), reading)

    def poll(self, pid: int) -> int | None:
        """Returns the status of a script that has ended, once, as `subprocess` tells it."""
        self._requests.send(json.dumps(pid).encode())
        status: int | None = json.loads(self._requests.recv(1 << 16))
        return status

    def close(self) -> None:
        self._requests.close()
        self._process.wait()


class Child:
    """A process of a nursery, with a part of what `subprocess.Popen` has."""

    def __init__(self, nursery: Nursery, pid: int, stdout: int) -> None:
        self._nursery, self.pid, self._status = nursery, pid, None
        self.stdout = os.fdopen(stdout)  # and stderr

    def communicate(self) -> tuple[int, str]:
        """Waits for the end; returns the status and what was said."""
        with self.stdout:
            said = self.stdout.read()
        return self.wait(), said

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        if self._status is None:  # otherwise the number may be another's
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float = float("inf")) -> int:
        deadline = time.monotonic() + timeout
        while self._status is None:
            self._status = self._nursery.poll(self.pid)
            if self._status is None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            time.sleep(0.01)
        return self._status
