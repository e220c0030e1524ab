"""`minerva`: parses the command line and calls what it names."""

import logging
import pkgutil
import sys
from collections.abc import Sequence
from typing import Any

from minerva_acme.cli import parsing


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status.

    0: done, or stopped and saved; 1: failed; 2: misused; 130: stopped by Ctrl-C with nothing saved.
    """
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s", stream=_Stderr())
    try:
        return _run(parsing.parse(sys.argv[1:] if arguments is None else list(arguments)))
    except ValueError as error:
        # What was asked for cannot be done and the message says why; a traceback would hide it.
        status, message = 2, str(error)
    except Exception as error:
        if not _explains_itself(error):
            raise
        status, message = 1, str(error)
    except KeyboardInterrupt as error:
        status, message = 130, str(error) or "stopped without saving"
    print(f"minerva: {message}", file=sys.stderr)
    return status


def _run(command: Any) -> int:
    # The function's module is imported now, and none of another command.
    return pkgutil.resolve_name(f"minerva_acme.cli.{command.function}")(command)


def _explains_itself(error: Exception) -> bool:
    """Whether the machine or the training is at fault, not the code: no traceback either."""
    from minerva_acme.replay import base  # imports numpy, which wrong flags and help do without

    return isinstance(error, (FloatingPointError, ImportError, OSError, base.ReplayError))


class _Stderr:
    """Standard error as it is at each write: the live display puts itself in its place."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
