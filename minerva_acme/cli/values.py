"""The values of flags, checked before the parser sees them: its own words for a wrong one are about types."""

import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from minerva_acme.cli import choices

_NUMBERS: dict[Any, str] = {int: "a whole number", float: "a number"}


def check(arguments: Sequence[str], hints: Mapping[str, Any]) -> None:
    """Checks numbers and choices.

    Args:
        arguments: flags by their own names, each before its values.
        hints: the type of each flag's field.

    Raises:
        ValueError: a value is none of its flag's; the message names both and the way out.
    """
    flag, left = "", 0
    kind: Any = None
    for argument in arguments:
        if argument.startswith("--"):
            flag = argument
            kind, many, may_be_none = _read(hints.get(flag))
            left = len(arguments) if many else 1
        elif left and not (may_be_none and argument == "None"):
            left -= 1
            if kind in _NUMBERS:
                _check_number(flag, argument, kind)
            elif typing.get_origin(kind) is Literal:
                _check_choice(flag, argument, [str(choice) for choice in typing.get_args(kind)])


def _read(hint: Any) -> tuple[Any, bool, bool]:
    """Returns the type of a value, whether there may be several, and whether None is one."""
    may_be_none = many = False
    if isinstance(hint, types.UnionType):
        may_be_none = types.NoneType in typing.get_args(hint)
        (hint, *others) = (part for part in typing.get_args(hint) if part is not types.NoneType)
        hint = None if others else hint
    if typing.get_origin(hint) is tuple:
        many, hint = True, typing.get_args(hint)[0]
    return hint, many, may_be_none


def _check_number(flag: str, value: str, kind: type[int] | type[float]) -> None:
    try:
        kind(value)
    except ValueError:
        raise ValueError(f"`{flag}` must be {_NUMBERS[kind]}, got '{value}'.{_whole(value)}") from None


def _whole(value: str) -> str:
    """The way out for a whole number written as another, such as 1e6."""
    try:
        number = float(value)
    except ValueError:
        return ""
    return f" Write {int(number)}." if number.is_integer() else ""


def _check_choice(flag: str, value: str, there: Sequence[str]) -> None:
    if value not in there:
        near = choices.near(value, there)
        raise ValueError(
            f"`{flag}` must be one of {', '.join(there)}, got '{value}'.{' ' + near if near else ''}"
        )
