"""A small Q-learner on the kit, as a user would write it, and an environment whose values are known."""

import copy
import dataclasses
from typing import NamedTuple

import dm_env
import numpy as np
import torch
from torch import nn

from minerva_acme import learners, specs
from minerva_acme.agents import off_policy

REWARDS = (1.0, 2.0, 3.0, 4.0)


class Doors(dm_env.Environment):
    """Episodes of one step, one after the other in four rooms; room i pays i + 1, whatever is done."""

    def __init__(self):
        self._room = -1

    def reset(self):
        self._room = (self._room + 1) % len(REWARDS)
        return dm_env.restart(self._observation())

    def step(self, action):
        reward = np.float32(REWARDS[self._room])
        return dm_env.TimeStep(dm_env.StepType.LAST, reward, np.float32(0.0), self._observation())

    def _observation(self):
        return np.eye(len(REWARDS), dtype=np.float32)[self._room]

    def observation_spec(self):
        return specs.Array((len(REWARDS),), np.float32, name="observation")

    def action_spec(self):
        return specs.DiscreteArray(2, name="action")

    def reward_spec(self):
        return specs.Array((), np.float32, name="reward")

    def discount_spec(self):
        return specs.BoundedArray((), np.float32, 0.0, 1.0, name="discount")


@dataclasses.dataclass(frozen=True, kw_only=True)
class QConfig(off_policy.TransitionConfig, off_policy.PrioritizedConfig):
    batch_size: int = 16
    samples_per_insert: float = 16.0
    min_replay_size: int = 4
    learning_rate: float = 0.05
    epsilon_steps: int = 200


class QNetworks(NamedTuple):
    q_network: nn.Module
    target: nn.Module


def q_loss(nets, batch, generator):
    data = batch.data
    with torch.no_grad():
        target = data.reward + data.discount * nets.target(data.next_observation).amax(dim=-1)
    q = nets.q_network(data.observation).gather(1, data.action[:, None].long()).squeeze(1)
    error = q - target
    return learners.Loss((batch.weights * error.square()).mean(), {}, error.detach().abs())


class QBuilder(off_policy.TransitionBuilder[QNetworks, QConfig]):
    config_class = QConfig

    def make_networks(self, spec, generator):
        network = nn.Linear(spec.observations.shape[0], spec.actions.num_values, bias=False)
        nn.init.zeros_(network.weight)
        return QNetworks(network, copy.deepcopy(network).requires_grad_(False))

    def make_objectives(self, spec):
        return {"q_network": off_policy.Objective(q_loss, self.config.learning_rate)}

    def update_targets(self, networks, num_steps):
        learners.update_target(networks.target, networks.q_network, num_steps, period=5)

    def make_choice(self, spec, evaluation):
        if evaluation:
            return off_policy.argmax
        return off_policy.epsilon_greedy(off_policy.linear(1.0, 0.1, self.config.epsilon_steps))

    @property
    def policy_variables(self):
        return ["q_network"]
