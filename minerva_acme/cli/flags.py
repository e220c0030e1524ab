"""Flags as users write them, normalised and checked before the parser sees them.

`1e5` is read as a whole number and `64,64` as two. The parser's own messages about values only mention types.
"""

import argparse
import contextlib
import dataclasses
import re
import types
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import tyro

from minerva_acme import constraints
from minerva_acme.cli import choices
from minerva_acme.names import foreign_names

AGENT = "--agent"
"""Another way to name the agent of `minerva train`, natural for the path of a builder."""

OTHER_NAMES = {"--num-envs": "--num-environments", "--environment": "--env", "--from": "--from-run"}
"""Other names of flags, with the names that they stand for."""

_SHORTER = {"--num-environments": "--num-envs", "--from-run": "--from"}  # as documented
_BY_COMMAS = ("--log", "--format", "--published", "--against", "--checkpoint")
_SHORT_FLAG = re.compile(r"-(?!inf$|nan$)[A-Za-z][\w-]*", re.IGNORECASE)
_NUMBERS: dict[Any, str] = {int: "a whole number", float: "a number"}


def of(command: type[Any]) -> Iterator[tuple[str, Any]]:
    """Yields the flags of a command's fields, and their types; nested fields have no prefix."""
    hints = constraints.type_hints(command)
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


def names(flag: str) -> list[str]:
    """Returns the names under which a flag can be given, its own first."""
    return [flag, *(other for other, own in OTHER_NAMES.items() if own == flag)]


def check_config(config: type[Any], *, taken: Collection[str]) -> None:
    """Checks that the fields of an agent's config can be flags, with values that `run.json` can restore.

    Args:
        config: The dataclass.
        taken: Flags that already have another meaning.

    Raises:
        ValueError: A field has another type, or its flag is taken; the message names it.
    """
    try:
        hints = constraints.type_hints(config)
    except NameError as error:
        raise ValueError(
            f"The types of {config.__name__}'s fields must be defined in its module, but {error}. Import "
            "them at run time, not only for type checkers."
        ) from error
    for field in dataclasses.fields(config):
        if not (field.init and _is_plain(hints[field.name])):
            kind = getattr(field.type, "__name__", field.type)
            raise ValueError(
                f"`{field.name}` of {config.__name__} cannot be a flag: it must be an argument of type bool, "
                f"int, float, str, Literal, None, or a union or tuple of these, got {kind}. Make it in the "
                "builder, or in a property of the config, from fields that can be flags; or train from "
                "Python with `run_experiment`."
            )
        if (flag := f"--{field.name.replace('_', '-')}") in taken:
            raise ValueError(
                f"`{field.name}` of {config.__name__} must have another name: {flag} is a flag of "
                "`minerva train` itself."
            )


def _is_plain(hint: Any) -> bool:
    """Returns whether values of this type can be flags, and are the same after a round trip through JSON."""
    kind, parts = typing.get_origin(hint), typing.get_args(hint)
    if kind is Annotated:
        return _is_plain(parts[0])
    if kind in (tuple, typing.Union, types.UnionType):
        return all(part is ... or _is_plain(part) for part in parts)
    return kind is Literal or hint in (*_NUMBERS, bool, str, types.NoneType)


def take(arguments: Sequence[str], *names: str) -> tuple[str | None, list[str]]:
    """Removes a flag from the arguments, wherever it is.

    Returns:
        The flag's last value, or None if it has none, and the other arguments.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(*names, dest="value", nargs="?")
    taken, others = parser.parse_known_args(arguments)
    return taken.value, others


def settle(arguments: Sequence[str], hints: Mapping[str, Any], command: str) -> tuple[list[str], list[str]]:
    """Normalises the names of flags, checks their values and splits these at commas.

    Args:
        arguments: The arguments as typed, after the command.
        hints: The command's flags and the types of their values.
        command: The command, for messages.

    Returns:
        The positional arguments, and all flags with their values.

    Raises:
        ValueError: The command has no such flag, a flag has one dash, or a value is invalid; the message
            says what there is.
    """
    positional: list[str] = []
    settled: list[str] = []
    for flag, words in _by_flag(arguments, hints, command):
        kind, many, may_be_none = read(hints.get(flag))
        num_values = len(words) if many else int(flag != "")
        values = words[:num_values]
        positional += words[num_values:]
        if many and (kind in _NUMBERS or flag in _BY_COMMAS):
            values = [part for value in values for part in value.strip("()[]").split(",") if part]
        if not (may_be_none and values == ["None"]):
            values = [_read_value(flag, value, kind) for value in values]
        is_appended = tyro.conf.UseAppendAction in getattr(hints.get(flag), "__metadata__", ())
        if is_appended and values:
            settled += [word for value in values for word in (flag, value)]
        elif len(values) == 1 and values[0].startswith("-"):  # -2000:0, which would be read as a flag
            settled.append(f"{flag}={values[0]}")
        else:
            settled += [*filter(None, [flag]), *values]
    return positional, settled


def split(
    arguments: Sequence[str], own: Mapping[str, Any], others: Mapping[str, Any], command: str
) -> tuple[list[str], tuple[tuple[str, tuple[tuple[str, ...], ...]], ...]]:
    """Separates the flags of another command, with lists of values, from a command's own arguments.

    Args:
        arguments: The arguments as typed, after the command.
        own: The command's flags and the types of their values.
        others: The other command's flags and the types of their values.
        command: The command, for messages.

    Returns:
        The command's own arguments; and, for each of the other flags, the words of every value to try,
        including the flag. The parts of one value are separated by commas.

    Raises:
        ValueError: Neither command has such a flag, a flag has one dash, or a flag has no value.
    """
    left: list[str] = []
    found: dict[str, list[tuple[str, ...]]] = {}
    for flag, words in _by_flag(arguments, {**others, **own}, command):
        if flag in own or flag not in others:
            left += [*filter(None, [flag]), *words]
        elif others[flag] is bool:
            found.setdefault(flag.replace("--no-", "--"), []).append((flag,))
            left += words
        elif words:
            _, many, _ = read(others[flag])
            values = (word.split(",") if many else [word] for word in words)
            found.setdefault(flag, []).extend((flag, *value) for value in values)
        else:
            raise ValueError(f"`{flag}` must have one or more values to try, got none.")
    return left, tuple((flag, tuple(values)) for flag, values in found.items())


def _by_flag(
    arguments: Sequence[str], hints: Mapping[str, Any], command: str
) -> Iterator[tuple[str, list[str]]]:
    """Yields each flag, by its own name, with the words after it; first "" with the words before them."""
    flag, words = "", list[str]()
    for argument in arguments:
        if argument.startswith("--") and len(argument) > 2:
            yield flag, words
            written, equals, value = argument.partition("=")
            flag, words = written.replace("_", "-"), [value] if equals else []
            flag = flag if flag == "--help" else find(flag, hints, command)
        elif _SHORT_FLAG.fullmatch(argument):
            find(argument, hints, command)  # raises: ours have two dashes
        else:
            words.append(argument)
    yield flag, words


def find(flag: str, hints: Mapping[str, Any], command: str) -> str:
    """Returns a flag's own name.

    Args:
        flag: The flag, with dashes.
        hints: The command's flags and the types of their values.
        command: The command, for messages.

    Raises:
        ValueError: The command has no such flag; the message suggests similar ones.
    """
    if flag not in hints and OTHER_NAMES.get(flag) in hints:
        return OTHER_NAMES[flag]
    if flag in hints:
        return flag
    known = (*hints, AGENT) if "--env" in hints else hints
    name = foreign_names.table("short_flags").get(flag, flag.removeprefix("--").replace("-", "_"))
    entries = foreign_names.table("elsewhere").get(name, ())
    parts = (entry.partition(" ") for entry in entries)
    ours = {f"--{own.replace('_', '-')}": space + remark for own, space, remark in parts}
    words = {own: f"{_SHORTER.get(own, own)}{remark}" for own, remark in ours.items()}
    here = [text for own, text in words.items() if own in known]
    if here:
        raise ValueError(f"`{command}` has no flag {flag}. Here it is {' or '.join(here)}.")
    if advice := foreign_names.table("flag_advice").get(name):
        raise ValueError(f"`{command}` has no flag {flag}. {advice}")
    if words and "--seed" in hints:  # of an agent, not of a command that does something else
        raise ValueError(
            f"`{command}` has no flag {flag}. Here it is {' or '.join(words.values())}, which this command "
            "does not have. Leave it out."
        )
    hint = choices.near(flag, sorted(hints), at_most=3) or f"For all flags: {command} --help"
    raise ValueError(f"`{command}` has no flag {flag}. {hint}")


def read(hint: Any) -> tuple[Any, bool, bool]:
    """Returns the type of a flag's value, whether it may have several values, and whether it may be None."""
    if typing.get_origin(hint) is Annotated:
        hint = typing.get_args(hint)[0]
    kind, may_be_none = constraints.without_none(hint)
    many = typing.get_origin(kind) is tuple
    return typing.get_args(kind)[0] if many else kind, many, may_be_none


def _read_value(flag: str, value: str, kind: Any) -> str:
    """Returns a value in the form that the parser reads; raises ValueError if it has the wrong type."""
    if kind in _NUMBERS:
        try:
            if kind is int:
                return str(_whole(value))
            float(value)
        except ValueError:
            raise ValueError(f"`{flag}` must be {_NUMBERS[kind]}, got '{value}'.") from None
    elif typing.get_origin(kind) is Literal:
        known = [str(choice) for choice in typing.get_args(kind)]
        if value not in known:
            message = f"`{flag}` must be one of {', '.join(known)}, got '{value}'."
            raise ValueError(f"{message} {choices.near(value, known)}".rstrip())
    return value


def _whole(value: str) -> int:
    """Reads a whole number, including one with an exponent: 1e5, 2.5e6."""
    with contextlib.suppress(ValueError):
        return int(value)
    number = float(value)
    if "e" not in value.lower() or not number.is_integer():
        raise ValueError(value)
    return int(number)
