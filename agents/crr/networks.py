"""The networks that CRR trains."""

import copy
from typing import NamedTuple

import torch
from torch import nn

from minerva_acme import networks, readable, specs
from minerva_acme.agents import off_policy
from minerva_acme.agents.crr import config as crr_config


class CRRNetworks(NamedTuple):
    """CRR's networks: any modules with these signatures.

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
    config: crr_config.CRRConfig,
    generator: torch.Generator,
    make_encoder: off_policy.MakeWholeEncoder,
) -> CRRNetworks:
    """Makes the config's torsos behind encoders.

    Args:
        spec: The specs of the environment, as for `off_policy.make_critic`.
        config: The sizes and heads of the networks.
        generator: Draws the initial weights.
        make_encoder: Makes each encoder: one that policy and critic share, or one for each.
    """
    encoder = make_encoder(spec, generator)
    critic = off_policy.make_critic(spec, config, generator, encoder=encoder)
    if not config.shared_encoder:
        encoder = make_encoder(spec, generator)
    policy = networks.EncodedPolicy(
        encoder,
        off_policy.make_raw_policy(
            encoder.output_size,
            spec.actions,
            config.policy_layer_sizes,
            generator,
            off_policy.TORSOS[config.torso],
        ),
    )
    target_policy, target_critic = (copy.deepcopy(net).requires_grad_(False) for net in (policy, critic))
    return CRRNetworks(policy, critic, target_policy, target_critic)
