"""Optimisers of the parameter groups that each loss trains."""

from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import nn


def make_optimizer(
    *groups: tuple[Iterable[nn.Parameter], float],
    kind: Literal["adam", "sgd"] = "adam",
    adam_epsilon: float = 1e-8,
    sgd_momentum: float = 0.0,
) -> torch.optim.Optimizer:
    """Makes Adam or SGD, by torch's fused kernels where the parameters' device has them.

    Args:
        *groups: parameters and their learning rate, each.
        kind: which optimiser.
        adam_epsilon: Adam's epsilon.
        sgd_momentum: SGD's momentum.
    """
    parts: list[dict[str, Any]] = [{"params": [*parameters], "lr": rate} for parameters, rate in groups]
    fused = parts[0]["params"][0].device.type in ("cpu", "cuda")
    if kind == "adam":
        return torch.optim.Adam(parts, eps=adam_epsilon, fused=fused)
    return torch.optim.SGD(parts, momentum=sgd_momentum, fused=fused)
