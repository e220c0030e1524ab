"""Behaviour: what is executed, and what is recorded of it."""

import copy

import numpy as np
import pytest
import torch

from minerva_acme import core, distributions, specs, testing
from tests.closeness import assert_close_to_norm

OBSERVATIONS = np.array([[0.1, -0.2, 0.3], [2.0, 1.0, -1.0]], np.float32)


def make_policy(builder, spec, evaluation=False):
    generator = torch.Generator().manual_seed(0)
    network = builder.make_networks(spec, generator)
    return builder.make_policy(network, spec, generator, evaluation=evaluation), network


def test_squashed_actions_never_leave_their_bounds(vmpo_agent):
    # 0.1 + (1.3 - 0.1) is more than 1.3 in float32.
    spec = specs.make_environment_spec(
        testing.FakeEnvironment(action_spec=specs.BoundedArray((1,), np.float32, 0.1, 1.3, name="action"))
    )
    policy, _ = make_policy(vmpo_agent.builder(init_stddev=7.0), spec)
    for _ in range(50):
        action = policy.batch(OBSERVATIONS).action
        specs.check_conforms("action", action[0], spec.actions)
        specs.check_conforms("action", action[1], spec.actions)
    assert action.dtype == np.float32


def test_the_greedy_policy_executes_the_mode_and_records_nothing(agent, spec):
    policy, network = make_policy(agent.builder(), spec, evaluation=True)
    distribution = network.policy(torch.from_numpy(OBSERVATIONS))
    action, extras = policy.batch(OBSERVATIONS)
    mode = distribution.mode().detach()
    if isinstance(distribution, distributions.DiagonalGaussian) and agent.name == "vmpo":
        mode = torch.tanh(mode)
    assert_close_to_norm(action, mode)
    assert extras == ()


class TestContract(testing.ActorConformance):
    @pytest.fixture(autouse=True, params=["ppo", "vmpo"])
    def _agent(self, request, ppo_agent, vmpo_agent):
        self.agent = {"ppo": ppo_agent, "vmpo": vmpo_agent}[request.param]

    def make_environment(self):
        return testing.FakeEnvironment()

    def make_actor(self):
        return self.make_actor_of(None)

    def make_source(self):
        return Weights(self.make_network())

    def make_actor_with(self, adder):
        return self.make_actor_of(None, adder)

    def make_actor_of(self, source, adder=None):
        policy = self.agent.builder().make_policy(
            self.make_network(),
            specs.make_environment_spec(self.make_environment()),
            torch.Generator().manual_seed(1),
        )
        return self.agent.builder().make_actor(policy, source, adder)

    def make_network(self):
        spec = specs.make_environment_spec(self.make_environment())
        return self.agent.builder().make_networks(spec, torch.Generator().manual_seed(0))


class Weights(core.VariableSource):
    def __init__(self, network):
        self.state = {name: value.numpy() for name, value in network.state_dict().items()}

    def get_variables(self, names):
        return [copy.deepcopy({"network": self.state}[name]) for name in names]
