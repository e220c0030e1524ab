"""Target networks."""

from typing import Literal

import torch
from torch import nn


@torch.no_grad()
def update_target(
    target: nn.Module, online: nn.Module, num_steps: int, *, period: int = 1, rate: float = 1.0
) -> None:
    """Moves a target network towards the online one, every `period` steps.

        target <- (1 - rate) target + rate online

    With `rate` 1 it is a copy [Mnih et al. 2015, with a long period], with a small one the average of Polyak
    [Lillicrap et al. 2016]. Buffers, such as running statistics, are copied.

    Args:
        target: a copy of `online`, changed in place.
        online: the trained network.
        num_steps: learner steps made so far; nothing happens where it is no multiple of `period`.
        period: learner steps between two updates.
        rate: how far to go, in (0, 1].
    """
    if num_steps % period:
        return
    slow, fast = _tensors(target, "_parameters"), _tensors(online, "_parameters")
    if slow and rate == 1.0:
        torch._foreach_copy_(slow, fast)  # all tensors by one call
    elif slow:
        torch._foreach_lerp_(slow, fast, rate)
    old, new = _tensors(target, "_buffers"), _tensors(online, "_buffers")
    if old:
        torch._foreach_copy_(old, new)


def _tensors(module: nn.Module, kind: Literal["_parameters", "_buffers"]) -> list[torch.Tensor]:
    """As `module.parameters()` and `module.buffers()`, which take longer than what is done to them."""
    tensors = [tensor for part in module.modules() for tensor in getattr(part, kind).values()]
    return [tensor for tensor in dict.fromkeys(tensors) if tensor is not None]
