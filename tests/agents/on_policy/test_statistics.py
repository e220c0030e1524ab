"""Running statistics: of observations, in the network; of rewards, in the learner alone."""

import csv

import dm_env
import numpy as np

from minerva_acme import testing


def make_environment(seed):
    return testing.FakeEnvironment.bounded(episode_length=5, seed=seed)


def test_a_run_with_evaluations_learns_what_one_without_learns(agent, run):
    states = []
    for period in (0, 24):
        builder = agent.recording(num_environments=2, rollout_steps=16)
        run(builder, make_environment, 16 * 3, evaluation_period=period)
        states.append(builder.learner.save())
    testing.assert_nests_equal(*states, "Evaluations must change nothing in training.")


class Rich(dm_env.Environment):
    """Episodes of 5 steps that pay 100 each."""

    def __init__(self):
        self._fake = testing.FakeEnvironment(episode_length=5)

    def reset(self):
        return self._fake.reset()

    def step(self, action):
        timestep = self._fake.step(action)
        return timestep if timestep.first() else timestep._replace(reward=np.float32(100.0))

    def observation_spec(self):
        return self._fake.observation_spec()

    def action_spec(self):
        return self._fake.action_spec()

    def reward_spec(self):
        return self._fake.reward_spec()

    def discount_spec(self):
        return self._fake.discount_spec()


def test_rewards_are_scaled_for_the_learner_alone(agent, run, tmp_path):
    builder = agent.recording(rollout_steps=20, discount=0.9)
    result = run(builder, lambda seed: Rich(), 40, directory=tmp_path / "rich", evaluation_episodes=1)
    for evaluation in (result.random, result.before, result.after):
        assert evaluation.mean == 500.0
    with open(tmp_path / "rich" / "actor.csv", newline="") as file:
        assert {float(row["episode_return"]) for row in csv.DictReader(file)} == {500.0}
    for rollout in builder.rollouts:
        assert (rollout.reward == 100.0).all()
    # What a value is regressed to is of another size: 100 over the deviation of the discounted sums.
    sums = 100.0 * np.cumsum(0.9 ** np.arange(5))
    expected = 100.0 / np.std(sums)
    targets = [float(row["value/target_mean"]) for row in builder.rows]
    assert targets[0] < 5 * expected < 10.0
