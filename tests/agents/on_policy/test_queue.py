"""Rollouts go through the queue once, and none is older than the policy that it trains."""

import numpy as np
import pytest
import torch

from minerva_acme import acceleration, core, environments, testing
from minerva_acme.agents import choosing, on_policy


def make_environment(seed):
    # Episodes of 3 to 9 steps, so that rollouts begin and end anywhere in them.
    return testing.FakeEnvironment(episode_length=3 + seed % 7, seed=seed)


class VersionLearner(core.Learner):
    """Learns to count: the bias of the value's head is the number of its steps."""

    def __init__(self, network, dataset):
        self.network, self.dataset, self.num_steps = network, dataset, 0
        self.seen = []

    def step(self):
        self.seen.append((self.num_steps, next(self.dataset).data))
        self.num_steps += 1
        torch.nn.init.constant_(self.network.value_head.bias, self.num_steps)

    def get_variables(self, names):
        return [{key: value.numpy().copy() for key, value in self.network.state_dict().items()}]

    def save(self):
        return {}

    def restore(self, state):
        raise NotImplementedError


class VersionPolicy(on_policy.ModulePolicy):
    """Records the version of its weights where the density of the action should be."""

    def batch(self, observations):
        output = super().batch(observations)
        version = np.full(len(observations), self.module.value_head.bias.item(), np.float32)
        return output._replace(extras=output.extras._replace(log_prob=version))


class Versions:
    def make_learner(self, parts):
        torch.nn.init.zeros_(parts.networks.value_head.bias)
        self.learner = VersionLearner(parts.networks, parts.dataset)
        return self.learner

    def make_policy(self, networks, spec, generator, evaluation=False, counter=None):
        if evaluation:
            return super().make_policy(networks, spec, generator, evaluation)
        return VersionPolicy(
            module=networks,
            choose=choosing.sample,
            raw_actions=self._raw_actions(spec),
            generator=generator,
            acceleration=acceleration.Acceleration(self.config.acceleration),
            record="choice",
        )


@pytest.mark.parametrize("num_environments", [1, 3])
def test_each_step_is_learned_from_once_by_the_weights_that_it_was_acted_with(agent, run, num_environments):
    builder = agent.recording(Versions, num_environments=num_environments, rollout_steps=12)
    result = run(builder, make_environment, 12 * 5, evaluation_period=30)
    seen = builder.learner.seen
    assert [version for version, _ in seen] == list(range(5))
    assert result.learner_steps == 5  # this learner does not count, so the run does
    for version, rollout in seen:
        assert rollout.reward.shape == (12 // num_environments, num_environments)
        np.testing.assert_array_equal(rollout.extras.log_prob, version)
    # Nothing is missing and nothing comes twice: laid end to end the rollouts are the environments' tapes.
    observations = torch.cat([rollout.observation for _, rollout in seen])
    assert len(torch.unique(observations.flatten(0, 1), dim=0)) == 12 * 5
    for index in range(num_environments):
        last = torch.cat([rollout.last for _, rollout in seen])[:, index]
        following = torch.cat([rollout.next_observation for _, rollout in seen])[:, index]
        discount = torch.cat([rollout.discount for _, rollout in seen])[:, index]
        goes_on = discount[:-1] > 0
        assert (last[:-1][~goes_on] == 1).all()
        torch.testing.assert_close(
            observations[1:, index][goes_on], following[:-1][goes_on], rtol=0.0, atol=0.0
        )


def test_steps_beyond_the_last_whole_rollout_are_played_and_not_learned_from(agent, run):
    builder = agent.recording(num_environments=3, rollout_steps=12)
    result = run(builder, make_environment, 32)
    # 32 is no multiple of 3: each of the environments makes the eleventh step.
    assert (result.env_steps, result.learner_steps) == (33, 2)
    assert len(builder.rollouts) == 2


@pytest.mark.parametrize(
    ("environment_id", "num_environments"),
    [
        ("CartPole-v1", 3),
        ("Pendulum-v1", 1),
        ("dm_control/cartpole/swingup", 3),
    ],
)
@pytest.mark.usefixtures("short_episodes")
def test_discrete_and_continuous_environments_are_played(agent, run, environment_id, num_environments):
    if environment_id.startswith("dm_control/"):
        pytest.importorskip("dm_control")  # which has no wheels for Python 3.13
    # The suite's task lasts 1000 steps.
    settings = {"time_limit": 0.2} if environment_id.startswith("dm_control") else {}
    builder = agent.recording(num_environments=num_environments, rollout_steps=12)
    result = run(
        builder,
        lambda seed: environments.make_training_environment(environment_id, seed=seed, **settings),
        24,
    )
    assert (result.env_steps, result.learner_steps) == (24, 2)
    assert [row["skipped_batches"] for row in builder.rows] == [0, 0]
    for row in builder.rows:
        assert all(np.isfinite(float(value)) for value in row.values())
