"""Acting and learning see the same policy: as long as nothing has moved, all ratios are 1.

But for rounding: acting computes with arrays, in another order than the learner's kernels. Bit for bit
they agree where both go through the module itself, as they do for layers that arrays do not know.
"""

import numpy as np
import pytest
import torch

from minerva_acme import environments, testing
from minerva_acme.agents import on_policy


def make_environment(environment_id):
    if environment_id == "bounded":  # observations far from mean 0 and deviation 1
        return lambda seed: testing.FakeEnvironment.bounded(episode_length=5, seed=seed)
    return lambda seed: environments.make_training_environment(environment_id, seed=seed)


class Ratios:
    """Compares, with the learner's own network, before each of its steps."""

    def __init__(self, config):
        super().__init__(config)
        self.log_ratios: list[torch.Tensor] = []
        self.recorded: list[torch.Tensor] = []
        self.means: list[torch.Tensor] = []

    @torch.no_grad()
    def on_rollout(self, rollout):
        network = self.learner.network
        # In one call per time step, as the actor did.
        log_ratios = []
        extras = rollout.extras
        for observation, raw, recorded in zip(
            rollout.observation, extras.raw_action, extras.log_prob, strict=True
        ):
            log_prob = network.policy(observation).log_prob(raw)
            log_ratios.append(log_prob - recorded)
        self.log_ratios.append(torch.stack(log_ratios))
        self.recorded.append(extras.log_prob)
        self.means.append(network.normalizer.mean.clone())


# How far a recorded log-density may be from the learner's, in relation to its size and to 1.
both_ways = pytest.mark.parametrize(("acceleration", "bound"), [("auto", 1e-6), ("off", 0.0)])


@both_ways
@pytest.mark.parametrize(("environment_id", "num_environments"), [("CartPole-v1", 1), ("bounded", 4)])
def test_the_recorded_density_is_the_learners(
    agent, run, environment_id, num_environments, acceleration, bound
):
    builder = agent.recording(
        Ratios, num_environments=num_environments, rollout_steps=16, acceleration=acceleration
    )
    run(builder, make_environment(environment_id), 16 * 3)
    assert len(builder.log_ratios) == 3
    for log_ratio, recorded in zip(builder.log_ratios, builder.recorded, strict=True):
        assert (log_ratio.abs() <= bound * (1.0 + recorded.abs())).all()
    # Not because nothing happened in between.
    assert all((a != b).all() for a, b in zip(builder.means, builder.means[1:], strict=False))


@both_ways
@pytest.mark.parametrize("environment_id", ["CartPole-v1", "bounded"])
def test_the_first_ratio_of_ppo_is_1_in_batches_of_one_shape(
    ppo_agent, run, environment_id, acceleration, bound
):
    # Acting takes 4 rows at a time, and so does the only minibatch of an epoch.
    builder = ppo_agent.recording(
        num_environments=4, rollout_steps=4, minibatch_size=4, num_epochs=2, acceleration=acceleration
    )
    run(builder, make_environment(environment_id), 4 * 5)
    first = [float(row["policy/approx_kl_first"]) for row in builder.rows]
    assert len(first) == 5
    assert all(0.0 <= abs(kl) <= bound**2 for kl in first)  # (ratio - 1)^2 / 2
    assert all(row["policy/approx_kl"] > 0.0 for row in builder.rows)


@pytest.mark.parametrize("environment_id", ["CartPole-v1", "bounded"])
def test_the_first_ratio_of_ppo_is_1_but_for_rounding_in_any_batches(ppo_agent, run, environment_id):
    builder = ppo_agent.recording(num_environments=2, rollout_steps=96, minibatch_size=32)
    run(builder, make_environment(environment_id), 96 * 5)
    # (ratio - 1)^2 / 2, mean over the minibatch: a ratio that is off by 1e-5 gives 5e-11.
    assert all(float(row["policy/approx_kl_first"]) <= 5e-11 for row in builder.rows)


@both_ways
@pytest.mark.parametrize("environment_id", ["CartPole-v1", "bounded"])
def test_the_first_kl_of_vmpo_is_0(vmpo_agent, run, environment_id, acceleration, bound):
    # The one M-step measures the KL before it moves anything.
    # A KL near 0 is a difference of numbers near 1.
    rounding = 1e-7 if bound else 1e-8
    for num_environments, rollout_steps, most in ((4, 4, rounding if bound else 0.0), (2, 96, rounding)):
        builder = vmpo_agent.recording(
            num_environments=num_environments,
            rollout_steps=rollout_steps,
            m_steps=1,
            epsilon_mean=1.0,
            acceleration=acceleration,
        )
        run(builder, make_environment(environment_id), rollout_steps * 5)
        assert len(builder.rows) == 5
        assert all(0.0 <= abs(float(row["kl/mean_rel"])) <= most for row in builder.rows)


class EarlyPreparer(on_policy.RolloutPreparer):
    def prepare(self, rollout):
        self.update_observation_statistics(rollout)
        return super().prepare(rollout)


class Early:
    def rollout_preparer(self, network, spec, device):
        preparer = super().rollout_preparer(network, spec, device)
        preparer.__class__ = EarlyPreparer
        return preparer


def test_statistics_updated_before_the_epochs_would_show(ppo_agent, vmpo_agent, run):
    ppo = ppo_agent.recording(Early, num_environments=4, rollout_steps=4, minibatch_size=4)
    run(ppo, make_environment("bounded"), 4 * 5)
    vmpo = vmpo_agent.recording(Early, num_environments=4, rollout_steps=4, m_steps=1, epsilon_mean=1.0)
    run(vmpo, make_environment("bounded"), 4 * 5)
    assert np.mean([float(row["policy/approx_kl_first"]) for row in ppo.rows]) > 1e-8
    assert np.mean([float(row["kl/mean_rel"]) for row in vmpo.rows]) > 1e-8
