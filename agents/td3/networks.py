"""The networks that TD3 trains."""

import copy
from typing import NamedTuple

import torch
from torch import nn

from minerva_acme import networks, readable, specs
from minerva_acme.agents import off_policy
from minerva_acme.agents.td3 import config as td3_config


class TD3Networks(NamedTuple):
    """TD3's networks: any modules with these signatures.

    policy(observation [B, ...]) -> action [B, D], within its bounds
    critic(observation [B, ...], action [B, D]) -> networks.Prediction [B]; it has a `loss`,
        and `first` with the same arguments, which the policy follows
    """

    policy: nn.Module
    critic: networks.EncodedCritic
    target_policy: nn.Module
    target_critic: nn.Module

    def __repr__(self) -> str:
        return readable.of_modules(self)


def make_networks(
    spec: specs.EnvironmentSpec,
    config: td3_config.TD3Config,
    generator: torch.Generator,
    make_encoder: off_policy.MakeWholeEncoder,
) -> TD3Networks:
    """Makes the config's torsos behind encoders.

    Args:
        spec: The specs of the environment, as for `off_policy.make_critic`.
        config: The sizes and heads of the networks.
        generator: Draws the initial weights.
        make_encoder: Makes each encoder: one that policy and critic share, or one for each.
    """
    encoder = make_encoder(spec, generator, for_critic=False)
    policy = off_policy.make_deterministic_policy(
        spec, config.policy_layer_sizes, generator, off_policy.TORSOS[config.torso], encoder
    )
    if not (config.shared_encoder or config.has_memory):
        encoder = make_encoder(spec, generator)
    critic = off_policy.make_critic(spec, config, generator, encoder=encoder)
    target_policy, target_critic = (copy.deepcopy(net).requires_grad_(False) for net in (policy, critic))
    return TD3Networks(policy, critic, target_policy, target_critic)
