"""The objectives of multi-objective MPO: returns of several rewards, and functions of states and raw actions.

Shapes: B batch, N actions in each state, D action dimensions, an axis that discrete actions lack; J rewards
that are objectives; `...` leading axes.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import nn

from minerva_acme import constraints, learners, specs, types
from minerva_acme.agents.mpo.config import MPOConfig

RETURN = "return"
"""The name, as an objective, of a reward that is one number."""


class ObjectiveFunction(Protocol):
    """Computes an objective that needs no critic, since it depends on nothing that comes later."""

    def __call__(self, observation: types.NestedTensor, actions: torch.Tensor) -> torch.Tensor:
        """Returns values, in any unit, of which more is better, [B, N].

        Args:
            observation: The observations, before the encoder, [B, ...] each leaf.
            actions: Raw actions, [B, N, D].
        """


def of_rewards(spec: specs.EnvironmentSpec, config: MPOConfig) -> list[str]:
    """Returns the objectives that are rewards, in the order of the critic's heads."""
    return [name for name in config.objectives if name in _rewards(spec)]


def check(spec: specs.EnvironmentSpec, config: MPOConfig, functions: Mapping[str, ObjectiveFunction]) -> None:
    """Checks the names of the objectives.

    Raises:
        ValueError: One is neither a reward nor a function, or all are functions.
    """
    rewards, found = sorted(_rewards(spec)), of_rewards(spec, config)
    unknown = [name for name in config.objectives if name not in (*rewards, *functions)]
    if unknown or not found:
        raise ValueError(
            f"`objectives` must name rewards of the environment ({', '.join(rewards)}), at least one, or "
            f"functions of `make_objective_functions` ({', '.join(functions) or 'none here'}), got "
            f"{', '.join(unknown or config.objectives)}."
        )
    if both := [name for name in found if name in functions]:
        raise ValueError(
            f"`make_objective_functions` must have other names than the rewards, got {', '.join(both)}."
        )


def stacked_rewards(reward: types.NestedTensor, names: Sequence[str]) -> torch.Tensor:
    """Returns the rewards with these names, [...] each, as [..., J]."""
    rewards = reward if isinstance(reward, Mapping) else {RETURN: reward}
    return torch.stack([rewards[name] for name in names], dim=-1)


class TemperatureFloor(nn.Module):
    """The smallest temperatures, as a share of the largest absolute reward that `update` has received.

    Until a reward other than 0 was seen, they are 1e15, at which all actions weigh the same.
    """

    largest: torch.Tensor  # [], or with objectives [J]

    def __init__(self, share: float, num_objectives: int | None = None) -> None:
        """Takes the share, >= 0, and the number of rewards that are objectives, J, or None for one reward."""
        super().__init__()
        self.share = share
        self.register_buffer("largest", torch.zeros(() if num_objectives is None else (num_objectives,)))

    @torch.no_grad()
    def update(self, reward: torch.Tensor, mask: torch.Tensor, ranks: learners.Ranks | None) -> None:
        """Takes rewards, [B, T] or [B, T, J], where `mask` [B, T] is above 0, of all learners.

        Rewards that are not finite or beyond `constraints.LARGEST` are left out.
        """
        size = learners.where_unmasked(mask, reward).abs()
        size = size.where(size <= constraints.LARGEST, 0.0).flatten(0, 1)  # [B T], or [B T, J]
        if ranks is not None:
            size = ranks.gather(size)
        self.largest.copy_(torch.maximum(self.largest, size.amax(dim=0)))

    def forward(self) -> torch.Tensor:
        """Returns the smallest temperatures, with the shape of `largest`."""
        if self.share == 0.0:
            return torch.zeros_like(self.largest)
        return (self.share * self.largest).masked_fill(self.largest == 0.0, constraints.LARGEST)


def _rewards(spec: specs.EnvironmentSpec) -> Mapping[str, specs.Array]:
    return spec.rewards if isinstance(spec.rewards, Mapping) else {RETURN: spec.rewards}
