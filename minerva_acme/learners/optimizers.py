"""Optimisers of the parameter groups that each loss trains."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import nn


def make_optimizer(
    groups: Sequence[Mapping[str, Any]] | Iterable[nn.Parameter],
    *,
    learning_rate: float = 0.0,
    kind: Literal["adam", "sgd"] = "adam",
    adam_epsilon: float = 1e-8,
    sgd_momentum: float = 0.0,
) -> torch.optim.Optimizer:
    """Makes Adam or SGD, by torch's fused kernels where the parameters' device has them.

    Args:
        groups: parameters, or groups of them with learning rates of their own (`lr`).
        learning_rate: of the groups that have none.
        kind: which optimiser.
        adam_epsilon: Adam's epsilon.
        sgd_momentum: SGD's momentum.
    """
    groups = [dict(group) if isinstance(group, Mapping) else group for group in groups]
    first = groups[0]["params"][0] if isinstance(groups[0], dict) else groups[0]
    fused = first.device.type in ("cpu", "cuda")
    if kind == "adam":
        return torch.optim.Adam(groups, lr=learning_rate, eps=adam_epsilon, fused=fused)
    return torch.optim.SGD(groups, lr=learning_rate, momentum=sgd_momentum, fused=fused)
