"""Networks that compute something else in training than in acting, such as those with dropout."""

import contextlib
from collections.abc import Iterator, Sequence

from torch import nn


def parts_for_training(*modules: nn.Module) -> list[nn.Module]:
    """Returns the parts of modules whose `forward` depends on `training`, such as dropout and batch norm.

    Recurrent layers are left out: cuDNN differentiates them in training mode alone.
    """
    return [
        part
        for part in nn.ModuleList(modules).modules()
        if "training" in getattr(getattr(type(part).forward, "__code__", None), "co_names", ())
        and not isinstance(part, nn.RNNBase)
    ]


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
