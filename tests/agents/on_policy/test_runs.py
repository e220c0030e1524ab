"""Whole runs: reproduced, stopped and resumed, in one environment and in several."""

import signal

import dm_env
import numpy as np
import pytest
import torch

from minerva_acme import core, environments, specs, testing

from ..conftest import BOTH, PPO, VMPO

EPISODE_LENGTH = 6


class Walk(dm_env.Environment, core.Saveable):
    """Episodes of 6 steps from random starts; the reward is how near to 0 the action brings the state."""

    def __init__(self, seed, on_step=lambda: None):
        self._random = np.random.default_rng(seed)
        self._on_step = on_step
        self._count = 0

    def reset(self):
        self._count = 0
        self._state = self._random.normal(size=2).astype(np.float32)
        return dm_env.restart(self._state.copy())

    def step(self, action):
        self._on_step()
        self._count += 1
        self._state = (0.9 * self._state + action).astype(np.float32)
        last = self._count == EPISODE_LENGTH
        return dm_env.TimeStep(
            dm_env.StepType.LAST if last else dm_env.StepType.MID,
            np.float32(-np.square(self._state).sum()),
            np.float32(1.0),
            self._state.copy(),
        )

    def save(self):
        return self._random.bit_generator.state

    def restore(self, state):
        self._random.bit_generator.state = state

    def observation_spec(self):
        return specs.Array((2,), np.float32, name="observation")

    def action_spec(self):
        return specs.BoundedArray((2,), np.float32, -1.0, 1.0, name="action")

    def reward_spec(self):
        return specs.Array((), np.float32, name="reward")

    def discount_spec(self):
        return specs.BoundedArray((), np.float32, 0.0, 1.0, name="discount")


def assert_same_rollouts(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        testing.assert_nests_equal(one, other, "Rollouts must be equal bit for bit.")


@pytest.mark.parametrize(
    ("agent", "num_environments", "replay"),
    [(PPO, 4, "memory"), (VMPO, 1, "auto")],
    indirect=["agent"],
)
@pytest.mark.promise("Seeds")
def test_a_seed_gives_the_same_weights_bit_for_bit_and_another_does_not(agent, run, num_environments, replay):
    states = []
    for seed in (1, 1, 2):
        builder = agent.recording(num_environments=num_environments)
        run(builder, Walk, 16 * 2, seed=seed, replay=replay)
        states.append(builder.learner.save())
    first, second, other = states
    testing.assert_nests_equal(first, second, "A seed must reproduce the learner.")
    with pytest.raises(AssertionError):
        testing.assert_nests_equal(first, other, "Seeds must differ.")


@pytest.fixture(scope="module")
def straight_runs():
    """By agent, the builder of a run of 64 steps that was not stopped."""
    return {}


@pytest.mark.parametrize(
    ("agent", "stop_at", "where", "replay"),
    [
        (PPO, 30, "in the middle of a rollout", "auto"),
        (VMPO, 48, "at the end of a rollout", "auto"),
        (PPO, 48, "before it is learned from", "auto"),
        (VMPO, 48, "before it is learned from", "memory"),
    ],
    indirect=["agent"],
)
def test_a_run_stopped_at_an_episodes_end_goes_on_as_an_uninterrupted_one(
    agent, run, straight_runs, tmp_path, stop_at, where, replay
):
    settings = {"directory": tmp_path / "stopped", "replay": replay}
    if agent.name not in straight_runs:
        straight_runs[agent.name] = agent.recording()
        run(straight_runs[agent.name], Walk, 64)
    straight = straight_runs[agent.name]
    num_steps = 0

    def count():
        nonlocal num_steps
        num_steps += 1
        if num_steps == stop_at and where == "before it is learned from":
            signal.raise_signal(signal.SIGINT)

    def on_progress(progress):
        if progress.phase == "train" and progress.env_steps == stop_at and num_steps == stop_at:
            signal.raise_signal(signal.SIGINT)

    training = []

    def make_environment(seed):
        # The first one made is for training.
        training.append(Walk(seed, count if not training else lambda: None))
        return training[-1]

    stopped, resumed = agent.recording(), agent.recording()
    if where == "before it is learned from":
        result = run(stopped, make_environment, 64, **settings)
    else:
        result = run(stopped, make_environment, 64, on_progress, **settings)
    assert (result.interrupted_by, result.env_steps) == ("SIGINT", stop_at)
    result = run(resumed, Walk, 64, **settings)
    assert (result.interrupted_by, result.env_steps, result.learner_steps) == (None, 64, 4)
    assert_same_rollouts([*stopped.rollouts, *resumed.rollouts], straight.rollouts)
    testing.assert_nests_equal(
        resumed.learner.save(), straight.learner.save(), "A resumed run must learn the same."
    )


def test_a_run_stopped_anywhere_loses_no_step_and_learns_from_nothing_stale(agent, run, tmp_path):
    """Three environments, stopped in the middle of episodes and of a rollout: four steps of each are made."""

    def on_progress(progress):
        if progress.phase == "train" and progress.env_steps == 24 + 12:
            signal.raise_signal(signal.SIGINT)

    settings = {"num_environments": 3, "rollout_steps": 24}
    stopped, resumed = agent.recording(**settings), agent.recording(**settings)
    assert run(stopped, Walk, 72, on_progress, directory=tmp_path / "run").env_steps == 36
    result = run(resumed, Walk, 72, directory=tmp_path / "run")
    assert (result.env_steps, result.learner_steps) == (72, 3)
    assert len(stopped.rollouts) == 1
    assert [rollout.reward.shape for rollout in resumed.rollouts] == [(8, 3)] * 2
    rollout = resumed.rollouts[0]
    # The episodes that were open end where they stood, as by a time limit, after the fourth step.
    assert (rollout.last[3] == 1).all() and (rollout.discount == 1).all()
    assert (rollout.last[4] == 0).all()
    policy = stopped.learner.network.policy(rollout.observation)
    log_prob = policy.log_prob(rollout.extras.raw_action)
    # By the weights of the checkpoint, before and after it.
    torch.testing.assert_close(log_prob, rollout.extras.log_prob, rtol=1e-4, atol=1e-5)


class Fixed:
    """Never learns."""

    def make_learner(self, parts):
        return FixedLearner(super().make_learner(parts), parts.dataset)


class FixedLearner(core.Learner):
    def __init__(self, learner, dataset):
        self._learner, self._dataset = learner, dataset

    def step(self):
        next(self._dataset)

    def get_variables(self, names):
        return self._learner.get_variables(names)

    def save(self):
        return {}

    def restore(self, state):
        del state


def test_with_a_fixed_policy_three_environments_give_the_union_of_three_runs(agent, run):
    seeds = []

    def make_environment(seed):
        seeds.append(seed)
        return Walk(seed)

    # As little noise as there can be: which environment gets which shows in the third digit.
    noiseless = {"init_stddev": 1e-3}
    together = agent.recording(Fixed, num_environments=3, rollout_steps=3 * 10, **noiseless)
    run(together, make_environment, 3 * 20)
    for index, seed in enumerate(seeds[:3]):
        alone = agent.recording(Fixed, num_environments=1, rollout_steps=10, **noiseless)
        run(alone, lambda unused, seed=seed: Walk(seed), 20)
        for one, of_three in zip(alone.rollouts, together.rollouts, strict=True):
            for name, expected, found in zip(one._fields, one[:-1], of_three[:-1], strict=False):
                torch.testing.assert_close(
                    found[:, index : index + 1], expected, rtol=0.01, atol=0.05, msg=name
                )


@pytest.mark.learning
@BOTH
@pytest.mark.parametrize("num_environments", [1, 8])
def test_one_environment_and_eight_learn_alike_per_step(agent, run, num_environments):
    """As many steps, rollouts and updates: as good a policy."""
    settings = {
        "ppo": {"minibatch_size": 32, "num_epochs": 6, "anneal_learning_rate": False},
        "vmpo": {"m_steps": 10, "temperature_learning_rate": 1e-2, "alpha_learning_rate": 1e-2},
    }[agent.name]
    builder = agent.builder(
        num_environments=num_environments,
        rollout_steps=192,
        policy_layer_sizes=(32,),
        value_layer_sizes=(32,),
        learning_rate=1e-2,
        discount=0.9,
        **settings,
    )
    result = run(builder, Walk, 192 * 10, evaluation_episodes=20)
    assert (result.env_steps, result.learner_steps) == (192 * 10, 10)
    # Random actions cost 17 an episode, doing nothing 6 and the best policy 0.2.
    assert result.random.mean < -6.0
    assert result.after.mean > -2.5


def test_the_environments_of_a_run_have_different_seeds(agent, run):
    seeds = []

    def make_environment(seed):
        seeds.append(seed)
        return Walk(seed)

    run(agent.builder(num_environments=4), make_environment, 16, evaluation_episodes=1)
    # Three evaluations: random actions, before and after.
    assert len(seeds) == 4 + 3
    assert len({*seeds[:4]} | {seeds[-1]}) == 5


def test_a_trained_agent_of_several_environments_is_evaluated_in_one(agent, run):
    result = run(
        agent.builder(num_environments=2),
        lambda seed: environments.make_training_environment("CartPole-v1", seed=seed),
        32,
        evaluation_episodes=2,
    )
    assert len(result.after.returns) == 2
