"""The networks that MPO trains.

Shapes: F features; D action dimensions; K discrete actions; N actions in each state; `...` leading axes.
"""

import copy
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn

from minerva_acme import distributions, networks, specs, types
from minerva_acme.agents.mpo import config as mpo_config

Critic = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class MPONetworks(NamedTuple):
    """A policy, a critic, and an encoder that both see the observation through.

    Any modules do that have these signatures; the leading axes `...` are the same in and out:

        policy(features [..., F]) -> distributions.Distribution of [..., D] or [..., K]
        critic(features [..., F], action [..., D]) -> q [...]     where actions are continuous
        critic(features [..., F]) -> q [..., K]                   where they are discrete
        encoder(observation, a nest of [..., *]) -> features [..., F]
    """

    policy: nn.Module
    critic: nn.Module
    encoder: nn.Module = nn.Identity()

    def copy(self) -> "MPONetworks":
        """Returns frozen copies, for targets."""
        return MPONetworks(*(copy.deepcopy(module).requires_grad_(False) for module in self))

    def acting(self) -> nn.Module:
        """The policy as a function of the observation: itself where that is what it sees."""
        return self.policy if isinstance(self.encoder, nn.Identity) else EncodedPolicy(self)


class EncodedPolicy(nn.Module):
    """A policy behind its encoder."""

    def __init__(self, networks: MPONetworks) -> None:
        """Takes both; they are shared, not copied."""
        super().__init__()
        self.encoder = networks.encoder
        self.policy = networks.policy

    def forward(self, observation: types.NestedTensor) -> distributions.Distribution:
        """The policy at each observation."""
        policy: distributions.Distribution = self.policy(self.encoder(observation))
        return policy


def action_values(critic: Callable[..., torch.Tensor], action_spec: specs.BoundedArray) -> Critic:
    """A critic as a function of features and actions, whichever kind of actions it is for.

    Args:
        critic: as in `MPONetworks`.
        action_spec: tells the kind.

    Returns:
        A function of features [..., F] and actions [..., D] or, where discrete, [...]; they may have an axis
        N more in front if that suits the critic. It gives q with the leading axes of the actions.
    """
    if not isinstance(action_spec, specs.DiscreteArray):
        return critic

    def of_discrete_actions(features: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        q = critic(features)  # [..., K], once for all actions
        q = q.expand(*action.shape, q.shape[-1])
        return q.gather(-1, action.long().unsqueeze(-1)).squeeze(-1)

    return of_discrete_actions


def make_networks(
    spec: specs.EnvironmentSpec, config: mpo_config.MPOConfig, generator: torch.Generator
) -> MPONetworks:
    """Makes LayerNorm MLPs for a flat observation and a flat bounded action, or a discrete one.

    Args:
        spec: observations float32 [O], actions float32 [D] with finite bounds, or discrete.
        config: the layer sizes.
        generator: draws the initial weights.
    """
    observation_size = spec.observations.shape[0]
    if isinstance(spec.actions, specs.DiscreteArray):
        sizes = observation_size, spec.actions.num_values
        return MPONetworks(
            policy=networks.CategoricalPolicy(*sizes, config.policy_layer_sizes, generator=generator),
            critic=networks.DiscreteCritic(*sizes, config.critic_layer_sizes, generator=generator),
        )
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
