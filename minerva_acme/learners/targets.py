"""Target networks."""

import copy
from typing import Any, Literal

import torch
from torch import nn


def make_target(online: nn.Module) -> Any:
    """Returns a frozen copy of a network, with which its target begins."""
    return copy.deepcopy(online).requires_grad_(False)


@torch.no_grad()
def update_target(
    target: nn.Module, online: nn.Module, num_steps: int, *, period: int = 1, rate: float = 1.0
) -> None:
    """Moves a target network towards the online one, every `period` steps.

        target <- (1 - rate) target + rate online

    With `rate` 1 it is a copy [Mnih et al. 2015, with a long period], with a small one a Polyak average
    [Lillicrap et al. 2016]. Buffers, such as running statistics, are copied.

    Args:
        target: A copy of `online`, changed in place.
        online: The trained network.
        num_steps: The number of learner steps so far; nothing happens unless it is a multiple of `period`.
        period: The number of learner steps between two updates.
        rate: The share of the way to go, in (0, 1].
    """
    if num_steps % period:
        return
    slow, fast = _tensors(target, "_parameters"), _tensors(online, "_parameters")
    if slow and rate == 1.0:
        torch._foreach_copy_(slow, fast)  # one call for all tensors
    elif slow:
        torch._foreach_lerp_(slow, fast, rate)
    old, new = _tensors(target, "_buffers"), _tensors(online, "_buffers")
    if old:
        torch._foreach_copy_(old, new)


def _tensors(module: nn.Module, kind: Literal["_parameters", "_buffers"]) -> list[torch.Tensor]:
    """Returns `module.parameters()` or `module.buffers()`, which would take longer than the update itself."""
    tensors = [tensor for part in module.modules() for tensor in getattr(part, kind).values()]
    return [tensor for tensor in dict.fromkeys(tensors) if tensor is not None]
