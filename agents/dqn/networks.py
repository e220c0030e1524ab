"""The networks that DQN trains.

Shapes: F features; K discrete actions; n numbers for each value (1, or the bins of a distribution); `...`
leading axes.
"""

import copy
from typing import NamedTuple

import torch
from torch import nn

from minerva_acme import readable, specs
from minerva_acme.agents import off_policy
from minerva_acme.agents.dqn import config as dqn_config


class DQNNetworks(NamedTuple):
    """DQN's network and target network: any modules with this signature and a `loss`.

    q_network(observation [..., *]) -> networks.Prediction of all actions, [..., K]
    """

    q_network: nn.Module
    target_network: nn.Module

    def __repr__(self) -> str:
        return readable.of_modules(self)


def make_networks(
    spec: specs.EnvironmentSpec,
    config: dqn_config.DQNConfig,
    generator: torch.Generator,
    make_encoder: off_policy.MakeEncoder,
) -> DQNNetworks:
    """Makes the config's torsos behind an encoder.

    Args:
        spec: The specs of the environment, as for `off_policy.make_critic`.
        config: The sizes and heads of the networks.
        generator: Draws the initial weights.
        make_encoder: Makes the encoder.
    """
    make_member = off_policy.make_dueling_member if config.dueling else off_policy.make_member
    network = off_policy.make_critic(spec, config, generator, make_member, make_encoder(spec, generator))
    return DQNNetworks(network, copy.deepcopy(network).requires_grad_(False))
