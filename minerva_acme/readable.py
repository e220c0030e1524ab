"""Text for people: counts, and the `repr` of objects that they look at in a session, without addresses."""

import dataclasses
from collections.abc import Mapping
from typing import Any


def count(number: int, noun: str) -> str:
    """Returns a number with its noun: "1 episode", "1,000 episodes"."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


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
