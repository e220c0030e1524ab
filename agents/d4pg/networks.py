"""The networks that D4PG trains."""

from typing import NamedTuple

from torch import nn

from minerva_acme.names import readable


class D4PGNetworks(NamedTuple):
    """D4PG's networks: any modules with these signatures.

    policy(observation [B, ...]) -> action [B, D], within its bounds
    critic(observation [B, ...], action [B, D]) -> networks.Prediction [B]; it has a `loss`
    """

    policy: nn.Module
    critic: nn.Module
    target_policy: nn.Module
    target_critic: nn.Module

    def __repr__(self) -> str:
        return readable.of_modules(self)
