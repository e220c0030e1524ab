"""The help of one command: its flags, with the descriptions and headings of its dataclasses."""

import ast
import dataclasses
import inspect
import pathlib
import re
import textwrap
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import tyro

from minerva_acme import constraints
from minerva_acme.cli import flags

WIDTH = 80
_INDENT = 6
# A comment above a field that is a heading: "# Networks." or "# Replay; the rest is elsewhere."
_HEADING = re.compile(r"\s*# ([A-Z][\w ]*)[.;]")
_VALUES: dict[Any, str] = {int: "N", float: "X", str: "TEXT", pathlib.Path: "PATH", constraints.Path: "PATH"}


class _Words(NamedTuple):
    text: str
    heading: str  # "" before the first heading


class _Flag(NamedTuple):
    name: str
    hint: Any
    default: Any  # dataclasses.MISSING if the flag is required
    words: _Words


def page(command: type[Any], program: str, title: str = "") -> str:
    """Returns the help of a command.

    Args:
        command: The command's dataclass, which may contain other dataclasses.
        program: The words that call it, such as "minerva train mpo".
        title: The title of the agent whose settings are in the field `hyperparameters`.
    """
    own: list[_Flag] = []
    positional: list[_Flag] = []
    sections: dict[str, list[_Flag]] = {"Flags": own}
    for flag in _flags(command):
        marks = getattr(flag.hint, "__metadata__", ())
        if dataclasses.is_dataclass(flag.hint):
            named = title if flag.name == "hyperparameters" else ""
            for inner in _flags(flag.hint, flag.default):
                heading = ": ".join(filter(None, (named, inner.words.heading.lower())))
                sections.setdefault(heading if named else "The run", []).append(inner)
        elif tyro.conf.Positional in marks:
            # The agent is already part of `program`.
            positional += [flag] if not (title and flag.name == "agent") else []
        else:
            own.append(flag)
    needed = [f"--{flag.name.replace('_', '-')} {_value(flag.hint)}" for flag in own if _is_needed(flag)]
    usage = " ".join([f"usage: {program}", *map(_placeholder, positional), *needed, "[FLAG ...]"])
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    blocks = [usage, *map(wrap, paragraphs)]
    for heading, found in {"Arguments": positional, **sections}.items():
        if found:
            blocks.append("\n".join([f"{heading}:", *map(_entry, found)]))
    return "\n\n".join(blocks)


def _flags(kind: Any, default: Any = dataclasses.MISSING) -> Iterator[_Flag]:
    """Yields the fields of a dataclass, with defaults from an instance of it if one is given."""
    hints = constraints.type_hints(kind)
    words = _words(kind)
    for field in dataclasses.fields(kind):
        value = field.default if default is dataclasses.MISSING else getattr(default, field.name)
        hint = hints[field.name]
        if tyro.conf.Suppress not in getattr(hint, "__metadata__", ()):
            yield _Flag(field.name, hint, value, words.get(field.name, _Words("", "")))


def _words(kind: type[Any]) -> Mapping[str, _Words]:
    """Returns the description below each field in the source, and the heading above it."""
    found: dict[str, _Words] = {}
    for base in reversed(kind.__mro__):
        try:
            source = textwrap.dedent(inspect.getsource(base))
        except (OSError, TypeError):  # created at run time, or built in
            continue
        [definition] = ast.parse(source).body
        lines, heading, end = source.splitlines(), "", 0
        body = getattr(definition, "body", [])
        for statement, below in zip(body, [*body[1:], None], strict=True):
            for line in lines[end : statement.lineno]:
                match = _HEADING.match(line)
                heading = match.group(1) if match else heading
            end = statement.end_lineno or end
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                name, text = statement.target.id, _text(below)
                before = found.get(name, _Words("", heading))
                found[name] = _Words(text or before.text, heading or before.heading)
    return found


def _text(statement: ast.stmt | None) -> str:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return " ".join(str(statement.value.value).split())
    return ""


def _entry(flag: _Flag) -> str:
    name = f"--{flag.name.replace('_', '-')}"
    if tyro.conf.Positional in getattr(flag.hint, "__metadata__", ()):
        typed = _placeholder(flag)
    elif flags.read(flag.hint)[0] is bool:
        typed = f"{name}, --no-{name.removeprefix('--')}"
    else:
        typed = f"{', '.join(flags.names(name))} {_value(flag.hint)}"
    words = " ".join(filter(None, (flag.words.text, _default(flag))))
    return "\n".join([f"  {typed}", wrap(words, " " * _INDENT)])


def wrap(text: str, indent: str = "", first: str | None = None) -> str:
    """Wraps text to the width of the page, without breaking flags.

    Args:
        text: The text; any whitespace separates its words.
        indent: The indent of each line.
        first: The beginning of the first line, instead of the indent.
    """
    return textwrap.fill(
        " ".join(text.split()),
        WIDTH,
        initial_indent=indent if first is None else first,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )


def _default(flag: _Flag) -> str:
    value = flag.default
    if _is_needed(flag):
        return "(required)"
    if value is dataclasses.MISSING or value is None or value == () or value == "":
        return ""
    if isinstance(value, bool):
        return f"(default: {'yes' if value else 'no'})"
    return f"(default: {','.join(map(str, value)) if isinstance(value, tuple) else value})"


def _is_needed(flag: _Flag) -> bool:
    # The default number of steps depends on the environment.
    return flag.default is dataclasses.MISSING and flag.name != "num_env_steps"


def _placeholder(flag: _Flag) -> str:
    kind, many, _ = flags.read(flag.hint)
    name = _value(flag.hint) if typing.get_origin(kind) is Literal else flag.name.upper()
    if many:
        name = f"{re.sub('IES$', 'Y', name).removesuffix('S')} ..."
    return name if _is_needed(flag) else f"[{name}]"


def _value(hint: Any) -> str:
    kind, many, _ = flags.read(hint)
    choices = ",".join(map(str, typing.get_args(kind)))
    name = f"{{{choices}}}" if typing.get_origin(kind) is Literal else _VALUES.get(kind, "VALUE")
    return f"{name} ..." if many else name
