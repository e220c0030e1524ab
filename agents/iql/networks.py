"""The networks that IQL trains."""

import copy
from typing import NamedTuple

import torch
from torch import nn

from minerva_acme import networks, readable, specs
from minerva_acme.agents import off_policy
from minerva_acme.agents.iql import config as iql_config


class IQLNetworks(NamedTuple):
    """IQL's networks: any modules with these signatures.

    policy(observation [B, ...]) -> distributions.DiagonalGaussian [B, D], of raw actions
    value(observation [B, ...]) -> networks.Prediction [B]
    critic(observation [B, ...], action [B, D]) -> networks.Prediction [B]; it has a `loss`
    """

    policy: nn.Module
    value: nn.Module
    critic: nn.Module
    target_critic: nn.Module

    def __repr__(self) -> str:
        return readable.of_modules(self)


def make_networks(
    spec: specs.EnvironmentSpec,
    config: iql_config.IQLConfig,
    generator: torch.Generator,
    make_encoder: off_policy.MakeWholeEncoder,
) -> IQLNetworks:
    """Makes the config's torsos behind encoders.

    Args:
        spec: The specs of the environment, as for `off_policy.make_critic`.
        config: The sizes and heads of the networks.
        generator: Draws the initial weights.
        make_encoder: Makes each encoder: one of the value, and one that policy and critics share or one for
            each.
    """
    make_torso = off_policy.TORSOS[config.torso]
    encoder = make_encoder(spec, generator)
    torso = make_torso(encoder.output_size, config.critic_layer_sizes, generator=generator)
    head = networks.ScalarHead(torso.output_size, generator=generator)
    value = networks.EncodedCritic(encoder, networks.Critic(torso, head, bounds=None))
    encoder = make_encoder(spec, generator)
    critic = off_policy.make_critic(spec, config, generator, encoder=encoder)
    if not config.shared_encoder:
        encoder = make_encoder(spec, generator)
    policy = networks.EncodedPolicy(
        encoder,
        off_policy.make_raw_policy(
            encoder.output_size, spec.actions, config.policy_layer_sizes, generator, make_torso
        ),
    )
    return IQLNetworks(policy, value, critic, copy.deepcopy(critic).requires_grad_(False))
