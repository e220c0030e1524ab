"""Networks that compute something else in training than in acting, such as those with dropout."""

import contextlib
import types
from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn


def parts_for_training(*modules: nn.Module) -> list[nn.Module]:
    """Returns the parts of modules with a method that reads `training`, such as dropout and batch norm.

    Recurrent layers are left out: cuDNN differentiates them in training mode alone.
    """
    return [
        part
        for part in nn.ModuleList(modules).modules()
        if not isinstance(part, nn.RNNBase) and any(map(_reads_training, _methods(part)))
    ]


def _methods(part: nn.Module) -> Iterator[Any]:
    """Yields what a module has in its classes and by itself, without what every module has."""
    yield from vars(part).values()
    for kind in type(part).__mro__:
        if kind is nn.Module:
            return
        yield from vars(kind).values()


def _reads_training(value: Any) -> bool:
    """Returns whether a function, or one inside of it or behind a decorator, reads `training`."""
    if isinstance(value, types.CodeType):
        return "training" in value.co_names or any(map(_reads_training, value.co_consts))
    if not isinstance(value, types.FunctionType | types.MethodType | property | staticmethod | classmethod):
        return False
    behind = [cell.cell_contents for cell in getattr(value, "__closure__", None) or () if _is_set(cell)]
    behind += [getattr(value, name, None) for name in ("__code__", "__func__", "__wrapped__", "fget")]
    return any(map(_reads_training, behind))


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
