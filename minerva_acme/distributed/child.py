"""Runs Python code as a child, and interrupts it when its parent ends: child.py PARENT CODE [WORD ...]

It is run as a file, and imports nothing of this library: its parent may end from the first moment on.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

_ON_PARENTS_DEATH = 1  # PR_SET_PDEATHSIG of prctl


def run(parent: int, code: str, words: Sequence[str]) -> None:
    """Runs code as `python -c` does. Ctrl-C interrupts it and, on Linux, so does the end of its parent.

    Args:
        parent: The process that must be the parent.
        code: The code to run.
        words: Its `sys.argv`, from the second word on.

    Raises:
        KeyboardInterrupt: The parent has ended.
    """
    # Children inherit the signals that Ray's processes, or a shell, ignore, and that Ray's threads block.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if sys.platform == "linux":
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        ctypes.CDLL(None).prctl(_ON_PARENTS_DEATH, signal.SIGINT)
        if os.getppid() != parent:  # it ended before
            raise KeyboardInterrupt
    sys.argv = ["-c", *words]
    exec(code, {"__name__": "__main__"})


if __name__ == "__main__":
    run(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
