"""The networks that IQL trains."""

from typing import NamedTuple

from torch import nn

from minerva_acme.names import readable


class IQLNetworks(NamedTuple):
    """IQL's networks: any modules with these signatures.

    policy(observation [B, ...]) -> distributions.DiagonalGaussian [B, D], of raw actions
    value(observation [B, ...]) -> networks.Prediction [B]
    critic(observation [B, ...], action [B, D]) -> networks.Prediction [B]; it has a `loss`
    """

    policy: nn.Module
    value: nn.Module
    critic: nn.Module
    target_critic: nn.Module

    def __repr__(self) -> str:
        return readable.of_modules(self)
