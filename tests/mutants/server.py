"""Runs pytest on a copy of the tree, each time in a fork of a process that has imported torch already.

Half of a short run would go into imports that no mutant changes. A process of this module is given a copy and
the names of those modules, and reads requests from its input, one a line; it answers each with a line that
holds pytest's status.
"""

import contextlib
import importlib
import json
import os
import pathlib
import signal
import sys
import time
import traceback
import warnings

WRONG_TREE = 70  # no status of pytest's
TIMED_OUT = 71  # likewise

_PACKAGE = "minerva_acme"
UNCHANGED = ("torch", "numpy", "tree", "dm_env", "gymnasium", "hypothesis.strategies", "pytest")
_POLL_SECONDS = 0.02


def main() -> None:
    copy = pathlib.Path(sys.argv[1]).resolve()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever an import prints is no answer
    importlib.import_module(_PACKAGE)  # sets the environment that torch reads when it loads
    for name in sys.argv[2:]:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for name in _own_modules():  # to be imported anew, with a mistake in one
        del sys.modules[name]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # by way of `finally`, which ends what runs
    for line in sys.stdin:
        print(_run(copy, **json.loads(line)), file=answers, flush=True)


def _run(copy: pathlib.Path, *, arguments: list[str], output: str, seconds: float) -> int:
    """The status of pytest with these arguments; what it prints goes into the file `output`."""
    with warnings.catch_warnings(action="ignore"):  # that a fork may lock up: torch has no thread yet
        pid = os.fork()
    if pid == 0:
        status = WRONG_TREE
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.setsid()  # so that what a test starts can be ended too
            file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for descriptor in (1, 2):
                os.dup2(file, descriptor)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            status = _test(copy, arguments)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(status)
    status = TIMED_OUT
    try:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found, code = os.waitpid(pid, os.WNOHANG)
            if found:
                status = os.waitstatus_to_exitcode(code)
                break
            time.sleep(_POLL_SECONDS)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    if status == TIMED_OUT:
        os.waitpid(pid, 0)
    return status


def _test(copy: pathlib.Path, arguments: list[str]) -> int:
    import pytest

    status = int(pytest.main(arguments))
    # The editable install leads to the original: a run on that would say nothing of the copy.
    strangers = {
        name: file
        for name, file in _own_modules().items()
        if file is not None and not pathlib.Path(file).resolve().is_relative_to(copy)
    }
    if strangers:
        print(f"All must be imported from the copy {copy}, got {strangers}.")
    return WRONG_TREE if strangers else status


def _own_modules() -> dict[str, str | None]:
    """The modules of the library that are imported, and their files."""
    return {
        name: getattr(module, "__file__", None)
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] == _PACKAGE
    }


if __name__ == "__main__":
    main()
