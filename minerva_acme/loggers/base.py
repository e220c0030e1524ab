"""The interface of loggers, and the values that a row may have."""

import abc
from collections.abc import Mapping, Sequence
from typing import Any

from minerva_acme import core

PlainRow = dict[str, int | float | str]


class Logger(core.Closeable):
    """Writes rows of named values. A context manager that closes itself.

    A value is a number, a string, or a numpy array or torch tensor with one number, on any device. Loggers
    may read the numbers later, so arrays must not be changed after they were passed to `write`.
    """

    @abc.abstractmethod
    def write(self, values: Mapping[str, Any]) -> None:
        """Writes one row.

        Raises:
            ValueError: A value has another type, or the logger is closed.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Writes pending rows and releases resources; closing twice is allowed."""


def raise_all(errors: Sequence[Exception], message: str) -> None:
    """Raises a single error as it is, and several as a group with the message; otherwise does nothing."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ExceptionGroup(message, errors)


def to_plain(values: Mapping[str, Any]) -> PlainRow:
    """Returns the row with numbers of numpy and torch converted to Python numbers.

    Raises:
        ValueError: A value is neither a number nor a string; the message names it.
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
