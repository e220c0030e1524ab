"""The networks that MPO trains.

Shapes: F features; D action dimensions; K discrete actions; `...` leading axes.
"""

import copy
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn

from minerva_acme import networks, specs
from minerva_acme.agents.mpo import config as mpo_config

TORSOS: Mapping[str, networks.TorsoFactory] = {"mlp": networks.LayerNormMLP, "simba": networks.SimBa}


class MPONetworks(NamedTuple):
    """A policy, a critic, and an encoder that both see the observation through.

    Any modules do that have these signatures; the leading axes `...` are the same in and out:

        policy(features [..., F]) -> distributions.Distribution of [..., D] or [..., K]
        critic(features [..., F], action [..., D]) -> q [...]     where actions are continuous
        critic(features [..., F]) -> q [..., K]                   where they are discrete
        encoder(observation, a nest of [..., *]) -> features [..., F]

    In the place of q a critic may give a `networks.Prediction`. It then has a `loss`: see
    `networks.critic_heads`.
    """

    policy: nn.Module
    critic: nn.Module
    encoder: nn.Module = nn.Identity()

    def copy(self) -> "MPONetworks":
        """Returns frozen copies, for targets."""
        return MPONetworks(*(copy.deepcopy(module).requires_grad_(False) for module in self))

    def acting(self) -> nn.Module:
        """The policy as a function of the observation: itself where that is what it sees."""
        return (
            self.policy
            if isinstance(self.encoder, nn.Identity | networks.IdentityEncoder)
            else networks.EncodedPolicy(self.encoder, self.policy)
        )


def make_networks(
    spec: specs.EnvironmentSpec,
    config: mpo_config.MPOConfig,
    generator: torch.Generator,
    encoder: networks.Encoder | None = None,
) -> MPONetworks:
    """Makes the config's torsos behind an encoder of the observations, which of a flat vector does nothing.

    Args:
        spec: any observations that `networks.make_encoder` takes; actions float32 [D] with finite bounds, or
            discrete.
        config: the torsos, the critic's head, and whether observations are normalised.
        generator: draws the initial weights.
        encoder: None: `networks.make_encoder`'s.
    """
    encoder = encoder or networks.make_encoder(spec.observations, generator=generator)
    make_parts = _discrete_parts if isinstance(spec.actions, specs.DiscreteArray) else _continuous_parts
    policy, make_critic = make_parts(encoder.output_size, spec.actions, config, generator)
    normalizer = networks.make_normalizer(spec.observations) if config.normalize_observations else None
    if normalizer is not None:
        encoder = networks.NormalizedEncoder(normalizer, encoder)
    critics = [make_critic() for _ in range(config.num_critics)]
    critic = critics[0] if len(critics) == 1 else networks.Ensemble(critics, rule=config.critic_ensemble)
    return MPONetworks(policy=policy, critic=critic, encoder=encoder)


_Parts = tuple[nn.Module, Callable[[], nn.Module]]  # a policy, and what makes a critic


def _continuous_parts(
    features: int, action_spec: specs.BoundedArray, config: mpo_config.MPOConfig, generator: torch.Generator
) -> _Parts:
    low, high = (torch.from_numpy(bound) for bound in specs.bounds(action_spec))
    sizes, make_torso = config.critic_layer_sizes, TORSOS[config.torso]

    def make_critic() -> nn.Module:
        if config.critic_head == "scalar" and config.num_critics == 1:  # the one with a fast twin
            return networks.Critic(features, low, high, sizes, generator=generator, torso=make_torso)
        torso = make_torso(features + len(low), sizes, generator=generator)
        head = _make_head(torso.output_size, None, config, generator)
        return networks.CriticWithHead(torso, head, bounds=(low, high))

    policy = networks.GaussianPolicy(
        features,
        len(low),
        config.policy_layer_sizes,
        generator=generator,
        initial_stddev=config.init_stddev,
        torso=make_torso,
    )
    return policy, make_critic


def _discrete_parts(
    features: int, action_spec: specs.DiscreteArray, config: mpo_config.MPOConfig, generator: torch.Generator
) -> _Parts:
    num_actions, make_torso = action_spec.num_values, TORSOS[config.torso]

    def make_critic() -> nn.Module:
        torso = make_torso(features, config.critic_layer_sizes, generator=generator)
        head = _make_head(torso.output_size, num_actions, config, generator)
        return networks.CriticWithHead(torso, head, bounds=None)

    policy = networks.CategoricalPolicy(
        features, num_actions, config.policy_layer_sizes, generator=generator, torso=make_torso
    )
    return policy, make_critic


def _make_head(
    features: int, num_actions: int | None, config: mpo_config.MPOConfig, generator: torch.Generator
) -> nn.Module:
    options: dict[str, Any] = {"num_actions": num_actions, "generator": generator}
    if config.critic_head == "scalar":
        return networks.ScalarHead(features, **options)
    if config.critic_head == "mixture":
        return networks.MixtureOfGaussiansHead(
            features, num_components=config.num_components, init_scale=config.init_scale, **options
        )
    return networks.CategoricalCriticHead(
        features,
        vmin=config.vmin,
        vmax=config.vmax,
        num_bins=config.num_bins,
        projection=config.critic_head,
        **options,
    )
