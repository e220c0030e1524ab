"""Small modules that agents are made of. They need torch alone."""

from minerva_acme.networks.actor_critic import (
    ActorCritic,
    CategoricalHead,
    GaussianHead,
    PolicyAndValue,
    make_actor_critic,
)
from minerva_acme.networks.critic import Critic, DiscreteCritic
from minerva_acme.networks.critic_heads import (
    CategoricalCriticHead,
    CategoricalPrediction,
    Ensemble,
    EnsemblePrediction,
    MixtureOfGaussiansHead,
    MixturePrediction,
    Prediction,
    ReturnDistribution,
    ScalarHead,
    ScalarPrediction,
)
from minerva_acme.networks.normalizer import RunningNorm
from minerva_acme.networks.policy import CategoricalPolicy, GaussianPolicy
from minerva_acme.networks.torso import LayerNormMLP, TanhMLP

__all__ = [
    "ActorCritic",
    "CategoricalCriticHead",
    "CategoricalHead",
    "CategoricalPolicy",
    "CategoricalPrediction",
    "Critic",
    "DiscreteCritic",
    "Ensemble",
    "EnsemblePrediction",
    "GaussianHead",
    "GaussianPolicy",
    "LayerNormMLP",
    "MixtureOfGaussiansHead",
    "MixturePrediction",
    "PolicyAndValue",
    "Prediction",
    "ReturnDistribution",
    "RunningNorm",
    "ScalarHead",
    "ScalarPrediction",
    "TanhMLP",
    "make_actor_critic",
]
