import dataclasses

import numpy as np
import pytest
import torch

from minerva_acme.agents import mpo

CONFIG = mpo.MPOConfig(policy_layer_sizes=(8,), critic_layer_sizes=(8,))


@pytest.fixture
def networks(spec):
    return mpo.make_networks(spec, CONFIG, torch.Generator().manual_seed(0))


def make_policy(networks, spec, evaluation=False):
    return mpo.MPOBuilder(CONFIG).make_policy(
        networks, spec, torch.Generator().manual_seed(0), evaluation=evaluation
    )


OBSERVATION = np.array([0.1, -0.2, 0.3], np.float32)


def test_behaviour_records_the_density_of_the_raw_action(networks, spec):
    policy = make_policy(networks, spec)
    mean, log_std = (x.detach().numpy()[0] for x in networks.policy(torch.from_numpy(OBSERVATION)[None]))
    clipped = 0
    for _ in range(50):
        action, extras = policy(OBSERVATION)
        expected = np.sum(
            -0.5 * ((extras.raw_action - mean) / np.exp(log_std)) ** 2 - log_std - 0.5 * np.log(2 * np.pi)
        )
        np.testing.assert_allclose(extras.log_prob, expected, rtol=1e-5)
        np.testing.assert_array_equal(action, np.clip(extras.raw_action, -1.0, 1.0))
        clipped += (action != extras.raw_action).any()
        assert extras.parameters == ()
        assert action.dtype == extras.raw_action.dtype == extras.log_prob.dtype == np.float32
    assert clipped > 0


@pytest.mark.parametrize("bounded_mean", [True, False])
def test_greedy_acts_with_the_mean_within_its_bounds(spec, bounded_mean):
    config = dataclasses.replace(CONFIG, bounded_mean=bounded_mean)
    networks = mpo.make_networks(spec, config, torch.Generator().manual_seed(0))
    torch.nn.init.constant_(networks.policy.mean_head.bias, 2.0)
    action = make_policy(networks, spec, evaluation=True)(OBSERVATION).action
    np.testing.assert_allclose(action, np.tanh([2.0, 2.0]) if bounded_mean else [1.0, 1.0], atol=0.01)
