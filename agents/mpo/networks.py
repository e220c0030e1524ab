"""The networks that MPO trains."""

import copy
from typing import NamedTuple

import torch
from torch import nn

from minerva_acme import networks, specs
from minerva_acme.agents.mpo import config as mpo_config


class MPONetworks(NamedTuple):
    """A policy and a critic.

    Any modules do that have these signatures; the leading axes `...` are the same in and out:

        policy(observation [..., O]) -> distributions.DiagonalGaussian of [..., D]
        critic(observation [..., O], action [..., D]) -> q [...]
    """

    policy: nn.Module
    critic: nn.Module

    def copy(self) -> "MPONetworks":
        """Returns frozen copies, for targets."""
        return MPONetworks(*(copy.deepcopy(module).requires_grad_(False) for module in self))


def make_networks(
    spec: specs.EnvironmentSpec, config: mpo_config.MPOConfig, generator: torch.Generator
) -> MPONetworks:
    """Makes LayerNorm MLPs for a flat observation and a flat bounded action.

    Args:
        spec: observations float32 [O], actions float32 [D] with finite bounds.
        config: the layer sizes.
        generator: draws the initial weights.
    """
    observation_size = spec.observations.shape[0]
    low, high = specs.bounds(spec.actions)
    return MPONetworks(
        policy=networks.GaussianPolicy(
            observation_size,
            low.size,
            config.policy_layer_sizes,
            generator=generator,
            initial_stddev=config.init_stddev,
        ),
        critic=networks.Critic(
            observation_size,
            torch.from_numpy(low),
            torch.from_numpy(high),
            config.critic_layer_sizes,
            generator=generator,
        ),
    )
