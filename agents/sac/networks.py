"""The networks that SAC trains."""

from typing import NamedTuple

import torch
from torch import nn

from minerva_acme.names import readable


class Temperature(nn.Module):
    """A positive number, learned as its logarithm."""

    def __init__(self, initial: float) -> None:
        """Args: initial: The initial value."""
        super().__init__()
        self.log = nn.Parameter(torch.tensor(float(initial)).log())

    def forward(self) -> torch.Tensor:
        """Returns the value, []."""
        return self.log.exp()


class SACNetworks(NamedTuple):
    """SAC's networks: any modules with these signatures.

    policy(observation [B, ...]) -> distributions.SquashedGaussian [B, D]
    critic(observation [B, ...], action [B, D]) -> networks.Prediction [B]; it has a `loss`
    temperature() -> [], with its logarithm as `log`
    """

    policy: nn.Module
    critic: nn.Module
    target_critic: nn.Module
    temperature: nn.Module

    def __repr__(self) -> str:
        return readable.of_modules(self)
