"""Reading files that need not be trusted: regular files alone, and JSON and TOML of a size, depth and range.

Every file of JSON that this library reads is read here, so that whatever a file holds, its reader gets plain
values that it can walk through, convert and print.
"""

import errno
import io
import json
import math
import os
import pathlib
import stat
import sys
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TextIO

MAX_BYTES = 1 << 25
"""The size of the largest file of JSON or TOML that is read, in bytes."""
MAX_DEPTH = 64
"""How deep lists and dicts may be nested in a file."""

_LARGEST = int(sys.float_info.max)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # not on Windows; a pipe would be waited for
_BINARY = getattr(os, "O_BINARY", 0)


def open_file(path: str | os.PathLike[str]) -> io.BufferedReader:
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


def open_text(path: str | os.PathLike[str], *, errors: str = "strict", newline: str | None = None) -> TextIO:
    """Opens a regular file of text; the arguments are those of `open`.

    Raises:
        OSError: As `open_file`.
    """
    return io.TextIOWrapper(open_file(path), encoding="utf-8", errors=errors, newline=newline)


def json_file(path: str | os.PathLike[str], *, infinite: bool = False, nan: bool = False) -> Any:
    """Reads a file of JSON; see `json_text`.

    Raises:
        OSError: It cannot be read.
        ValueError: As `json_text`.
    """
    return json_text(_read(path), infinite=infinite, nan=nan)


def json_text(text: str | bytes, *, infinite: bool = False, nan: bool = False) -> Any:
    """Returns the value of a text of JSON, which was read from a file.

    Args:
        text: The text.
        infinite: Whether its numbers may be infinite, as the bounds of specs are.
        nan: Whether they may be nan, as a setting of somebody's own agent may.

    Raises:
        ValueError: It is longer than `MAX_BYTES`, is no JSON, is nested deeper than `MAX_DEPTH`, or has
            numbers that are not finite or a string that is no text.
    """
    _check_size(len(text))
    try:
        return _checked(json.loads(text), infinite, nan)
    except RecursionError:
        raise _too_deep() from None


def why(error: Exception) -> str:
    """Returns, in a line, why a file could not be used."""
    if isinstance(error, KeyError) and len(error.args) == 1:
        return f"{error} is missing"
    return " ".join(str(getattr(error, "strerror", None) or error).split()) or type(error).__name__


def toml_file(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads a file of TOML, whose numbers may be infinite.

    Raises:
        OSError: It cannot be read.
        ValueError: As `json_text`.
    """
    try:
        values: dict[str, Any] = _checked(tomllib.loads(_read(path).decode()), True, False)
        return values
    except RecursionError:
        raise _too_deep() from None


def fit(name: str, value: Any, hint: Any) -> Any:
    """Returns a value from a file as a value of a field's type: lists become tuples, and 1e5 a whole number.

    Args:
        name: The field's name, for the message.
        value: The value.
        hint: The type: bool, int, float, str, Path, Literal, None, or a union, tuple or mapping of these.

    Raises:
        ValueError: The value is not of that type.
    """
    found = list(_fits(value, hint))
    if not found:
        raise ValueError(f"`{name}` must be {_describe(hint)}, got {value!r}.")
    # Of `int | float`, a float is a float.
    return next((fitting for fitting in found if type(fitting) is type(value)), found[0])


def fit_fields(kind: type[Any], values: Any) -> dict[str, Any]:
    """Returns the values of fields of a dataclass or named tuple, by name, each of its field's type.

    Raises:
        ValueError: There are no values by name, a name is unknown, or a value is not of its field's type.
    """
    hints = typing.get_type_hints(kind, include_extras=True)
    if not isinstance(values, dict) or not values.keys() <= hints.keys():
        found = ", ".join(values) if isinstance(values, dict) else repr(values)
        raise ValueError(f"there must be values of {', '.join(hints)}, got {found}")
    return {name: fit(name, value, hints[name]) for name, value in values.items()}


def _fits(value: Any, hint: Any) -> Iterator[Any]:
    """Yields what the value is as a value of the type; of a union, for each of its parts."""
    kind, parts = typing.get_origin(hint), typing.get_args(hint)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is Annotated:
        yield from _fits(value, parts[0])
    elif kind in (typing.Union, types.UnionType):
        for part in parts:
            yield from _fits(value, part)
    elif kind is Literal:
        yield from (choice for choice in parts if choice == value and type(choice) is type(value))
    elif kind is tuple and isinstance(value, list):
        of_each = parts[:1] * len(value) if parts[1:] == (...,) else parts
        found = [list(_fits(part, of_part)) for part, of_part in zip(value, of_each, strict=False)]
        if len(value) == len(of_each) and all(found):
            yield tuple(fitting for fitting, *_ in found)
    elif kind in (dict, Mapping) and isinstance(value, dict):
        found = [list(_fits(part, parts[1])) for part in value.values()]
        if all(found):
            yield {key: fitting for key, (fitting, *_) in zip(value, found, strict=True)}
    elif hint is float and is_number:
        yield float(value)
    elif hint is int and is_number and float(value).is_integer():
        yield int(value)
    elif hint in (bool, str, types.NoneType) and isinstance(value, hint):
        yield value
    elif hint is pathlib.Path and isinstance(value, str):
        yield pathlib.Path(value)


def _describe(hint: Any) -> str:
    kind, parts = typing.get_origin(hint), typing.get_args(hint)
    if kind is Annotated:
        return _describe(parts[0])
    if kind in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(map(_describe, parts)))
    if kind is Literal:
        return f"one of {', '.join(map(repr, parts))}"
    if kind is tuple:
        return f"a list, each {_describe(parts[0])}"
    if kind in (dict, Mapping):
        return f"values by name, each {_describe(parts[1])}"
    words = {bool: "true or false", str: "text", pathlib.Path: "a path", types.NoneType: "None"}
    return {**words, int: "a whole number", float: "a number"}.get(
        hint, f"a {getattr(hint, '__name__', hint)}"
    )


def _read(path: str | os.PathLike[str]) -> bytes:
    with open_file(path) as file:
        _check_size(os.fstat(file.fileno()).st_size)
        return file.read()


def _check_size(num: int) -> None:
    if num > MAX_BYTES:
        raise ValueError(f"it must have at most {MAX_BYTES:,} bytes, got {num:,}")


def _too_deep() -> ValueError:
    return ValueError(f"its values must be nested at most {MAX_DEPTH} deep, got more")


def _checked(value: Any, infinite: bool, nan: bool) -> Any:
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
            if (math.isnan(found) and not nan) or (math.isinf(found) and not infinite):
                raise ValueError(f"its numbers must be finite, got {found}")
        elif isinstance(found, int) and not -_LARGEST <= found <= _LARGEST:
            raise ValueError(f"its numbers must be finite, got one of {len(str(abs(found)))} digits")
    return value
