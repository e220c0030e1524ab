"""Which numbers are taken: by config fields, as in `discount: constraints.Share = 0.99`, and from data."""

import typing
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

LARGEST = 1e15
"""The largest magnitude of a number that is learned from; a larger one is refused like nan.

Float32 holds no square of a number above 1.8e19. Of numbers up to 1e15 it holds the sum of a hundred million
squares, so that no variance, norm or squared error of data overflows.
"""


class Constraint(NamedTuple):
    """A condition on a value, as metadata of an `Annotated` type."""

    expected: str  # for the message, such as ">= 1"
    holds: Callable[[Any], bool]


Count = Annotated[int, Constraint(">= 1", lambda value: value >= 1)]
Natural = Annotated[int, Constraint(">= 0", lambda value: value >= 0)]
NonNegative = Annotated[float, Constraint(">= 0", lambda value: value >= 0)]
Positive = Annotated[float, Constraint("> 0", lambda value: value > 0)]
Share = Annotated[float, Constraint("in [0, 1]", lambda value: 0 <= value <= 1)]
Sizes = Annotated[
    tuple[int, ...],
    Constraint("one or more sizes >= 1", lambda value: len(value) > 0 and min(value) >= 1),
]


def check_fields(config: Any) -> None:
    """Checks the fields of a dataclass by the constraints and the choices (`Literal`) of their types.

    Raises:
        ValueError: one does not hold; the message names the field, what it must be and what it is.
    """
    for name, hint in typing.get_type_hints(type(config), include_extras=True).items():
        value = getattr(config, name)
        conditions = [mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, Constraint)]
        if typing.get_origin(hint) is Literal:
            choices = typing.get_args(hint)
            conditions.append(Constraint(f"one of {choices}", choices.__contains__))
        for expected, holds in conditions:
            if not holds(value):
                raise ValueError(f"`{name}` must be {expected}, got {value!r}.")
