"""Reading files that need not be trusted: regular files alone, and JSON and TOML of a size, depth and range.

Every file of JSON that this library reads is read here, so that whatever a file holds, its reader gets plain
values that it can walk through, convert and print.
"""

import errno
import json
import math
import os
import stat
import sys
import tomllib
from typing import Any, BinaryIO

MAX_BYTES = 1 << 25
"""The size of the largest file of JSON or TOML that is read, in bytes."""
MAX_DEPTH = 64
"""How deep lists and dicts may be nested in a file."""

_LARGEST = int(sys.float_info.max)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # not on Windows; a pipe would be waited for
_BINARY = getattr(os, "O_BINARY", 0)


def open_file(path: str | os.PathLike[str]) -> BinaryIO:
    """Opens a regular file for reading.

    Raises:
        OSError: It cannot be opened, or is a folder, a pipe, a socket or a device, which might never end.
    """
    descriptor = os.open(path, os.O_RDONLY | _NO_WAIT | _BINARY)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    raise OSError(errno.EINVAL, "It is not a regular file", os.fspath(path))


def json_file(path: str | os.PathLike[str], *, infinite: bool = False) -> Any:
    """Reads a file of JSON; see `json_text`.

    Raises:
        OSError: It cannot be read.
        ValueError: As `json_text`.
    """
    return json_text(_read(path), infinite=infinite)


def json_text(text: str | bytes, *, infinite: bool = False) -> Any:
    """Returns the value of a text of JSON, which was read from a file.

    Args:
        text: The text.
        infinite: Whether its numbers may be infinite, as the bounds of specs are.

    Raises:
        ValueError: It is longer than `MAX_BYTES`, is no JSON, is nested deeper than `MAX_DEPTH`, or has
            numbers that are not finite or a string that is no text.
    """
    _check_size(len(text))
    try:
        return _checked(json.loads(text), infinite)
    except RecursionError:
        raise _too_deep() from None


def toml_file(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads a file of TOML, whose numbers may be infinite.

    Raises:
        OSError: It cannot be read.
        ValueError: As `json_text`.
    """
    try:
        values: dict[str, Any] = _checked(tomllib.loads(_read(path).decode()), infinite=True)
        return values
    except RecursionError:
        raise _too_deep() from None


def _read(path: str | os.PathLike[str]) -> bytes:
    with open_file(path) as file:
        _check_size(os.fstat(file.fileno()).st_size)
        return file.read()


def _check_size(num: int) -> None:
    if num > MAX_BYTES:
        raise ValueError(f"it must have at most {MAX_BYTES:,} bytes, got {num:,}")


def _too_deep() -> ValueError:
    return ValueError(f"its values must be nested at most {MAX_DEPTH} deep, got more")


def _checked(value: Any, infinite: bool) -> Any:
    """Returns a value after a look at all of its parts, without recursion."""
    waiting: list[tuple[Any, int]] = [(value, 0)]
    while waiting:
        found, depth = waiting.pop()
        if isinstance(found, dict | list):
            if depth == MAX_DEPTH:
                raise _too_deep()
            parts = [*found, *found.values()] if isinstance(found, dict) else found
            waiting += [(part, depth + 1) for part in parts]
        elif isinstance(found, str):
            if not found.isascii():
                found.encode()  # a UnicodeEncodeError, which is a ValueError, for half of a pair
        elif isinstance(found, float):
            if math.isnan(found) or (math.isinf(found) and not infinite):
                raise ValueError(f"its numbers must be finite, got {found}")
        elif isinstance(found, int) and not -_LARGEST <= found <= _LARGEST:
            raise ValueError(f"its numbers must be finite, got one of {len(str(abs(found)))} digits")
    return value
