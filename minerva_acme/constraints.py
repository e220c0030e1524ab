"""Valid ranges of numbers: in config fields, as in `discount: constraints.Share = 0.99`, and in data."""

import contextlib
import functools
import itertools
import operator
import pathlib
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Annotated, Any, Literal, NamedTuple

from minerva_acme.machine import memory

LARGEST = 1e15
"""The largest magnitude of a number in training data. A larger number is rejected, as nan is.

In float32, the square of a number above 1.8e19 overflows. Up to 1e15, even the sum of a hundred million
squares does not, so no variance, norm or squared error of the data overflows.
"""


class Constraint(NamedTuple):
    """A condition on a value, as metadata of an `Annotated` type."""

    expected: str  # for the message, such as ">= 1"
    holds: Callable[[Any], bool]


class Range(NamedTuple):
    """The values of a config field that a search of settings tries, as metadata of an `Annotated` type.

    It is a sensible range for most tasks and no condition: other values are valid too.
    """

    low: float
    high: float
    log: bool = False  # whether values are drawn by their logarithm

    def __str__(self) -> str:
        """Returns the range as `minerva sweep --search` takes it."""
        return f"{self.low:g}..{self.high:g}{':log' if self.log else ''}"


def search_range(hint: Any) -> Range | None:
    """Returns the range that a field's type declares, or None."""
    return next((mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, Range)), None)


Count = Annotated[int, Constraint(">= 1", lambda value: value >= 1)]
Natural = Annotated[int, Constraint(">= 0", lambda value: value >= 0)]
NonNegative = Annotated[float, Constraint(">= 0", lambda value: value >= 0)]
Positive = Annotated[float, Constraint("> 0", lambda value: value > 0)]
Share = Annotated[float, Constraint("in [0, 1]", lambda value: 0 <= value <= 1)]
Discount = Annotated[Share, Range(0.95, 0.999)]
LearningRate = Annotated[Positive, Range(1e-5, 3e-3, log=True)]

_MEMORY_BYTES = memory.total_bytes()  # read once: a sweep makes thousands of configs
_NUM_CLASSES = 256  # whose types are cached


WEIGHT_BYTES = 16
"""The memory of a trained weight, in bytes: a float32, its gradient and Adam's two moments."""


def fit_into_memory(sizes: Sequence[int]) -> bool:
    """Returns whether this machine has enough memory to train fully connected layers of these sizes."""
    num_weights = sum(sizes) + sum(before * after for before, after in itertools.pairwise(sizes))
    return WEIGHT_BYTES * num_weights <= _MEMORY_BYTES


FITTING = (
    "sizes that can be trained with this machine's "
    f"{memory.describe(_MEMORY_BYTES)} of memory, at {WEIGHT_BYTES} bytes a weight"
)
Sizes = Annotated[
    tuple[int, ...],
    Constraint(
        "one or more sizes >= 1",
        lambda value: len(value) > 0 and all(_TYPES[int].holds(size) and size >= 1 for size in value),
    ),
    # With one input and one output, since the real numbers are not known here.
    Constraint(FITTING, lambda value: fit_into_memory((1, *value, 1))),
]

Names = Annotated[
    tuple[str, ...],
    Constraint("different names", lambda value: len({*value}) == len(value) and all(map(len, value))),
]

MemorySize = Annotated[
    int,
    Constraint(">= 1", lambda value: value >= 1),
    Constraint(FITTING, lambda value: fit_into_memory((value, 4 * value))),
]

Path = str | pathlib.Path
"""The path of a folder or a file."""

_WHOLE = "a whole number"
# Conditions on the values of each type, since a file may contain anything.
_TYPES = {
    bool: Constraint("true or false", lambda value: isinstance(value, bool)),
    str: Constraint("text", lambda value: isinstance(value, str)),
    Path: Constraint("a path", lambda value: isinstance(value, Path)),
    int: Constraint(_WHOLE, lambda value: isinstance(value, Integral) and value is not True),
    Mapping: Constraint(
        "a mapping of names to values",
        lambda value: isinstance(value, Mapping) and all(isinstance(name, str) for name in value),
    ),
    float: Constraint("a number", lambda value: isinstance(value, Real) and value == value),
}


def without_none(hint: Any) -> tuple[Any, bool]:
    """Returns a type without None, such as X for `X | None`, and whether it has None."""
    parts = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else ()
    if types.NoneType not in parts:
        return hint, False
    return functools.reduce(operator.or_, (part for part in parts if part is not types.NoneType)), True


def type_hints(kind: Any) -> Mapping[str, Any]:
    """Returns `typing.get_type_hints` of a class, with extras. The results are cached.

    Raises:
        NameError: A name in the types is not defined in the class's module.
    """
    return _type_hints(kind)


@functools.lru_cache(_NUM_CLASSES)
def _type_hints(kind: Any) -> Mapping[str, Any]:
    return types.MappingProxyType(typing.get_type_hints(kind, include_extras=True))


def check_fields(config: Any, of: str = "") -> None:
    """Checks the fields of a dataclass against their types, including constraints and `Literal` choices.

    If the type of a field is a NamedTuple, or a union of some, its value must be of exactly one of these: an
    instance of a derived class would be taken for something else. The value's own fields are checked too.

    Args:
        config: The dataclass, or a NamedTuple.
        of: What the fields are of, for the message, such as " of the sampler".

    Raises:
        ValueError: A field is invalid; the message gives its name, the expected value and the actual one.
    """
    kind: Any = type(config)
    for rule in _rules(kind):
        name, value = rule.name, getattr(config, rule.name)
        if value is None and rule.may_be_none:
            continue
        or_none = " or None" if rule.may_be_none else ""
        if kinds := rule.named_tuples:
            if type(value) not in kinds:
                way_out = (
                    f" Write {value.__name__}(...)." if isinstance(value, type) and value in kinds else ""
                )
                expected = " or ".join(kind.__name__ for kind in kinds)
                raise ValueError(f"`{name}`{of} must be {expected}{or_none}, got {value!r}.{way_out}")
            check_fields(value, f" of the {name.replace('_', ' ')}")
        for expected, holds in rule.conditions:
            with contextlib.suppress(TypeError):  # a value that cannot even be compared
                if holds(value):
                    continue
            way_out = f" Write {value:.0f}." if expected == _WHOLE and _is_integral(value) else ""
            raise ValueError(f"`{name}`{of} must be {expected}{or_none}, got {value!r}.{way_out}")


class _Rule(NamedTuple):
    """The checks that the type of a field implies."""

    name: str
    may_be_none: bool
    named_tuples: tuple[Any, ...]
    conditions: list[Constraint]


@functools.lru_cache(_NUM_CLASSES)
def _rules(kind: Any) -> list[_Rule]:
    """Returns the checks that the types of a class's fields imply."""
    rules = []
    for name, hint in type_hints(kind).items():
        hint, may_be_none = without_none(hint)
        base = getattr(hint, "__origin__", hint)  # of an `Annotated` type
        conditions = [mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, Constraint)]
        if typing.get_origin(hint) is Literal:
            choices = typing.get_args(hint)
            conditions.append(Constraint(f"one of {choices}", choices.__contains__))
        if base in _TYPES:
            conditions.append(_TYPES[base])
        rules.append(_Rule(name, may_be_none, _named_tuples(hint), conditions))
    return rules


def _named_tuples(hint: Any) -> tuple[Any, ...]:
    """Returns the parts of a type that is a NamedTuple, or a union of some; () for other types."""
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    parts = typing.get_args(hint) if is_union else (hint,)
    return parts if all(isinstance(part, type) and hasattr(part, "_fields") for part in parts) else ()


def _is_integral(value: Any) -> bool:
    return isinstance(value, float) and value.is_integer()
