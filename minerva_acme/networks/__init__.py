"""Small modules that agents are made of. They need torch alone."""

from minerva_acme.networks.critic import Critic
from minerva_acme.networks.gaussian import DiagonalGaussian
from minerva_acme.networks.linear import Linear
from minerva_acme.networks.normalizer import RunningNorm
from minerva_acme.networks.policy import GaussianPolicy
from minerva_acme.networks.torso import LayerNormMLP

__all__ = [
    "Critic",
    "DiagonalGaussian",
    "GaussianPolicy",
    "LayerNormMLP",
    "Linear",
    "RunningNorm",
]
