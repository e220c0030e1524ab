"""Small modules that agents are made of. They need torch alone."""

from minerva_acme.networks.actor_critic import (
    ActorCritic,
    CategoricalHead,
    GaussianHead,
    PolicyAndValue,
    make_actor_critic,
)
from minerva_acme.networks.array_actor_critic import ArrayActorCritic, FlatParameters, UnknownNetwork
from minerva_acme.networks.categorical import Categorical
from minerva_acme.networks.critic import Critic
from minerva_acme.networks.gaussian import DiagonalGaussian
from minerva_acme.networks.linear import Linear
from minerva_acme.networks.normalizer import RunningNorm
from minerva_acme.networks.policy import GaussianPolicy
from minerva_acme.networks.squashing import TanhSquash
from minerva_acme.networks.torso import LayerNormMLP, TanhMLP

__all__ = [
    "ActorCritic",
    "ArrayActorCritic",
    "Categorical",
    "CategoricalHead",
    "Critic",
    "DiagonalGaussian",
    "FlatParameters",
    "GaussianHead",
    "GaussianPolicy",
    "LayerNormMLP",
    "Linear",
    "PolicyAndValue",
    "RunningNorm",
    "TanhMLP",
    "TanhSquash",
    "UnknownNetwork",
    "make_actor_critic",
]
