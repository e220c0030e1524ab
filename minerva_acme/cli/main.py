"""`minerva`: parses the command line and runs the command."""

import errno
import linecache
import logging
import os
import pkgutil
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from minerva_acme.experiments import interrupts

_OF_PATHS = (
    *(errno.EACCES, errno.EEXIST, errno.EINVAL, errno.EISDIR),
    *(errno.ENOENT, errno.ENOTDIR, errno.EPERM, errno.EROFS),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status.

    0: completed, or stopped and saved; 1: failed; 2: called incorrectly; 130: stopped by Ctrl-C, SIGTERM or
    SIGHUP with nothing saved, or interrupted again while closing.

    An error raised by this package on purpose, or for something missing on the machine, is printed as one
    line. Any other error keeps its traceback, and with `--debug`, anywhere among the arguments, every error
    has one.
    """
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s", stream=_Stderr())
    logging.getLogger("minerva_acme.datasets").setLevel(logging.INFO)  # what was read, and how it was changed
    with interrupts.like_ctrl_c():
        try:
            status = _main(sys.argv[1:] if arguments is None else arguments)
        except KeyboardInterrupt as error:
            status = 130
            print(f"minerva: {str(error) or 'stopped'}", file=sys.stderr)
        if arguments is None:  # only exiting is left
            interrupts.ignore()
    return status


def _main(arguments: Sequence[str]) -> int:
    from minerva_acme.cli import parsing  # slower than everything else here

    try:
        return _run(parsing.parse([argument for argument in arguments if argument != parsing.DEBUG]))
    except BrokenPipeError:  # the reader of our output closed it, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that flushing at exit works
        return 1
    except Exception as error:
        status = _status(error)
        if status is None:
            raise
        if parsing.DEBUG in arguments:
            traceback.print_exception(error)
        message = "\n".join([_explain(error), *getattr(error, "__notes__", ())])
    print(f"minerva: {message}", file=sys.stderr)
    return status


def _run(command: Any) -> int:
    # Imports the module of this command only.
    return pkgutil.resolve_name(f"minerva_acme.cli.{command.function}")(command)


def _explain(error: Exception) -> str:
    """Returns the message of an error; of a path that cannot be used, without Python's error number."""
    if isinstance(error, OSError) and error.errno in _OF_PATHS and error.filename:
        return (
            f"{error.filename} cannot be used: {error.strerror}. Choose another path, or check its "
            "permissions and those of the folders above it."
        )
    return str(error)


def _status(error: Exception) -> int | None:
    """Returns the exit status of an error whose message is enough, or None if it needs its traceback.

    A ValueError from an environment, a plug-in or torch was not raised by this package, and one from the
    interpreter in our own code ("not enough values to unpack") was not raised on purpose. So the innermost
    frame must be ours and at a line with `raise`; unlike an exception class of our own, this cannot be
    forgotten. A missing file or package, or a full disk, is detected by the standard library, so its caller
    counts.
    """
    is_missing = isinstance(error, (ImportError, OSError))
    is_ours, step = False, error.__traceback__
    while step is not None:
        module = step.tb_frame.f_globals.get("__name__", "")
        if not (is_missing and module.partition(".")[0] in sys.stdlib_module_names):
            line = linecache.getline(step.tb_frame.f_code.co_filename, step.tb_lineno)
            is_ours = module.startswith("minerva_acme.") and (
                is_missing or line.lstrip().startswith("raise ")
            )
        step = step.tb_next
    if not is_ours:
        return None
    if type(error) is ValueError:
        return 2
    # The other kinds import numpy, which help and errors about flags do not need.
    from minerva_acme import distributed, specs
    from minerva_acme.environments import process_vector
    from minerva_acme.replay import base

    failures = (
        FloatingPointError,
        base.ReplayError,
        specs.SpecError,
        process_vector.EnvironmentWorkerError,
        distributed.ProgramFailed,
    )
    if is_missing or isinstance(error, failures):
        return 1
    return 2 if isinstance(error, ValueError) else None


class _Stderr:
    """Writes to the current `sys.stderr`, which the live display replaces while it is shown."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
