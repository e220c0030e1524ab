"""What both learners promise."""

import dataclasses
import itertools

import pytest
import torch

from minerva_acme import learners, networks, testing


class OwnForward(networks.ActorCritic):
    def forward(self, observation, past=()):
        return super().forward(observation, past)


@pytest.mark.parametrize(
    "edit",
    [
        lambda network: setattr(network, "__class__", OwnForward),
        lambda network: network.register_forward_hook(lambda *_: None),
        lambda network: network.register_full_backward_hook(lambda *_: None),
    ],
    ids=["forward", "a hook", "a hook on the way back"],
)
def test_what_nothing_would_call_is_refused(agent, make_learner, continuous_spec, edit):
    class Builder(agent.builder_class):
        def make_networks(self, spec, generator):
            network = super().make_networks(spec, generator)
            edit(network)
            return network

    with pytest.raises(ValueError, match="`network` must not override `forward` or have hooks of its own"):
        make_learner(Builder(agent.config()), continuous_spec)


def test_hooks_that_come_later_are_refused_at_the_next_step(agent, make_learner, continuous_spec):
    learner, network, _ = make_learner(agent.builder(), continuous_spec)
    learner.step()
    handle = network.register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match="`network` must not override `forward` or have hooks of its own"):
        learner.step()
    handle.remove()
    learner.step()


@pytest.mark.parametrize("anneal", [True, False])
def test_a_learning_rate_that_is_set_during_a_run_is_the_one_that_trains(
    agent, make_learner, continuous_spec, anneal
):
    builder = agent.builder(anneal_learning_rate=anneal, learning_rate=1e-3, num_environments=2)
    learner, network, rows = make_learner(builder, continuous_spec, num_env_steps=16 * 4)
    learner.step()
    before = {key: value.clone() for key, value in network.named_parameters()}
    (group,) = learner.group.optimizer.param_groups
    group["lr"] = 0.0
    learner.step()
    testing.assert_nests_equal(dict(network.named_parameters()), before, "Nothing may move at a rate of 0.")
    group["lr"] = 2e-3
    learner.step()
    assert rows[-1]["learning_rate"] == pytest.approx(2e-3 * 0.5 / 0.75 if anneal else 2e-3)


def test_a_rollout_that_is_shorter_than_a_minibatch_is_refused(ppo_agent, make_learner, continuous_spec):
    builder = ppo_agent.builder(num_environments=2, rollout_steps=16, minibatch_size=16)
    learner, _, _ = make_learner(builder, continuous_spec)
    learner.config = dataclasses.replace(builder.config, rollout_steps=32, minibatch_size=32)
    with pytest.raises(ValueError, match=r"at least `minibatch_size` \(32\) samples, got 16"):
        learner.step()


@pytest.mark.parametrize("marks_the_last_row", [True, False])
@pytest.mark.parametrize("is_read", [True, False], ids=["CPU", "as on a GPU"])
def test_the_next_observation_counts_where_an_episode_or_rollout_ends(
    agent, make_rollout, continuous_spec, marks_the_last_row, is_read, monkeypatch
):
    """With one-step targets and no scaling each target can be told by hand."""
    monkeypatch.setattr(learners, "is_read_at_once", lambda tensor: is_read)
    builder = agent.builder(
        advantage_estimator="dae", scale_rewards=False, discount=0.5, num_environments=2, rollout_steps=8
    )
    network = builder.make_networks(continuous_spec, torch.Generator().manual_seed(0))
    rollout = make_rollout(builder, network, continuous_spec)
    last = torch.tensor([[0, 0], [1, 0], [0, 1], [1, 1]], dtype=torch.float32)
    last[3] *= marks_the_last_row
    discount = torch.tensor([[1, 1], [1, 1], [1, 0], [1, 1]], dtype=torch.float32)
    next_observation = rollout.next_observation.clone()
    next_observation[1, 0] = next_observation[2, 1] = 7.0  # the true last ones of two episodes
    rollout = rollout._replace(last=last, discount=discount, next_observation=next_observation)
    batch = builder.rollout_preparer(network, continuous_spec, torch.device("cpu")).prepare(rollout)
    for t, e in itertools.product(range(4), range(2)):
        following = network.value(next_observation[t, e]).item()
        expected = rollout.reward[t, e].item() + 0.5 * discount[t, e].item() * following
        assert batch.target[2 * t + e].item() == pytest.approx(expected, abs=1e-5)
        value = network.value(rollout.observation[t, e]).item()
        assert batch.advantage[2 * t + e].item() == pytest.approx(expected - value, abs=1e-5)
