"""A Gaussian policy."""

import math
from collections.abc import Sequence

import torch
from torch import nn

from minerva_acme.acceleration.linear import Linear
from minerva_acme.distributions import DiagonalGaussian
from minerva_acme.networks.torso import LayerNormMLP

MIN_LOG_STD = -20.0
MAX_LOG_STD = 2.0

# Log-std starts almost the same in every state: the KL bound on it is so tight that differences
# drawn by chance would stay for long.
LOG_STD_HEAD_GAIN = 0.01


class GaussianPolicy(nn.Module):
    """A torso and two linear heads: mean, and log-std clamped to [-20, 2]."""

    def __init__(
        self,
        observation_size: int,
        action_size: int,
        layer_sizes: Sequence[int],
        *,
        generator: torch.Generator | None = None,
        initial_stddev: float = 0.7,
    ) -> None:
        """Makes the layers.

        Args:
            observation_size: O.
            action_size: D.
            layer_sizes: units of each layer of the torso.
            generator: draws the initial weights; None is torch's global one.
            initial_stddev: standard deviation of the untrained policy, in units of the action;
                the default is what Acme's MPO starts from on the control suite.
        """
        super().__init__()
        if initial_stddev <= 0.0:
            raise ValueError(f"`initial_stddev` must be > 0, got {initial_stddev}.")
        self.torso = LayerNormMLP(observation_size, layer_sizes, generator=generator)
        self.mean_head = Linear(self.torso.output_size, action_size, generator=generator)
        nn.init.kaiming_normal_(self.mean_head.weight, generator=generator)
        nn.init.zeros_(self.mean_head.bias)
        self.log_std_head = Linear(self.torso.output_size, action_size, generator=generator)
        head_std = LOG_STD_HEAD_GAIN / math.sqrt(self.torso.output_size)
        nn.init.normal_(self.log_std_head.weight, std=head_std, generator=generator)
        nn.init.constant_(self.log_std_head.bias, math.log(initial_stddev))

    def forward(self, observation: torch.Tensor) -> DiagonalGaussian:
        """The policy at each observation, [..., O] -> [..., D]."""
        features = self.torso(observation)
        log_std = self.log_std_head(features).clamp(MIN_LOG_STD, MAX_LOG_STD)
        return DiagonalGaussian(self.mean_head(features), log_std)
