"""The networks that CRR trains."""

from typing import NamedTuple

from torch import nn

from minerva_acme.names import readable


class CRRNetworks(NamedTuple):
    """CRR's networks: any modules with these signatures.

    policy(observation [B, ...]) -> distributions.DiagonalGaussian [B, D], of raw actions
    critic(observation [B, ...], action [B, D] or [N, B, D]) -> networks.Prediction [B] or [N, B]; it has a
        `loss` and brings raw actions into their bounds
    """

    policy: nn.Module
    critic: nn.Module
    target_policy: nn.Module
    target_critic: nn.Module

    def __repr__(self) -> str:
        return readable.of_modules(self)
