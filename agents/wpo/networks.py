"""The networks that WPO trains."""

import copy
from typing import NamedTuple

import torch
from torch import nn

from minerva_acme import networks, readable, specs
from minerva_acme.agents import off_policy
from minerva_acme.agents.wpo import config as wpo_config


class WPONetworks(NamedTuple):
    """WPO's networks: any modules with these signatures.

    policy(observation [B, ...]) -> distributions.DiagonalGaussian [B, D], of raw actions
    critic(observation [B, ...], action [B, D] or [N, B, D]) -> networks.Prediction [B] or [N, B]; it has a
        `loss` and brings raw actions into their bounds
    """

    policy: nn.Module
    critic: nn.Module
    target_policy: nn.Module
    target_critic: nn.Module

    def __repr__(self) -> str:
        return readable.of_modules(self)


def make_networks(
    spec: specs.EnvironmentSpec,
    config: wpo_config.WPOConfig,
    generator: torch.Generator,
    make_encoder: off_policy.MakeWholeEncoder,
) -> WPONetworks:
    """Makes the config's torsos behind encoders.

    Args:
        spec: The specs of the environment, as for `off_policy.make_critic`.
        config: The sizes and heads of the networks.
        generator: Draws the initial weights.
        make_encoder: Makes each encoder: one that policy and critic share, or one for each.
    """
    encoder = make_encoder(spec, generator)
    critic = off_policy.make_critic(spec, config, generator, encoder=encoder)
    if not (config.shared_encoder or config.has_memory):
        encoder = make_encoder(spec, generator, for_critic=False)
    policy = networks.EncodedPolicy(
        encoder,
        off_policy.make_raw_policy(
            encoder.output_size,
            spec.actions,
            config.policy_layer_sizes,
            generator,
            off_policy.TORSOS[config.torso],
            config.init_stddev,
            bounded_mean=True,
        ),
    )
    target_policy, target_critic = (copy.deepcopy(net).requires_grad_(False) for net in (policy, critic))
    return WPONetworks(policy, critic, target_policy, target_critic)
