"""Small modules that agents are made of. They need torch alone, but those that take nests or read specs."""

from minerva_acme.networks.actor_critic import (
    ActorCritic,
    CategoricalHead,
    GaussianHead,
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
    EncodedPolicy,
    Encoder,
    FlatEncoder,
    IdentityEncoder,
    ImageEncoder,
    NestEncoder,
    OneHotEncoder,
    make_encoder,
)
from minerva_acme.networks.normalizer import NestNorm, NormalizedEncoder, RunningNorm, make_normalizer
from minerva_acme.networks.policy import CategoricalPolicy, GaussianPolicy
from minerva_acme.networks.torso import (
    LayerNormMLP,
    ResidualBlock,
    SimBa,
    TanhMLP,
    Torso,
    TorsoFactory,
    project_to_unit_norm,
)

__all__ = [
    "ActorCritic",
    "CategoricalCriticHead",
    "CategoricalHead",
    "CategoricalPolicy",
    "CategoricalPrediction",
    "Critic",
    "CriticWithHead",
    "EncodedPolicy",
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
    "NestEncoder",
    "NestNorm",
    "NormalizedEncoder",
    "OneHotEncoder",
    "PolicyAndValue",
    "Prediction",
    "ResidualBlock",
    "ReturnDistribution",
    "RunningNorm",
    "ScalarHead",
    "ScalarPrediction",
    "SimBa",
    "TanhMLP",
    "Torso",
    "TorsoFactory",
    "make_actor_critic",
    "make_encoder",
    "make_normalizer",
    "project_to_unit_norm",
]
