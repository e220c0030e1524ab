"""Text for people: counts, the `repr` of objects without addresses, and what a wrong name may mean."""

import dataclasses
import difflib
import os
import pkgutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

_MAX_LISTED = 8


def count(number: int, noun: str) -> str:
    """Returns a number with its noun: "1 episode", "1,000 episodes"."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def missing(error: ModuleNotFoundError, fix: str) -> str:
    """Returns, for a message, the name of a missing module, and how to get it.

    Args:
        error: What its import raised.
        fix: How to install it. A module of Python's own is missing where Python was built without it, so that
            no package helps.
    """
    if (error.name or "").partition(".")[0] in sys.stdlib_module_names:
        return f"'{error.name}', a module of Python's own that this Python was built without: use another"
    return f"'{error.name}', which is not installed: {fix}"


def in_lines(title: str, rows: Mapping[str, object]) -> str:
    """Returns a title, and below it a line for each row, with the names in a column."""
    width = max(map(len, rows), default=0)
    return "\n".join([title, *(f"  {name:{width}}  {text}" for name, text in rows.items())])


def of_module(module: Any) -> str:
    """Describes a PyTorch module by its class and its number of parameters."""
    num_parameters = sum(parameter.numel() for parameter in module.parameters())
    return (
        f"{type(module).__name__}, {num_parameters:,} parameters" if num_parameters else type(module).__name__
    )


def of_modules(modules: Any) -> str:
    """Describes a named tuple of PyTorch modules, with a line for each."""
    return in_lines(
        type(modules).__name__, {name: of_module(module) for name, module in modules._asdict().items()}
    )


def of_config(config: Any) -> str:
    """Describes a dataclass by the values that differ from its defaults: `PPOConfig(num_environments=1)`."""
    changed = []
    for field in dataclasses.fields(config):
        value, default = getattr(config, field.name), field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        if field.repr and (default is dataclasses.MISSING or value != default):
            changed.append(f"{field.name}={value!r}")
    return f"{type(config).__name__}({', '.join(changed)})"


def of_names_in(found: Any, name: str, others: Sequence[str] = ()) -> str:
    """Says which class or function may be meant by a name that a module or class does not have.

    Args:
        found: The module, or a class.
        name: The name, which it does not have.
        others: Names besides those that are defined in it.
    """
    title = getattr(found, "__name__", type(found).__name__)
    module = getattr(found, "__module__", title)
    own = [
        key
        for key, value in getattr(found, "__dict__", {}).items()
        if f"{getattr(value, '__module__', '')}.".startswith(f"{module}.")
        and callable(value)
        and not key.startswith("_")
    ]
    near = difflib.get_close_matches(name, [*own, *others], n=2)
    if not near:
        return f"It has {', '.join([*own, *others][:_MAX_LISTED]) or 'no class and no function'}."
    place = f"{module}:" if module == title else f"{module}:{getattr(found, '__qualname__', title)}."
    return f"Did you mean {' or '.join(f'{place}{one}' for one in near)}?"


def of_modules_like(module: str, name: str) -> str:
    """Says what may be meant by `module:name` if there is no such module."""
    if module.endswith(".py"):
        stem = module.removesuffix(".py").removeprefix("./").replace("/", ".")
        return f"A module has no suffix: {stem}:{name}"
    here = [found.name for found in pkgutil.iter_modules([os.getcwd()])]
    if near := difflib.get_close_matches(module, here, n=1):
        return f"Did you mean {near[0]}:{name}?"
    return "Install its package, run the command in its folder, or put that folder into PYTHONPATH."
