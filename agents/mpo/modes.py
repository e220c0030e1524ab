"""Networks that compute something else in training than in acting, such as those with dropout."""

import contextlib
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torch import nn


def parts_for_training(*modules: nn.Module) -> list[nn.Module]:
    """Returns the parts of modules with a method that reads `training`, such as dropout and batch norm.

    A method may read it in functions that it calls, if they are globals of its file. Recurrent layers are
    left out: cuDNN differentiates them in training mode alone.
    """
    return [
        part
        for part in nn.ModuleList(modules).modules()
        if not isinstance(part, nn.RNNBase) and _read_training(_methods(part), set())
    ]


def _methods(part: nn.Module) -> Iterator[Any]:
    """Yields what a module has in its classes and by itself, without what every module has."""
    yield from vars(part).values()
    for kind in type(part).__mro__:
        if kind is nn.Module:
            return
        yield from vars(kind).values()


def _read_training(values: Iterable[Any], seen: set[int]) -> bool:
    """Returns whether a function, or one that it calls, inside of it or behind a decorator, reads `training`.

    Args:
        values: What may be functions.
        seen: The `id`s of functions that were looked at.
    """
    for value in values:
        if isinstance(value, types.CodeType):
            # By name, also in `getattr(self, "training")`.
            if "training" in (*value.co_names, *value.co_consts) or _read_training(value.co_consts, seen):
                return True
        elif id(value) not in seen and isinstance(value, _FUNCTIONS):
            seen.add(id(value))
            if _read_training(_behind(value), seen):
                return True
    return False


_FUNCTIONS = (types.FunctionType, types.MethodType, property, staticmethod, classmethod)


def _behind(value: Any) -> Iterator[Any]:
    """Yields the code of a function, what is in its closure, and the globals that it names."""
    yield from (cell.cell_contents for cell in getattr(value, "__closure__", None) or () if _is_set(cell))
    yield from (getattr(value, name, None) for name in ("__code__", "__func__", "__wrapped__", "fget"))
    if isinstance(value, types.FunctionType) and not (value.__module__ or "").startswith("torch."):
        yield from map(value.__globals__.get, value.__code__.co_names)


def _is_set(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


@contextlib.contextmanager
def as_in_acting(parts: Sequence[nn.Module]) -> Iterator[None]:
    """Sets parts to evaluation mode within the block, without those inside of them."""
    modes = [part.training for part in parts]
    for part in parts:
        part.training = False
    try:
        yield
    finally:
        for part, mode in zip(parts, modes, strict=True):
            part.training = mode
