"""MPO takes its policy loss and its critic loss as functions: by the learner, or from a builder."""

import dataclasses

import pytest
import torch
from torch import nn

from minerva_acme import losses, networks
from minerva_acme.agents import mpo
from minerva_acme.agents.mpo import critics, improvement

from .. import transition_scene
from .scene import SMALL, make_learner, make_trajectory, repeat

NUM_SAMPLES, BATCH_SIZE, NUM_DIMENSIONS = SMALL.num_samples, SMALL.batch_size, 2


def towards(goal):
    """A policy loss, the squared distance of the policy's mean from `goal`; it keeps what it was given."""
    seen = []

    def policy_loss(states, duals, config):
        seen.append(states)
        return mpo.Improvement(
            loss=lambda policy: (policy.mean - goal).square().sum(), metrics={"mine": goal}
        )

    return policy_loss, seen


def make_by_builder(builder, spec, batches):
    learner, _, rows = transition_scene.make_learner(
        builder, spec, dataset=batches, generator=torch.Generator().manual_seed(0)
    )
    return learner, rows


def test_the_losses_of_the_builder_are_mpos_own(continuous_spec):
    """The same as those that the learner takes where it is given none."""
    builder = mpo.MPOBuilder(SMALL)
    assert (builder.make_policy_loss(), builder.make_critic_loss()) == (
        improvement.e_step,
        critics.critic_loss,
    )
    learner, rows = make_learner(continuous_spec, repeat(make_trajectory()), SMALL)
    other, others = make_learner(
        continuous_spec,
        repeat(make_trajectory()),
        SMALL,
        policy_loss=improvement.e_step,
        critic_loss=critics.critic_loss,
    )
    for one in (learner, other):
        one.run(num_steps=3)
    assert [float(row["loss/policy"]) for row in rows] == [float(row["loss/policy"]) for row in others]


@pytest.mark.parametrize("goal", [-0.7, 0.7])
def test_the_policy_follows_the_loss_that_it_is_given(goal, continuous_spec):
    policy_loss, seen = towards(goal)
    config = dataclasses.replace(SMALL, target_policy_update_period=1, policy_learning_rate=0.04)
    nets = mpo.make_networks(continuous_spec, config, torch.Generator().manual_seed(0))
    batches = repeat(make_trajectory())
    learner, rows = make_learner(continuous_spec, batches, config, networks=nets, policy_loss=policy_loss)
    learner.run(num_steps=40)
    mean = nets.policy(make_trajectory().observation[:, 0]).mean
    assert (mean - goal).abs().max() < 0.2
    assert rows[-1]["mine"] == goal and float(rows[-1]["loss/policy"]) < 1.0
    states = seen[0]
    assert states.actions.shape == (BATCH_SIZE, NUM_SAMPLES, NUM_DIMENSIONS)
    assert states.q_values.shape == (BATCH_SIZE, NUM_SAMPLES) and states.log_prior is None
    assert states.policy.mean.shape == (BATCH_SIZE, NUM_DIMENSIONS)
    assert (states.low.tolist(), states.high.tolist()) == ([-1.0, -1.0], [1.0, 1.0])


def test_temperatures_that_no_loss_trains_stay_and_are_not_logged(continuous_spec):
    policy_loss, _ = towards(0.0)
    learner, rows = make_learner(continuous_spec, repeat(make_trajectory()), policy_loss=policy_loss)
    before = learner.save()["modules"]["duals"]
    learner.run(num_steps=3)
    after = learner.save()["modules"]["duals"]
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved and not any("temperature" in name for name in moved)
    assert not any("temperature" in name for name in rows[-1])
    assert {"alpha/mean", "kl/mean_rel", "loss/alpha_mean"} <= {*rows[-1]}


def test_the_q_function_is_the_target_critics_with_its_gradient(continuous_spec):
    policy_loss, seen = towards(0.0)
    nets = mpo.make_networks(continuous_spec, SMALL, torch.Generator().manual_seed(0))
    batches = repeat(make_trajectory())
    learner, _ = make_learner(continuous_spec, batches, networks=nets, policy_loss=policy_loss)
    target = nets.copy()  # the targets are copied at the first step
    learner.step()
    (states,) = seen
    torch.testing.assert_close(states.q_function(states.actions.transpose(0, 1)).T, states.q_values)
    actions = torch.rand(3, BATCH_SIZE, NUM_DIMENSIONS, requires_grad=True)
    (found,) = torch.autograd.grad(states.q_function(actions).sum(), actions)
    q = target.critic(make_trajectory().observation[:, 0], actions).mean()
    (expected,) = torch.autograd.grad(q.sum(), actions)
    torch.testing.assert_close(found, expected)
    assert found.abs().min() > 0


def test_discrete_actions_are_all_there_with_their_probabilities(discrete_spec):
    num_actions = discrete_spec.actions.num_values
    seen = []

    class Own(mpo.MPOBuilder):
        def make_policy_loss(self):
            def policy_loss(states, duals, config):
                seen.append(states)
                return mpo.Improvement(loss=lambda policy: -policy.entropy().mean())

            return policy_loss

    trajectory = make_trajectory()
    action = torch.randint(num_actions, (BATCH_SIZE, 5), dtype=torch.int32)
    batch = trajectory._replace(action=action, extras=trajectory.extras._replace(raw_action=action))
    learner, _ = make_by_builder(Own(SMALL), discrete_spec, repeat(batch))
    learner.step()
    (states,) = seen
    assert states.actions.shape == states.log_prior.shape == (BATCH_SIZE, num_actions)
    torch.testing.assert_close(states.log_prior.exp().sum(dim=1), torch.ones(BATCH_SIZE))
    actions = states.actions.T
    torch.testing.assert_close(states.q_function(actions).T, states.q_values)


@pytest.mark.parametrize("shift", [0.0, 5.0])
def test_the_critic_is_trained_by_the_loss_that_it_is_given(shift, continuous_spec):
    seen = []

    class Own(mpo.MPOBuilder):
        def make_critic_loss(self):
            def critic_loss(critic, prediction, target, mask):
                seen.append((critic, target.shape, mask.shape))
                return (prediction.mean() - shift).square().mean()  # whatever the target is

            return critic_loss

    config = dataclasses.replace(SMALL, critic_learning_rate=0.1, critic_loss_steps="all")
    learner, rows = make_by_builder(Own(config), continuous_spec, repeat(make_trajectory()))
    learner.run(num_steps=30)
    assert float(rows[-1]["loss/critic"]) < 0.05 * (1.0 + shift)
    critic, target_shape, mask_shape = seen[0]
    assert isinstance(critic, torch.nn.Module) and target_shape == mask_shape == (BATCH_SIZE, 5)
    observation, action = make_trajectory().observation[:, :-1], make_trajectory().action
    q = critic(observation, action).mean()
    assert (q - shift).abs().max() < 1.0


@pytest.mark.parametrize("critic_target", ["retrace", "n_step", "one_step"])
def test_an_own_critic_gets_features_for_each_action_and_actions_within_their_bounds(
    critic_target, continuous_spec
):
    """Whoever calls it: the target, the E-step, the gradient by raw actions, and its own training."""
    seen = []

    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(5, 1)

        def forward(self, features, action):
            seen.append((features.shape[:-1], action.shape[:-1], action.detach().abs().max()))
            return networks.ScalarPrediction(self.layer(torch.cat([features, action], dim=-1)))

        loss = networks.ScalarHead.loss

    def by_gradient(states, duals, config):
        raw = (5.0 * states.actions).transpose(0, 1).detach().requires_grad_()
        (gradient,) = torch.autograd.grad(states.q_function(raw).sum(), raw)
        assert (gradient[raw.abs() > 1.0] == 0.0).all() and gradient.any()
        return mpo.Improvement(loss=lambda policy: -policy.mean.mean())

    class Builder(mpo.MPOBuilder):
        def make_networks(self, spec, generator):
            return super().make_networks(spec, generator)._replace(critic=Own())

        def make_policy_loss(self):
            return by_gradient

    config = dataclasses.replace(SMALL, critic_target=critic_target, init_stddev=3.0)
    learner, _ = make_by_builder(Builder(config), continuous_spec, repeat(make_trajectory()))
    learner.step()
    assert len(seen) >= 4
    assert all(of_features == of_actions for of_features, of_actions, _ in seen)
    assert max(largest for *_, largest in seen) == 1.0


def test_what_own_duals_add_is_trained_with_the_temperatures(continuous_spec):
    class Own(losses.MPODuals):
        def __init__(self):
            super().__init__(
                num_dimensions=NUM_DIMENSIONS,
                init_log_temperature=1.0,
                init_log_alpha_mean=1.0,
                init_log_alpha_stddev=1.0,
                action_penalty=True,
            )
            self.of_state = nn.Linear(NUM_DIMENSIONS, 1)

    def policy_loss(states, duals, config):
        temperature = nn.functional.softplus(duals.of_state(100.0 * states.policy.mean)).mean()
        step = losses.e_step(states.q_values, temperature, config.epsilon)
        return mpo.Improvement(lambda policy: -policy.mean.mean(), step.temperature_loss)

    duals = Own()
    before = [parameter.clone() for parameter in duals.of_state.parameters()]
    config = dataclasses.replace(SMALL, action_penalty=True)
    learner, _ = make_learner(
        continuous_spec, repeat(make_trajectory()), config, duals=duals, policy_loss=policy_loss
    )
    learner.step()
    for old, new in zip(before, duals.of_state.parameters(), strict=True):
        rate = config.temperature_learning_rate
        torch.testing.assert_close((new - old).abs(), torch.full_like(old, rate))
