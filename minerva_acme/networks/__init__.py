"""Small modules that agents are made of. They need torch alone."""

from minerva_acme.networks.actor_critic import (
    ActorCritic,
    CategoricalHead,
    GaussianHead,
    PolicyAndValue,
    make_actor_critic,
)
from minerva_acme.networks.critic import Critic
from minerva_acme.networks.normalizer import RunningNorm
from minerva_acme.networks.policy import GaussianPolicy
from minerva_acme.networks.torso import LayerNormMLP, TanhMLP

__all__ = [
    "ActorCritic",
    "CategoricalHead",
    "Critic",
    "GaussianHead",
    "GaussianPolicy",
    "LayerNormMLP",
    "PolicyAndValue",
    "RunningNorm",
    "TanhMLP",
    "make_actor_critic",
]
