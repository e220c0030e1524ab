"""A lock that lets one run at a time use a folder."""

import contextlib
import datetime
import itertools
import logging
import os
import pathlib
import shlex
import socket
import stat
import sys
import textwrap
import time
from collections.abc import Callable, Iterator

from minerva_acme.machine import writing

_LOOK_SECONDS = 0.05  # between checks whether the lock is free
_MAX_COMMAND = 200  # characters of a command line that are shown

_logger = logging.getLogger(__name__)
_held: set[int] = set()  # descriptors of this process


@contextlib.contextmanager
def hold(
    directory: str | os.PathLike[str],
    *,
    file: str = ".lock",
    should_wait: Callable[[], bool] = lambda: False,
) -> Iterator[None]:
    """Keeps every other run out of a folder, which is made if needed.

    The lock is the operating system's `flock` on a file. It is released when the process ends, however it
    ends, and processes started meanwhile do not inherit it. The file's content only names the holder, for the
    message. Reading the folder needs no lock.

    On a network file system, the lock works between machines if the file system supports `flock`: NFS and
    most others do, some only with a mount option. Without locks, a warning is logged and the run continues. A
    folder that is moved or deleted while a run writes to it is not protected.

    Args:
        directory: The folder.
        file: The name of the lock file in it.
        should_wait: Returns whether to keep waiting for another process that holds the lock; called
            repeatedly.

    Raises:
        ValueError: Another run holds the lock, and the message names its process; or the file is a link.
        OSError: The folder cannot be made or written to.
    """
    path = pathlib.Path(directory) / file
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for attempt in itertools.count():
            try:
                descriptor = _open_and_lock(path)
                break
            except ValueError:
                # At first it may be `is_held` that has the lock, for a moment.
                if attempt and not should_wait():
                    raise
                time.sleep(_LOOK_SECONDS)
    except OSError as error:
        raise OSError(
            f"Cannot write the run to {path.parent}: {error.strerror}. "
            "Choose another directory for the run, or check the permissions there."
        ) from error
    _held.add(descriptor)
    try:
        with writing.explain(path):
            _sign(descriptor, path)
        yield
    finally:
        if descriptor in _held:  # not in a forked process
            _held.remove(descriptor)
            with contextlib.suppress(OSError):  # the folder is gone
                path.unlink()
            os.close(descriptor)


def is_held(directory: str | os.PathLike[str], *, file: str = ".lock") -> bool:
    """Returns whether a run holds a folder; also true if that cannot be found out.

    Args:
        directory: The folder.
        file: The name of the lock file in it.
    """
    try:
        flags = os.O_RDONLY | writing.NO_LINK | getattr(os, "O_NONBLOCK", 0)  # it might be a pipe
        descriptor = os.open(pathlib.Path(directory) / file, flags)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        import fcntl  # not on Windows

        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return True
    finally:
        os.close(descriptor)
    return False


def _open_and_lock(path: pathlib.Path) -> int:
    while True:
        writing.refuse_link(path)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | writing.NO_LINK, 0o666)
        try:
            _check_own(descriptor, path)
            _lock(descriptor, path)
            # The previous holder may have deleted the file after it was opened here.
            if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _check_own(descriptor: int, path: pathlib.Path) -> None:
    # The file will be overwritten, so it must not have another name, which could belong to other software.
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        raise ValueError(
            f"{path} must be a regular file that only the run uses, got one with other hard links or of "
            "another kind. Remove it, or choose another directory for the run."
        )


def _lock(descriptor: int, path: pathlib.Path) -> None:
    try:
        import fcntl  # not on Windows

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError) as error:
        raise ValueError(
            f"{path.parent} must be a folder that no other run writes to, but it is in use by "
            f"{_read(descriptor) or 'another process'}. Stop that run first, or choose another directory."
        ) from error
    except (ImportError, OSError) as error:
        _logger.warning("%s cannot be locked (%s): do not start another run there.", path.parent, error)


def _sign(descriptor: int, path: pathlib.Path) -> None:
    if left_by := _read(descriptor):
        _logger.info("%s is taken over from %s, which ended without releasing it", path.parent, left_by)
    now = datetime.datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
    command = textwrap.shorten(shlex.join(sys.orig_argv), _MAX_COMMAND, placeholder=" ...")
    os.ftruncate(descriptor, 0)
    text = f"process {os.getpid()} on {socket.gethostname()}, since {now}: {command}"
    os.pwrite(descriptor, text.encode(errors="replace"), 0)


def _read(descriptor: int) -> str:
    os.lseek(descriptor, 0, os.SEEK_SET)
    return os.read(descriptor, 10 * _MAX_COMMAND).decode(errors="replace")


def _forget() -> None:
    # A copy of the descriptor would hold the lock as long as the new process lives.
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forget)
