"""`minerva`: parses the command line and calls what it names."""

import dis
import logging
import os
import pkgutil
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from minerva_acme.experiments import interrupts

_RAISE = dis.opmap["RAISE_VARARGS"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status.

    0: done, or stopped and saved; 1: failed; 2: misused; 130: stopped by Ctrl-C, SIGTERM or SIGHUP with
    nothing saved, or where closing was cut short.

    What we refuse and what the machine lacks ends as one line. Any other error keeps its traceback, and with
    `--debug`, anywhere among the arguments, every error has one.
    """
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s", stream=_Stderr())
    with interrupts.like_ctrl_c():
        try:
            status = _main(sys.argv[1:] if arguments is None else arguments)
        except KeyboardInterrupt as error:
            status = 130
            print(f"minerva: {str(error) or 'stopped without saving'}", file=sys.stderr)
        if arguments is None:  # nothing is left to do but to exit
            interrupts.ignore()
    return status


def _main(arguments: Sequence[str]) -> int:
    from minerva_acme.cli import parsing  # which takes longer than all else here

    try:
        return _run(parsing.parse([argument for argument in arguments if argument != parsing.DEBUG]))
    except BrokenPipeError:  # whoever read our output has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing is left to flush
        return 1
    except Exception as error:
        status = _status(error)
        if status is None:
            raise
        if parsing.DEBUG in arguments:
            traceback.print_exception(error)
        message = "\n".join([str(error), *getattr(error, "__notes__", ())])
    print(f"minerva: {message}", file=sys.stderr)
    return status


def _run(command: Any) -> int:
    # The function's module is imported now, and none of another command.
    return pkgutil.resolve_name(f"minerva_acme.cli.{command.function}")(command)


def _status(error: Exception) -> int | None:
    """The exit status of an error whose message says it all; None: of one that needs its traceback.

    A ValueError out of an environment, a plug-in or torch is no refusal of ours, and neither is one of the
    interpreter in our own code ("not enough values to unpack"). So the innermost code must be ours and at a
    `raise`: unlike a class of our own, no refusal can forget that. That a file, a package or room is missing
    is found out by the standard library; there it counts who called it.
    """
    is_missing = isinstance(error, (ImportError, OSError))
    is_ours, step = False, error.__traceback__
    while step is not None:
        module, code = step.tb_frame.f_globals.get("__name__", ""), step.tb_frame.f_code.co_code
        if not (is_missing and module.partition(".")[0] in sys.stdlib_module_names):
            is_ours = module.startswith("minerva_acme.") and (is_missing or code[step.tb_lasti] == _RAISE)
        step = step.tb_next
    if not is_ours:
        return None
    if type(error) is ValueError:
        return 2
    # These import numpy, which wrong flags and help do without.
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
    return 1 if is_missing or isinstance(error, failures) else None


class _Stderr:
    """Standard error as it is at each write: the live display puts itself in its place."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
