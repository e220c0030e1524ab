"""Numbers that change while an agent learns."""

from collections.abc import Callable
from typing import TypeAlias

Schedule: TypeAlias = Callable[[int], float]
"""A number that depends on how many steps were made: any function does."""


def constant(value: float) -> Schedule:
    """Always the same."""
    return lambda num_steps: value


def linear(first: float, last: float, num_steps: int) -> Schedule:
    """From `first` to `last` in so many steps, and `last` from then on.

    Raises:
        ValueError: `num_steps` is below 1.
    """
    if num_steps < 1:
        raise ValueError(f"`num_steps` must be >= 1, got {num_steps}. `constant` does not change.")
    return lambda step: first + (last - first) * min(step / num_steps, 1.0)
