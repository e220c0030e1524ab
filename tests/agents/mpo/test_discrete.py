"""MPO with discrete actions: critics, targets, masks of illegal actions, and a small problem."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch import nn

from minerva_acme import (
    distributions,
    environments,
    networks,
    specs,
    types,
)
from minerva_acme.agents import mpo
from minerva_acme.agents.mpo import critics, targets

from .. import transition_scene
from .scene import repeat

K = 3
SMALL = mpo.MPOConfig(
    policy_layer_sizes=(16,),
    critic_layer_sizes=(16,),
    batch_size=8,
    min_replay_size=20,
    samples_per_insert=2.0,
    critic_loss_steps="all",
)


@pytest.fixture
def spec(spec):
    return spec._replace(actions=specs.DiscreteArray(K, name="action"))


def make_trajectory(batch_size=16, length=5, seed=0, reward=None):
    generator = torch.Generator().manual_seed(seed)
    action = torch.randint(K, (batch_size, length), generator=generator)
    ones = torch.ones(batch_size, length)
    return types.Trajectory(
        observation=torch.randn(batch_size, length + 1, 3, generator=generator),
        action=action.int(),
        reward=torch.randn(batch_size, length, generator=generator) if reward is None else reward(action),
        discount=ones,
        mask=ones,
        extras=mpo.BehaviourExtras(log_prob=-math.log(K) * ones, raw_action=action),
    )


def make_learner(spec, dataset, config=SMALL, **overrides):
    learner, _, rows = transition_scene.make_learner(
        mpo.MPOBuilder(config), spec, **{"dataset": dataset, **overrides}
    )
    return learner, rows


def test_values_of_actions_come_from_one_evaluation_of_each_state():
    calls = []

    def q_network(features):  # Q(s, a) = s^a
        calls.append(features.shape)
        return networks.ScalarPrediction((features[..., :1] ** torch.arange(K)).unsqueeze(-1))

    critic = critics.make_critic(q_network, specs.DiscreteArray(K))
    features = torch.tensor([[2.0], [3.0]])
    torch.testing.assert_close(critic(features, torch.tensor([2, 1])), torch.tensor([4.0, 3.0]))
    all_actions = torch.arange(K)[:, None].expand(K, 2)
    torch.testing.assert_close(
        critic(features, all_actions), torch.tensor([[1.0, 1.0], [2.0, 3.0], [4.0, 9.0]])
    )
    torch.testing.assert_close(
        critic.predict(features, torch.tensor([2, 1], dtype=torch.int32)).mean(), torch.tensor([4.0, 3.0])
    )
    assert calls == [(2, 1)] * 3


def test_state_values_are_exact_expectations():
    policy = distributions.Categorical(torch.tensor([[0.5, 0.25, 0.25]]).log())
    values = networks.ScalarPrediction(torch.tensor([[[1.0], [2.0], [6.0]]]))
    critic = critics.make_critic(lambda features: values, specs.DiscreteArray(K))
    generator = torch.Generator().manual_seed(0)
    state = generator.get_state()
    value = targets.sampled_values(torch.zeros(1, 2), policy, critic, 1, generator)
    torch.testing.assert_close(value, torch.tensor([2.5]))
    assert torch.equal(generator.get_state(), state)


class Masked(nn.Module):
    """A policy that sees which actions are legal: the last features say so."""

    def __init__(self, policy):
        super().__init__()
        self.policy = policy

    def forward(self, features):
        return self.policy(features[..., :-K]).masked(features[..., -K:])


@pytest.mark.promise("For policies that call `masked`")
def test_illegal_actions_are_neither_valued_nor_learned_nor_taken(spec):
    spec = spec._replace(observations=specs.Array((6,), np.float32, name="observation"))
    config = dataclasses.replace(SMALL, init_log_temperature=-3.0, policy_learning_rate=1e-2)
    builder = mpo.MPOBuilder(config)
    networks = builder.make_networks(spec, torch.Generator().manual_seed(0))
    inner = builder.make_networks(
        spec._replace(observations=specs.Array((3,), np.float32)), torch.Generator().manual_seed(1)
    )
    networks = networks._replace(policy=Masked(inner.policy))
    # The illegal action would be worth the most.
    nn.init.constant_(networks.critic.head.bias, 0.0)
    with torch.no_grad():
        networks.critic.head.bias[0] = 1e4
    trajectory = make_trajectory()
    legal = torch.tensor([0.0, 1.0, 1.0]).expand(*trajectory.observation.shape[:2], K)
    trajectory = trajectory._replace(
        observation=torch.cat([trajectory.observation, legal], dim=-1),
        action=trajectory.action.clamp(min=1),
        extras=trajectory.extras._replace(raw_action=trajectory.action.clamp(min=1)),
    )
    learner, rows = make_learner(spec, repeat(trajectory), config, networks=networks)
    for _ in range(20):
        learner.step()
    assert rows[-1]["skipped_batches"] == 0
    assert all(np.isfinite(float(value)) for value in rows[-1].values())
    assert float(rows[0]["loss/critic"]) < 100.0  # no target has seen the value of the illegal one
    assert max(float(row["policy/entropy_weights"]) for row in rows) <= math.log(2.0) + 1e-4
    policy = builder.make_policy(networks, spec, torch.Generator().manual_seed(0))
    actions = {int(policy(trajectory.observation[b, 0].numpy()).action) for b in range(16) for _ in range(20)}
    assert actions == {1, 2}


def test_an_action_penalty_is_refused(spec):
    builder = mpo.MPOBuilder(dataclasses.replace(SMALL, action_penalty=True))
    with pytest.raises(ValueError, match="`action_penalty` must be False with discrete actions"):
        builder.check_spec(spec)


def test_it_trains_on_cartpole_through_replay(run):
    def make_environment(seed):
        return environments.make_training_environment("CartPole-v1", seed=seed)

    assert run(mpo.MPOBuilder(SMALL), make_environment, 100).learner_steps > 0


def test_acting_records_the_probability_of_the_action_that_it_took(spec):
    builder = mpo.MPOBuilder(SMALL)
    networks = builder.make_networks(spec, torch.Generator().manual_seed(0))
    observation = np.array([0.1, -0.2, 0.3], np.float32)
    log_p = networks.policy(torch.from_numpy(observation)).logits.log_softmax(dim=-1)
    policy = builder.make_policy(networks, spec, torch.Generator().manual_seed(0))
    for _ in range(10):
        action, extras = policy(observation)
        assert action.dtype == spec.actions.dtype
        assert action == extras.raw_action
        np.testing.assert_allclose(extras.log_prob, log_p[int(action)].item(), rtol=1e-5)
    greedy = builder.make_policy(networks, spec, torch.Generator(), evaluation=True)
    assert greedy(observation).action == log_p.argmax().item()
