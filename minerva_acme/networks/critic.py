"""Critics: of observation and action, and with other heads or of all discrete actions at once."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from minerva_acme.networks.linear import uniform_linear
from minerva_acme.networks.torso import LayerNormMLP, TorsoFactory

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
        torso: TorsoFactory = LayerNormMLP,
    ) -> None:
        """Makes the layers.

        Args:
            observation_size: O.
            action_low: smallest action, [D].
            action_high: largest action, [D].
            layer_sizes: units of each layer of the torso.
            generator: draws the initial weights; None is torch's global one.
            torso: makes it, from `layer_sizes`.

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
        self.torso = torso(observation_size + action_size, layer_sizes, generator=generator)
        self.head = uniform_linear(self.torso.output_size, 1, generator)
        nn.init.trunc_normal_(
            self.head.weight, std=_HEAD_STD, a=-2.0 * _HEAD_STD, b=2.0 * _HEAD_STD, generator=generator
        )
        nn.init.zeros_(self.head.bias)

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


class CriticWithHead(nn.Module):
    """A torso and any head of `critic_heads`: it gives predictions, of one action or of all discrete ones."""

    low: torch.Tensor  # [D]
    high: torch.Tensor  # [D]

    def __init__(
        self, torso: nn.Module, head: nn.Module, *, bounds: tuple[torch.Tensor, torch.Tensor] | None
    ) -> None:
        """Takes the parts.

        Args:
            torso: of features, and of actions where there are bounds: [..., O + D] -> [..., F].
            head: [..., F] -> prediction, with a `loss`.
            bounds: smallest and largest action, [D] each, to which actions are clipped; None: the head has
                values for all discrete actions.
        """
        super().__init__()
        self.torso = torso
        self.head = head
        if bounds is not None:
            for name, bound in zip(("low", "high"), bounds, strict=True):
                self.register_buffer(name, bound.detach().clone().float())

    def forward(self, observation: torch.Tensor, *action: torch.Tensor) -> Any:
        """The prediction at each observation, [..., O], and action, [..., D] or [N, ..., D], or of all."""
        inputs = observation
        if action:
            (raw,) = action
            observation = observation.expand(*raw.shape[:-1], observation.shape[-1])
            inputs = torch.cat([observation, torch.clamp(raw, self.low, self.high)], dim=-1)
        return self.head(self.torso(inputs))

    def loss(self, prediction: Any, target: Any, mask: torch.Tensor) -> torch.Tensor:
        """The head's."""
        head: Any = self.head
        loss: torch.Tensor = head.loss(prediction, target, mask)
        return loss


class DuelingCritic(nn.Module):
    """Q(s, a) = V(s) + A(s, a) - mean_a A(s, a), or likewise of the logits of a distribution's bins.

    Source: Wang et al. 2016, eq. 9; of logits, Hessel et al. 2018, "Distributional RL".
    """

    def __init__(self, value: nn.Module, advantage: nn.Module) -> None:
        """Takes two critics of features, with heads of one kind: without actions, and of all of them."""
        super().__init__()
        self.value = value
        self.advantage = advantage

    def forward(self, features: torch.Tensor) -> Any:
        """[..., F] -> the prediction of all actions, [..., K]."""
        advantage = self.advantage(features)
        name, numbers = advantage._fields[0], advantage[0]  # [..., K, n]
        relative = numbers - numbers.mean(dim=-2, keepdim=True)
        return advantage._replace(**{name: self.value(features)[0].unsqueeze(-2) + relative})

    def loss(self, prediction: Any, target: Any, mask: torch.Tensor) -> torch.Tensor:
        """The head's."""
        advantage: Any = self.advantage
        loss: torch.Tensor = advantage.loss(prediction, target, mask)
        return loss
