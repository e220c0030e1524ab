"""The network that behaviour cloning trains."""

from typing import NamedTuple

import torch
from torch import nn

from minerva_acme import networks, readable, specs
from minerva_acme.agents import off_policy
from minerva_acme.agents.bc import config as bc_config


class BCNetworks(NamedTuple):
    """BC's network: any module with one of these signatures.

    policy(observation [B, ...]) -> distributions.DiagonalGaussian [B, D] or Categorical [B]    likelihood
    policy(observation [B, ...]) -> action [B, D]                                            squared error
    """

    policy: nn.Module

    def __repr__(self) -> str:
        return readable.of_modules(self)


def make_networks(
    spec: specs.EnvironmentSpec,
    config: bc_config.BCConfig,
    generator: torch.Generator,
    encoder: networks.Encoder,
) -> BCNetworks:
    """Makes the config's torso behind an encoder.

    Args:
        spec: The specs of the environment; actions float32 [D] with finite bounds, or discrete.
        config: The loss, which determines what the policy returns, and the sizes of the network.
        generator: Draws the initial weights.
        encoder: The encoder of observations.
    """
    sizes, torso = config.policy_layer_sizes, off_policy.TORSOS[config.torso]
    if config.loss == "squared_error":
        return BCNetworks(off_policy.make_deterministic_policy(spec, sizes, generator, torso, encoder))
    policy = off_policy.make_raw_policy(encoder.output_size, spec.actions, sizes, generator, torso)
    return BCNetworks(networks.EncodedPolicy(encoder, policy))
