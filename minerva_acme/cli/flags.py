"""Flags as people write them: brought to their own names and checked before the parser sees them.

The parser's own words for a wrong value are about types.
"""

import contextlib
import dataclasses
import types
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import tyro

from minerva_acme.cli import choices

OTHER_NAMES = {"--num-envs": "--num-environments", "--environment": "--env"}
_BY_COMMAS = ("--log", "--format", "--published", "--against")
_NUMBERS: dict[Any, str] = {int: "a whole number", float: "a number"}


def of(command: type[Any]) -> Iterator[tuple[str, Any]]:
    """Yields the flags that a command's fields become, nested ones without a prefix, and their types."""
    hints = typing.get_type_hints(command, include_extras=True)
    for field in dataclasses.fields(command):
        hint = hints[field.name]
        marks = getattr(hint, "__metadata__", ())
        name = field.name.replace("_", "-")
        if dataclasses.is_dataclass(hint):
            yield from of(hint)  # type: ignore[arg-type]
        elif tyro.conf.Suppress not in marks and tyro.conf.Positional not in marks:
            yield f"--{name}", hint
            if hint is bool:
                yield f"--no-{name}", bool


def check_config(config: type[Any], *, taken: Collection[str]) -> None:
    """Checks that an agent's config can be flags, whose values `run.json` gives back.

    Args:
        config: a dataclass.
        taken: flags with another meaning.

    Raises:
        ValueError: a field has no such type, or its flag is taken; the message names it.
    """
    try:
        hints = typing.get_type_hints(config, include_extras=True)
    except NameError as error:
        raise ValueError(
            f"The types of {config.__name__}'s fields must be names that its module has, but {error}. Import "
            "them also where not only type checkers look."
        ) from error
    for field in dataclasses.fields(config):
        if not (field.init and _is_plain(hints[field.name])):
            kind = getattr(field.type, "__name__", field.type)
            raise ValueError(
                f"`{field.name}` of {config.__name__} cannot be a flag: it must be an argument, and a bool, "
                f"int, float, str, Literal, None, or a union or tuple of such, got {kind}. Make it in the "
                "builder, or in a property of the config, from fields that are; or train from Python by "
                "`run_experiment`."
            )
        if (flag := f"--{field.name.replace('_', '-')}") in taken:
            raise ValueError(
                f"`{field.name}` of {config.__name__} must have another name: {flag} is a flag of "
                "`minerva train` itself."
            )


def _is_plain(hint: Any) -> bool:
    """Whether values of this type are flags that JSON gives back as they were."""
    kind, parts = typing.get_origin(hint), typing.get_args(hint)
    if kind is Annotated:
        return _is_plain(parts[0])
    if kind in (tuple, typing.Union, types.UnionType):
        return all(part is ... or _is_plain(part) for part in parts)
    return kind is Literal or hint in (*_NUMBERS, bool, str, types.NoneType)


def settle(arguments: Sequence[str], hints: Mapping[str, Any], command: str) -> list[str]:
    """Returns the arguments with flags by their own names, and with what commas separate split.

    Args:
        arguments: as they were typed, behind the command.
        hints: the command's flags and the types of their values.
        command: for messages.

    Raises:
        ValueError: the command has no such flag, or a value is none of its flag's; the message has the
            similar ones.
    """
    settled: list[str] = []
    flag, kind, left, may_be_none = "", None, 0, False
    for argument in arguments:
        values = [argument]
        if argument.startswith("--") and len(argument) > 2:
            written, equals, value = argument.partition("=")
            flag = _find(written.replace("_", "-"), hints, command)
            kind, many, may_be_none = _read(hints.get(flag))
            left = len(arguments) if many else 1
            settled.append(flag)
            values = [value] if equals else []
        if flag in _BY_COMMAS:
            values = [part for value in values for part in value.split(",")]
        for value in values[:left]:  # what follows is positional
            if not (may_be_none and value == "None"):
                _check(flag, value, kind)
        left = max(0, left - len(values))
        settled += values
    return settled


def _find(flag: str, hints: Mapping[str, Any], command: str) -> str:
    if flag not in hints and OTHER_NAMES.get(flag) in hints:
        return OTHER_NAMES[flag]
    if flag in hints or flag == "--help":
        return flag
    hint = choices.near(flag, sorted(hints), at_most=3) or f"There are: {command} --help"
    raise ValueError(f"`{command}` has no flag {flag}. {hint}")


def _read(hint: Any) -> tuple[Any, bool, bool]:
    """Returns the type of a value, whether there may be several, and whether None is one."""
    if typing.get_origin(hint) is Annotated:
        hint = typing.get_args(hint)[0]
    parts = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    kinds = [part for part in parts if part is not types.NoneType]
    kind = kinds[0] if len(kinds) == 1 else None
    many = typing.get_origin(kind) is tuple
    return typing.get_args(kind)[0] if many else kind, many, len(kinds) < len(parts)


def _check(flag: str, value: str, kind: Any) -> None:
    if kind in _NUMBERS:
        try:
            kind(value)
        except ValueError:
            raise ValueError(f"`{flag}` must be {_NUMBERS[kind]}, got '{value}'.{_whole(value)}") from None
    elif typing.get_origin(kind) is Literal:
        known = [str(choice) for choice in typing.get_args(kind)]
        if value not in known:
            message = f"`{flag}` must be one of {', '.join(known)}, got '{value}'."
            raise ValueError(f"{message} {choices.near(value, known)}".rstrip())


def _whole(value: str) -> str:
    """The way out for a whole number written as another, such as 1e6."""
    with contextlib.suppress(ValueError):
        if float(value).is_integer():
            return f" Write {int(float(value))}."
    return ""
