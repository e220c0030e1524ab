"""The networks that SAC trains."""

import copy
from typing import NamedTuple

import torch
from torch import nn

from minerva_acme import readable, specs
from minerva_acme.agents import off_policy
from minerva_acme.agents.sac import config as sac_config


class Temperature(nn.Module):
    """A positive number, learned as its logarithm."""

    def __init__(self, initial: float) -> None:
        """Args: initial: The initial value."""
        super().__init__()
        self.log = nn.Parameter(torch.tensor(float(initial)).log())

    def forward(self) -> torch.Tensor:
        """Returns the value, []."""
        return self.log.exp()


class SACNetworks(NamedTuple):
    """SAC's networks: any modules with these signatures.

    policy(observation [B, ...]) -> distributions.SquashedGaussian [B, D]
    critic(observation [B, ...], action [B, D]) -> networks.Prediction [B]; it has a `loss`
    temperature() -> [], with its logarithm as `log`
    """

    policy: nn.Module
    critic: nn.Module
    target_critic: nn.Module
    temperature: nn.Module

    def __repr__(self) -> str:
        return readable.of_modules(self)


def make_networks(
    spec: specs.EnvironmentSpec,
    config: sac_config.SACConfig,
    generator: torch.Generator,
    make_encoder: off_policy.MakeWholeEncoder,
) -> SACNetworks:
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
    return SACNetworks(
        policy=off_policy.make_gaussian_policy(
            spec, config.policy_layer_sizes, generator, off_policy.TORSOS[config.torso], encoder
        ),
        critic=critic,
        target_critic=copy.deepcopy(critic).requires_grad_(False),
        temperature=Temperature(config.initial_temperature),
    )
