"""The policy over actions with continuous and discrete parts.

Shapes: O observation size; D continuous entries of an action; C choices; K the largest number of values of a
choice; `...` any leading axes.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from minerva_acme.distributions import Hybrid
from minerva_acme.networks.actor_critic import MultiCategoricalHead
from minerva_acme.networks.policy import LOGITS_GAIN, GaussianPolicy


class HybridPolicy(nn.Module):
    """A `GaussianPolicy` whose torso also has a layer of logits for choices, near uniform at first."""

    def __init__(
        self,
        observation_size: int,
        action_size: int,
        num_values: Sequence[int],
        layer_sizes: Sequence[int],
        *,
        generator: torch.Generator | None = None,
        **options: Any,
    ) -> None:
        """Makes the layers.

        Args:
            observation_size: The size of an observation, O.
            action_size: The number of continuous entries, D.
            num_values: The number of values of each of the C choices.
            layer_sizes: The number of units in each layer of the torso.
            generator: The generator for the initial weights; None uses torch's global generator.
            **options: The other arguments of `GaussianPolicy`.

        Raises:
            ValueError: As `GaussianPolicy` and `MultiCategoricalHead` do.
        """
        super().__init__()
        self.gaussian = GaussianPolicy(
            observation_size, action_size, layer_sizes, generator=generator, **options
        )
        self.choices = MultiCategoricalHead(
            self.gaussian.torso.output_size, num_values, gain=LOGITS_GAIN, generator=generator
        )

    def forward(self, observation: torch.Tensor) -> Hybrid:
        """Computes the policy at each observation, [..., O] -> [..., D] and [..., C, K]."""
        features = self.gaussian.torso(observation)
        return Hybrid(self.gaussian.of_features(features), self.choices(features))
