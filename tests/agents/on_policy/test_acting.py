"""Behaviour: what is executed, and what is recorded of it."""

import numpy as np
import torch

from minerva_acme import distributions, specs, testing
from tests.closeness import assert_close_to_norm

from ..conftest import BOTH

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


@BOTH
def test_the_greedy_policy_executes_the_mode_and_records_nothing(agent, spec):
    policy, network = make_policy(agent.builder(), spec, evaluation=True)
    distribution = network.policy(torch.from_numpy(OBSERVATIONS))
    action, extras = policy.batch(OBSERVATIONS)
    mode = distribution.mode().detach()
    if isinstance(distribution, distributions.DiagonalGaussian) and agent.name == "vmpo":
        mode = torch.tanh(mode)
    assert_close_to_norm(action, mode)
    assert extras == ()
