"""Critics of an observation and an action, or of all discrete actions at once.

Shapes: O observation size, or number of encoder features; D action dimensions; F features of the torso; `...`
any leading axes.
"""

from typing import Any

import torch
from torch import nn


class Critic(nn.Module):
    """A torso with a head of `critic_heads`: predicts the return of one action or of all discrete actions."""

    low: torch.Tensor | None  # [D]
    high: torch.Tensor | None  # [D]

    def __init__(
        self, torso: nn.Module, head: nn.Module, *, bounds: tuple[torch.Tensor, torch.Tensor] | None
    ) -> None:
        """Takes the torso and the head.

        Args:
            torso: The module that makes features, [..., O] -> [..., F]; with bounds [..., O + D] -> [..., F].
            head: The module that predicts, [..., F] -> prediction, with a `loss`.
            bounds: The smallest and the largest action, [D] each, to which actions are clipped; None if the
                head has values for all discrete actions.

        Raises:
            ValueError: The bounds are not two vectors of one size with low <= high.
        """
        super().__init__()
        self.torso = torso
        self.head = head
        for name, bound in zip(("low", "high"), bounds or (None, None), strict=True):
            # Copies: a spec's arrays are read-only and shared.
            self.register_buffer(name, None if bound is None else bound.detach().clone().float())
        if bounds is not None:
            low, high = bounds
            if low.ndim != 1 or low.shape != high.shape or (low > high).any():
                raise ValueError(
                    "`bounds` must be two vectors of one size, low <= high, got "
                    f"{low.tolist()} and {high.tolist()}."
                )

    def forward(self, observation: torch.Tensor, *action: torch.Tensor) -> Any:
        """Predicts the return of an action in each state, or of all discrete actions.

        Args:
            observation: The observations, [..., O].
            *action: The actions, [..., D] with the same leading axes, or [N, ..., D], raw or within the
                bounds; left out if there are no bounds.

        Returns:
            The head's prediction, with the leading axes of the action, or of the observation without one.
        """
        return self.head(self.torso(self.inputs(observation, *action)))

    def inputs(self, observation: torch.Tensor, *action: torch.Tensor) -> torch.Tensor:
        """Returns what the torso sees, [..., O + D] or [..., O]; for the arguments see `forward`."""
        if not action:
            return observation
        (raw,) = action
        observation = observation.expand(*raw.shape[:-1], observation.shape[-1])
        return torch.cat([observation, torch.clamp(raw, self.low, self.high)], dim=-1)

    def loss(self, prediction: Any, target: Any, mask: torch.Tensor) -> torch.Tensor:
        """Returns the head's loss; see `critic_heads`."""
        head: Any = self.head
        loss: torch.Tensor = head.loss(prediction, target, mask)
        return loss


class DuelingCritic(nn.Module):
    """Q(s, a) = V(s) + A(s, a) - mean_a A(s, a), or the same for the logits of a distribution's bins.

    Source: Wang et al. 2016, eq. 9; for logits, Hessel et al. 2018, "Distributional RL".
    """

    def __init__(self, value: nn.Module, advantage: nn.Module) -> None:
        """Takes two critics of features, with heads of one kind: one for the state, one for all actions."""
        super().__init__()
        self.value = value
        self.advantage = advantage

    def forward(self, features: torch.Tensor) -> Any:
        """Predicts the returns of all actions, [..., F] -> [..., K]."""
        advantage = self.advantage(features)
        name, numbers = advantage._fields[0], advantage[0]  # [..., K, n]
        relative = numbers - numbers.mean(dim=-2, keepdim=True)
        return advantage._replace(**{name: self.value(features)[0].unsqueeze(-2) + relative})

    def loss(self, prediction: Any, target: Any, mask: torch.Tensor) -> torch.Tensor:
        """Returns the loss of the advantage's head."""
        advantage: Any = self.advantage
        loss: torch.Tensor = advantage.loss(prediction, target, mask)
        return loss
