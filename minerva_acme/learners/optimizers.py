"""Optimisers of the parameter groups that each loss trains."""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import torch

from minerva_acme import acceleration

ParameterGroups: TypeAlias = list[dict[str, Any]]
"""What every optimiser of torch takes: [{"params": [...], "lr": 1e-3}], with a learning rate in each, and a
`weight_decay` where there is one."""

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

    On a CPU, Adam and AdamW are those of `acceleration`, which make torch's steps with less around them.

    With weight decay, Adam is AdamW (Loshchilov and Hutter 2019, "Decoupled weight decay regularization"): a
    step shrinks a weight by its learning rate times the decay, whatever its gradient.

    Args:
        groups: lists of parameters, each with its learning rate and its `weight_decay`, 0 if left out.
        kind: which optimiser.
        adam_epsilon: Adam's epsilon.
        sgd_momentum: SGD's momentum.
    """
    device = groups[0]["params"][0].device.type
    fused = device in ("cpu", "cuda")
    if kind == "adam":
        decays = any(group.get("weight_decay") for group in groups)
        if device == "cpu":
            return (acceleration.AdamW if decays else acceleration.Adam)(groups, eps=adam_epsilon)
        return (torch.optim.AdamW if decays else torch.optim.Adam)(groups, eps=adam_epsilon, fused=fused)
    return torch.optim.SGD(groups, momentum=sgd_momentum, fused=fused)


class LinearDecay:
    """Learning rates that fall linearly over a run."""

    def __init__(self, *optimizers: torch.optim.Optimizer, final_share: float, num_steps: int | None) -> None:
        """Notes the rates that the optimisers were made with.

        Args:
            *optimizers: at least one.
            final_share: of each rate, left at the end of the run. With 1 the rates stay.
            num_steps: learner steps of the whole run. None, or 0: nobody knows, and the rates stay.
        """
        self._optimizers = optimizers
        self._first_rates = [group["lr"] for group in self._groups()]
        self._final_share = final_share
        self._num_steps = num_steps

    def set(self, step: int) -> float:
        """Sets the rates of the next step, when `step` learner steps were made; returns the first group's."""
        share_done = min(step / self._num_steps, 1.0) if self._num_steps else 0.0
        left = 1.0 - (1.0 - self._final_share) * share_done
        for group, first_rate in zip(self._groups(), self._first_rates, strict=True):
            group["lr"] = left * first_rate
        return left * self._first_rates[0]

    def _groups(self) -> list[dict[str, Any]]:
        """As they are now: an optimiser that is restored has new ones."""
        return [group for optimizer in self._optimizers for group in optimizer.param_groups]
