"""Critics: of observation and action, and of all actions at an observation."""

from collections.abc import Sequence

import torch
from torch import nn

from minerva_acme.networks.linear import uniform_linear
from minerva_acme.networks.torso import LayerNormMLP

_HEAD_STD = 0.01  # first values are near zero, so that early targets are rewards and not noise


class Critic(nn.Module):
    """A torso on observation and action, the action clipped to its bounds, and one linear head."""

    low: torch.Tensor  # [D]
    high: torch.Tensor  # [D]

    def __init__(
        self,
        observation_size: int,
        action_low: torch.Tensor,
        action_high: torch.Tensor,
        layer_sizes: Sequence[int],
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        """Makes the layers.

        Args:
            observation_size: O.
            action_low: smallest action, [D].
            action_high: largest action, [D].
            layer_sizes: units of each layer of the torso.
            generator: draws the initial weights; None is torch's global one.

        Raises:
            ValueError: the bounds are not two vectors of one size with low <= high.
        """
        super().__init__()
        if action_low.ndim != 1 or action_low.shape != action_high.shape or (action_low > action_high).any():
            raise ValueError(
                "`action_low` and `action_high` must be vectors of one size, low <= high, got "
                f"{action_low.tolist()} and {action_high.tolist()}."
            )
        # Copies: a spec's arrays are read-only and shared.
        self.register_buffer("low", action_low.detach().clone().float())
        self.register_buffer("high", action_high.detach().clone().float())
        action_size = action_low.shape[0]
        self.torso = LayerNormMLP(observation_size + action_size, layer_sizes, generator=generator)
        self.head = _head(self.torso.output_size, 1, generator)

    def forward(self, observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Q of each pair.

        Args:
            observation: [..., O].
            action: [..., D] with the same leading axes, or [N, ..., D], raw or within the bounds.

        Returns:
            Values, with the leading axes of `action`.
        """
        observation = observation.expand(*action.shape[:-1], observation.shape[-1])
        clipped = torch.clamp(action, self.low, self.high)
        q: torch.Tensor = self.head(self.torso(torch.cat([observation, clipped], dim=-1)))
        return q.squeeze(-1)


class DiscreteCritic(nn.Module):
    """A torso on the observation and one linear head with a value for each action."""

    def __init__(
        self,
        observation_size: int,
        num_actions: int,
        layer_sizes: Sequence[int],
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        """Makes the layers.

        Args:
            observation_size: O.
            num_actions: K.
            layer_sizes: units of each layer of the torso.
            generator: draws the initial weights; None is torch's global one.
        """
        super().__init__()
        self.torso = LayerNormMLP(observation_size, layer_sizes, generator=generator)
        self.head = _head(self.torso.output_size, num_actions, generator)

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Q of every action, [..., O] -> [..., K]."""
        q: torch.Tensor = self.head(self.torso(observation))
        return q


def _head(features: int, size: int, generator: torch.Generator | None) -> nn.Linear:
    head = uniform_linear(features, size, generator)
    nn.init.trunc_normal_(
        head.weight, std=_HEAD_STD, a=-2.0 * _HEAD_STD, b=2.0 * _HEAD_STD, generator=generator
    )
    nn.init.zeros_(head.bias)
    return head
