"""Small modules that agents are made of. They need torch alone, but those that take nests or read specs."""

from minerva_acme.networks.actor_critic import (
    ActorCritic,
    CategoricalHead,
    GaussianHead,
    MultiCategoricalHead,
    PolicyAndValue,
    make_actor_critic,
)
from minerva_acme.networks.critic import Critic, CriticWithHead
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
from minerva_acme.networks.encoders import (
    Encoder,
    FlatEncoder,
    IdentityEncoder,
    ImageEncoder,
    NestEncoder,
    OneHotEncoder,
    make_encoder,
)
from minerva_acme.networks.normalizer import NestNorm, RunningNorm, make_normalizer
from minerva_acme.networks.policy import CategoricalPolicy, GaussianPolicy
from minerva_acme.networks.torso import LayerNormMLP, TanhMLP

__all__ = [
    "ActorCritic",
    "CategoricalCriticHead",
    "CategoricalHead",
    "CategoricalPolicy",
    "CategoricalPrediction",
    "Critic",
    "CriticWithHead",
    "Encoder",
    "Ensemble",
    "EnsemblePrediction",
    "FlatEncoder",
    "GaussianHead",
    "GaussianPolicy",
    "IdentityEncoder",
    "ImageEncoder",
    "LayerNormMLP",
    "MixtureOfGaussiansHead",
    "MixturePrediction",
    "MultiCategoricalHead",
    "NestEncoder",
    "NestNorm",
    "OneHotEncoder",
    "PolicyAndValue",
    "Prediction",
    "ReturnDistribution",
    "RunningNorm",
    "ScalarHead",
    "ScalarPrediction",
    "TanhMLP",
    "make_actor_critic",
    "make_encoder",
    "make_normalizer",
]
