"""Which config a builder takes, as its annotations say."""

import dataclasses
import inspect
import typing
from collections.abc import Iterator
from typing import Any


def find_config(builder: type[Any]) -> type[Any]:
    """Returns the config dataclass of a builder's class.

    It is the annotation of the first argument of its `__init__`, with type variables as the class's bases
    give them (`OnPolicyBuilder[MyConfig]`); else that of the class attribute `config`.

    Raises:
        ValueError: neither is a dataclass.
    """
    given = dict(_type_arguments(builder))
    try:
        taken = list(inspect.signature(builder.__init__).parameters)[1:2]
        hints = typing.get_type_hints(builder.__init__)
        candidates = [hints.get(name) for name in taken] + [typing.get_type_hints(builder).get("config")]
    except NameError as error:
        raise ValueError(
            f"The annotations of {builder.__name__} must be names that its module has, but {error}. Import "
            "them also where not only type checkers look."
        ) from error
    for found in candidates:
        while isinstance(found, typing.TypeVar):
            found = given.get(found)
        if isinstance(found, type) and dataclasses.is_dataclass(found):
            return found
    raise ValueError(
        f"{builder.__name__} must say which config it takes, a dataclass, but does not. Annotate it: "
        "`def __init__(self, config: MyConfig)`, or `config: MyConfig` in the class."
    )


def check_config(builder: Any, config: Any) -> None:
    """Checks that a builder is given a config of the class that it takes, where it says which that is.

    Raises:
        ValueError: it is another; the message says what to write.
    """
    name = type(builder).__name__
    if isinstance(config, type):
        raise ValueError(
            f"{name} must be given a config, got the class {config.__name__}. Make one of it: "
            f"{name}({config.__name__}())"
        )
    # A subclass may take another config, and make its base's from it.
    taken = [found for kind in type(builder).__mro__ if (found := _find_config_or_none(kind)) is not None]
    if taken and not isinstance(config, tuple(taken)):
        expected = taken[0].__name__
        raise ValueError(
            f"{name} must be given a {expected}, got {type(config).__name__}. Write {name}({expected}(...)), "
            "or take the builder that belongs to your config."
        )


def _find_config_or_none(builder: type[Any]) -> type[Any] | None:
    try:
        return find_config(builder)
    except (TypeError, ValueError):  # it is no builder, or does not say it
        return None


def _type_arguments(kind: type[Any]) -> Iterator[tuple[Any, Any]]:
    """Yields the type variables of a class's generic bases and what they stand for."""
    for base in kind.__mro__:
        for written in base.__dict__.get("__orig_bases__", ()):
            variables = getattr(typing.get_origin(written), "__parameters__", ())
            for variable, argument in zip(variables, typing.get_args(written), strict=False):
                if variable is not argument:  # passed on
                    yield variable, argument
