"""Arguments of environments as text, `key=value`, as `--env-kwargs` takes them."""

import ast
import json
import tomllib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

_TAKEN = "seed"  # which the run itself gives


def read(words: Iterable[str]) -> dict[str, Any]:
    """Returns arguments by name; if a name is given twice, the last value counts.

    A value is read as TOML (true, 1e3, [1, 2]), otherwise as a literal of Python (None, (1, 2)), otherwise,
    or if run.json could not restore it, taken as a string. Lists become tuples.

    Args:
        words: The arguments, each as `key=value`.

    Raises:
        ValueError: A word is of another form, or sets the seed.
    """
    arguments = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (equals and name.isidentifier()):
            raise ValueError(
                f"`--env-kwargs` must be KEY=VALUE with an argument of the environment, got '{word}'. For "
                "example: --env-kwargs gravity=9.81 size=small"
            )
        if name == _TAKEN:
            raise ValueError(
                f"`--env-kwargs` must not set the seed, got '{word}'. Use the command's own flag."
            )
        arguments[name] = _read_value(value)
    return arguments


def write(arguments: Mapping[str, Any]) -> list[str]:
    """Returns words that `read` maps to these arguments, which are plain values."""
    # TOML has escapes only in double quotes.
    return [
        f"{name}={json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)}"
        for name, value in arguments.items()
    ]


def with_settings(environment: str, arguments: Mapping[str, Any]) -> str:
    """Returns the name of an environment with arguments: my_robot:Robot,gravity=3.7 is a task of its own."""
    return ",".join([environment, *(f"{name}={value}" for name, value in sorted(arguments.items()))])


def with_tuples(value: Any) -> Any:
    """Returns a plain value with its lists as tuples."""
    if isinstance(value, list | tuple):
        return tuple(map(with_tuples, value))
    return {name: with_tuples(part) for name, part in value.items()} if isinstance(value, dict) else value


def is_plain(value: Any) -> bool:
    """Returns whether the value survives a round trip through JSON, with lists as tuples."""
    try:
        return bool(with_tuples(json.loads(json.dumps(value))) == value)
    except (TypeError, ValueError):
        return False


def _read_value(text: str) -> Any:
    readers: tuple[Callable[[str], Any], ...] = (_read_toml, ast.literal_eval)
    for reader in readers:
        try:
            value = with_tuples(reader(text))
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
        if is_plain(value):
            return value
    return text


def _read_toml(text: str) -> Any:
    [value] = tomllib.loads(f"value = {text}").values()
    return value
