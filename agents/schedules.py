"""Numbers that change while an agent learns."""

from collections.abc import Callable
from typing import TypeAlias

Schedule: TypeAlias = Callable[[int], float]
"""A number that depends on the number of steps so far: any function will do."""


def constant(value: float) -> Schedule:
    """Returns a schedule that is always `value`."""
    return lambda num_steps: value


def linear(first: float, last: float, num_steps: int) -> Schedule:
    """Returns a schedule that goes linearly from `first` to `last` in `num_steps` steps, then stays there.

    Raises:
        ValueError: `num_steps` is below 1.
    """
    if num_steps < 1:
        raise ValueError(f"`num_steps` must be >= 1, got {num_steps}. Use `constant` for a fixed value.")
    return lambda step: first + (last - first) * min(step / num_steps, 1.0)
