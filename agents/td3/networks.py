"""The networks that TD3 trains."""

from typing import NamedTuple

from torch import nn

from minerva_acme import networks
from minerva_acme.names import readable


class TD3Networks(NamedTuple):
    """TD3's networks: any modules with these signatures.

    policy(observation [B, ...]) -> action [B, D], within its bounds
    critic(observation [B, ...], action [B, D]) -> networks.Prediction [B]; it has a `loss`,
        and `first` with the same arguments, which the policy follows
    """

    policy: nn.Module
    critic: networks.EncodedCritic
    target_policy: nn.Module
    target_critic: nn.Module

    def __repr__(self) -> str:
        return readable.of_modules(self)
