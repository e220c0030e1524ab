"""Steps on arrays are those of autograd, and leave the same network and the same optimiser."""

import copy
import dataclasses

import numpy as np
import pytest
import torch

from minerva_acme import learners, networks
from minerva_acme.agents import ppo
from minerva_acme.agents.ppo import minimising

KINDS = {
    "continuous": ({}, None),
    "discrete": ({}, 4),
    "all the same": ({"shared_torso": True, "state_dependent_stddev": True}, None),
    "with entropy": ({"entropy_coef": 0.05}, 4),
    "plain values and advantages": ({"clip_value": False, "normalize_advantages": False}, None),
    "hardly clipped": ({"max_grad_norm": 1e3, "clip_ratio": 5.0}, None),
}
N, NUM_MINIBATCHES = 120, 7  # of 18 and 17 samples


def make(kind):
    """A configuration, a network, and samples that an update has moved away from a little."""
    changes, num_actions = KINDS[kind]
    config = ppo.PPOConfig(**changes)
    generator = torch.Generator().manual_seed(0)
    network = networks.make_actor_critic(
        observation_size=5,
        num_actions=num_actions,
        action_size=None if num_actions else 2,
        layer_sizes=(16, 16),
        value_layer_sizes=(16, 16),
        torso="tanh",
        shared_torso=config.shared_torso,
        state_dependent_std=config.state_dependent_stddev,
        initial_stddev=1.0,
        policy_gain=0.5,
        normalize_observations=True,
        generator=generator,
    )
    observation = torch.randn(N, 5, generator=generator)
    raw_action = (
        torch.randint(num_actions, (N,), generator=generator)
        if num_actions
        else torch.randn(N, 2, generator=generator)
    )
    with torch.no_grad():
        policy, value = network.from_normalized(observation)
        log_prob = policy.log_prob(raw_action)
    noise = 0.3 * torch.randn(2, N, generator=generator)
    advantage, target = torch.randn(2, N, generator=generator)
    samples = minimising.Samples(
        observation, raw_action, log_prob + noise[0], value + noise[1], advantage, target
    )
    return config, network, samples


def make_optimizer(network):
    return torch.optim.Adam(network.parameters(), lr=1e-2, eps=1e-5, fused=True)


def run_epoch(minimiser, samples, seed):
    order = torch.randperm(N, generator=torch.Generator().manual_seed(seed))
    rows = [minimiser.step(part) for part in minimiser.shuffled(samples, order, NUM_MINIBATCHES)]
    minimiser.finish()
    return torch.stack(rows)


def assert_same_states(found, expected):
    assert found["param_groups"] == expected["param_groups"]
    assert found["state"].keys() == expected["state"].keys()
    for index, state in found["state"].items():
        assert state.keys() == expected["state"][index].keys()
        for key, value in state.items():
            wanted = expected["state"][index][key]
            torch.testing.assert_close(value, wanted, rtol=1e-3, atol=1e-6, msg=f"{key} of {index}")


@pytest.mark.parametrize("kind", KINDS)
def test_both_ways_make_the_same_steps_and_may_take_turns(kind):
    config, network, samples = make(kind)
    other = copy.deepcopy(network)
    optimizer, other_optimizer = make_optimizer(network), make_optimizer(other)
    # The last update of the second network is by autograd, on what arrays have left.
    ways = (minimising.ArrayMinimiser, minimising.ArrayMinimiser, minimising.TensorMinimiser)
    for seed, way in enumerate(ways):
        expected = run_epoch(minimising.TensorMinimiser(network, optimizer, config), samples, seed)
        found = run_epoch(way(other, other_optimizer, config), samples, seed)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=2e-6)
        for name, parameter in other.named_parameters():
            torch.testing.assert_close(parameter, network.get_parameter(name), rtol=1e-4, atol=5e-6)
        assert_same_states(other_optimizer.state_dict(), optimizer.state_dict())
    initial = make(kind)[1]
    assert all(
        (parameter - initial.get_parameter(name)).abs().max() > 1e-3
        for name, parameter in other.named_parameters()
    )


def test_arrays_are_chosen_where_they_can_be():
    config, network, _ = make("continuous")
    optimizer = make_optimizer(network)
    assert type(minimising.make_minimiser(network, optimizer, config)) is minimising.ArrayMinimiser
    # Where the arithmetic takes longer than the calls, torch has threads for it.
    large = dataclasses.replace(config, minibatch_size=100_000, rollout_steps=200_000)
    assert type(minimising.make_minimiser(network, optimizer, large)) is minimising.TensorMinimiser
    network.value_torso.register_forward_hook(lambda *args: None)
    assert type(minimising.make_minimiser(network, optimizer, config)) is minimising.TensorMinimiser


@pytest.mark.parametrize("way", [minimising.ArrayMinimiser, minimising.TensorMinimiser])
def test_a_step_with_a_gradient_that_is_not_finite_is_not_made(way):
    config, network, samples = make("continuous")
    before = copy.deepcopy(network.state_dict())
    minimiser = way(network, make_optimizer(network), config)
    order = torch.arange(N)
    first, *_ = minimiser.shuffled(samples._replace(target=torch.full((N,), np.inf)), order, NUM_MINIBATCHES)
    with pytest.raises(learners.NonFinite, match="the gradients are not finite"):
        minimiser.step(first)
    minimiser.finish()
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_nothing_reaches_the_network_before_the_end():
    config, network, samples = make("continuous")
    before = copy.deepcopy(network.state_dict())
    minimiser = minimising.ArrayMinimiser(network, make_optimizer(network), config)
    (whole,) = minimiser.shuffled(samples, torch.arange(N), 1)
    minimiser.step(whole)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    minimiser.finish()
    assert not any(torch.equal(value, before[name]) for name, value in network.named_parameters())
