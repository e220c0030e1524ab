"""The networks that R2D2 trains.

Shapes: B sequences; T transitions; b burn-in steps; K discrete actions.
"""

import copy
from typing import NamedTuple

import torch
from torch import nn

from minerva_acme import networks, readable, specs
from minerva_acme.agents import off_policy
from minerva_acme.agents.r2d2 import config as r2d2_config


class R2D2Networks(NamedTuple):
    """R2D2's network and target network: any modules with this signature and a memory, see `ModulePolicy`.

    q_network(networks.Sequences of B x (T + 1) observations) -> networks.Prediction [B, T + 1 - b, K]
    """

    q_network: nn.Module
    target_network: nn.Module

    def __repr__(self) -> str:
        return readable.of_modules(self)


def make_networks(
    spec: specs.EnvironmentSpec,
    config: r2d2_config.R2D2Config,
    generator: torch.Generator,
    encoder: networks.Encoder,
) -> R2D2Networks:
    """Makes the config's torsos behind an encoder.

    Args:
        spec: The environment's spec, with one discrete action.
        config: The sizes of the networks.
        generator: Draws the initial weights.
        encoder: The encoder with its memory.
    """
    make = off_policy.make_dueling_member if config.dueling else off_policy.make_member
    critic = off_policy.CriticConfig(torso=config.torso, critic_layer_sizes=config.layer_sizes)
    member = make(encoder.output_size, spec.actions, critic, generator)
    network = networks.EncodedCritic(encoder, networks.Ensemble([member], rule="min"))
    return R2D2Networks(network, copy.deepcopy(network).requires_grad_(False))
