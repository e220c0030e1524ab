"""Optimisers of the parameter groups that each loss trains."""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import torch

ParameterGroups: TypeAlias = list[dict[str, Any]]
"""What every optimiser of torch takes: [{"params": [...], "lr": 1e-3}], with a learning rate in each."""

OptimizerFactory: TypeAlias = Callable[[str, ParameterGroups], torch.optim.Optimizer]
"""Makes the optimiser of what the name says, such as "policy"; see `AgentBuilder.make_optimizer`."""


def make_optimizer(
    groups: ParameterGroups,
    *,
    kind: Literal["adam", "sgd"] = "adam",
    adam_epsilon: float = 1e-8,
    sgd_momentum: float = 0.0,
) -> torch.optim.Optimizer:
    """Makes Adam or SGD, by torch's fused kernels where the parameters' device has them.

    Args:
        groups: lists of parameters, each with its learning rate.
        kind: which optimiser.
        adam_epsilon: Adam's epsilon.
        sgd_momentum: SGD's momentum.
    """
    fused = groups[0]["params"][0].device.type in ("cpu", "cuda")
    if kind == "adam":
        return torch.optim.Adam(groups, eps=adam_epsilon, fused=fused)
    return torch.optim.SGD(groups, momentum=sgd_momentum, fused=fused)
