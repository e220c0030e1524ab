"""Writing the files of a run: completely or not at all, never through a link, with clear errors."""

import contextlib
import errno
import io
import os
import pathlib
import shutil
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from minerva_acme.machine import memory

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NO_LINK = getattr(os, "O_NOFOLLOW", 0)  # not on Windows
"""The flag for `os.open` that refuses to follow a symbolic link."""
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # for the other end of a pipe


def cannot_write(path: str | os.PathLike[str], error: BaseException) -> str:
    """Returns why a path cannot be written and, on a full disk, how much is free, without a full stop."""
    reason = str(getattr(error, "strerror", None) or error).rstrip(".")
    if getattr(error, "errno", None) in _FULL:
        place = pathlib.Path(path).absolute()
        folder = next(parent for parent in (place, *place.parents) if parent.exists())
        reason += f", {memory.describe(shutil.disk_usage(folder).free)} are free there"
    return f"{path} cannot be written: {reason}"


@contextlib.contextmanager
def explain(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turns an OSError into one that names the file, says why it was not written, and suggests what to do.

    Raises:
        OSError: Another OSError was raised inside.
    """
    try:
        yield
    except OSError as error:
        raise OSError(
            f"{cannot_write(path, error)}. Free some space or check the permissions there, then try again."
        ) from error


def refuse_link(path: str | os.PathLike[str]) -> None:
    """Checks that a file or folder to be written is not a symbolic link.

    Raises:
        ValueError: It is a link, whose target does not belong to the run.
    """
    if os.path.islink(path):
        raise ValueError(
            f"{path} must be the run's own file or folder, got a symbolic link to {os.readlink(path)}. "
            "Links are not followed when writing. Replace the link with its target, or remove it."
        )


def replace(path: str | os.PathLike[str], content: Iterable[bytes]) -> None:
    """Replaces a file atomically. The new content is on the disk when this returns.

    Args:
        path: The file. Its new content is first written to `.<name>.new` in the same folder.
        content: The parts of the content, in order.

    Raises:
        OSError: The file could not be written, and is unchanged.
        ValueError: The file is a symbolic link.
    """
    refuse_link(path)
    path = pathlib.Path(path)
    new = path.with_name(f".{path.name}.new")
    try:
        with explain(path):
            new.unlink(missing_ok=True)  # left by a killed process, or a link
            with Output(new) as file:
                for part in content:
                    file.write(part)
            os.replace(new, path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


class Output(io.RawIOBase):
    """A new file for libraries that do not clean up well after a failed write, such as zipfile and h5py.

    The first error is kept and raised by `check` and at the end: until then, writes seem to succeed. The
    content is on the disk at the end.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Creates the file, which must not exist.

        Args:
            path: The path of the file.
        """
        self._error: OSError | None = None
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        self._file = os.fdopen(os.open(path, flags, 0o666), "rb+", buffering=0)

    def check(self) -> None:
        """Raises the error that a write has had, an OSError, if there was one."""
        if self._error is not None:
            raise self._error

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def write(self, data: bytes | memoryview) -> int:  # type: ignore[override]
        self._attempt(_write, self._file.fileno(), data)
        return memoryview(data).nbytes

    def readinto(self, buffer: Any) -> int:
        return self._file.readinto(buffer) or 0

    def truncate(self, size: int | None = None) -> int:
        size = self.tell() if size is None else size
        self._attempt(self._file.truncate, size)
        return size

    def _attempt(self, change: Callable[..., Any], *arguments: Any) -> None:
        """Changes the file, unless an earlier change has failed."""
        if self._error is None:
            try:
                change(*arguments)
            except OSError as error:
                self._error = error

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        """Closes the file, whose content may not be on the disk yet."""
        self._file.close()
        super().close()

    def __exit__(self, *error: object) -> None:
        with contextlib.closing(self):
            if self._error is None and error[0] is None:
                os.fsync(self._file.fileno())
        self.check()


class Appended:
    """A file for appending. Each piece is passed to the operating system completely, or not at all."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Opens the file, and creates it if needed.

        Args:
            path: The path of the file.

        Raises:
            OSError: The file cannot be written to.
            ValueError: The file is a symbolic link.
        """
        refuse_link(path)
        self.path = pathlib.Path(path)
        """The path of the file."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | NO_LINK | _NO_WAIT | getattr(os, "O_BINARY", 0)
        with explain(path):
            self._file = os.fdopen(os.open(path, flags, 0o666), "ab", buffering=0)

    def write(self, data: bytes) -> None:
        """Appends a piece.

        Raises:
            OSError: The piece could not be written, and the file is unchanged.
            ValueError: The file is closed.
        """
        descriptor = self._file.fileno()
        with explain(self.path):
            before = os.fstat(descriptor).st_size
            try:
                _write(descriptor, data)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, before)
                raise

    def sync(self) -> None:
        """Returns once all pieces are on the disk, where a loss of power leaves them.

        Raises:
            OSError: They could not be written there.
        """
        with explain(self.path):
            os.fsync(self._file.fileno())

    def truncate(self, size: int) -> None:
        """Truncates the file to `size` bytes."""
        self._file.truncate(size)

    @property
    def closed(self) -> bool:
        """True if the file is closed."""
        return self._file.closed

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def _write(descriptor: int, data: bytes | memoryview) -> None:
    """Writes all of the data, or raises an error, after which a part may have been written."""
    rest = memoryview(data).cast("B")
    while rest:
        rest = rest[os.write(descriptor, rest) :]
