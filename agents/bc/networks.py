"""The network that behaviour cloning trains."""

from typing import NamedTuple

from torch import nn

from minerva_acme.names import readable


class BCNetworks(NamedTuple):
    """BC's network: any module with one of these signatures.

    policy(observation [B, ...]) -> distributions.DiagonalGaussian [B, D] or Categorical [B]    likelihood
    policy(observation [B, ...]) -> action [B, D]                                            squared error
    """

    policy: nn.Module

    def __repr__(self) -> str:
        return readable.of_modules(self)
