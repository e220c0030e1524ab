"""What a logger is, and what a row of a log may hold."""

import abc
from collections.abc import Mapping, Sequence
from typing import Any

from minerva_acme import core

PlainRow = dict[str, int | float | str]


class Logger(core.Closeable):
    """Takes rows of named values. A context manager that closes itself.

    A value is a number, a string, or a numpy or torch array of one number, on any device. Loggers
    read the numbers out late, so the arrays must not be changed after they were handed over.
    """

    @abc.abstractmethod
    def write(self, values: Mapping[str, Any]) -> None:
        """Writes one row.

        Raises:
            ValueError: a value is none of the above, or the logger is closed.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Writes what is held back and releases what is held; closing twice is fine."""


def raise_all(errors: Sequence[Exception], message: str) -> None:
    """Raises an error as it is, several as a group with the message, and nothing if there are none."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ExceptionGroup(message, errors)


def to_plain(values: Mapping[str, Any]) -> PlainRow:
    """The row with Python's own numbers in place of numpy's and torch's.

    Raises:
        ValueError: a value is neither a number nor a string; the message names it.
    """
    return {name: _to_plain(name, value) for name, value in values.items()}


def _to_plain(name: str, value: Any) -> int | float | str:
    if isinstance(value, int | float | str):
        return value
    try:
        plain = value.item()
    except (AttributeError, RuntimeError, ValueError):
        plain = None
    if not isinstance(plain, int | float | str):
        shape = getattr(value, "shape", None)
        found = type(value).__name__ if shape is None else f"{type(value).__name__} of shape {tuple(shape)}"
        raise ValueError(f"`{name}` must be one number or a string to be logged, got {found}. Log its mean.")
    return plain
