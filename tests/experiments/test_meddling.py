"""Whole runs in environments that write into their actions."""

import dataclasses

import pytest

from minerva_acme import experiments, testing
from minerva_acme.runs import checkpointing
from tests.distributed import small


class Meddling(small.Ramp):
    """Plays as a `Ramp` does, then writes into the action, and into the one before, which it has kept."""

    kept = None

    def step(self, action):
        timestep = super().step(action)
        action *= 99
        if self.kept is not None:
            self.kept[...] = -1
        self.kept = action
        return timestep


def train(directory, builder, environment_factory):
    config = small.experiment(
        directory,
        builder,
        replay="memory",
        num_env_steps=80,
        evaluation_period=40,
        evaluation_episodes=2,
        evaluation_environments=2,
    )
    config = dataclasses.replace(config, environment_factory=environment_factory)
    result = experiments.run_experiment(config)
    return result, checkpointing.load_state(checkpointing.find(directory))


@pytest.mark.parametrize("builder", [small.sac_builder(min_replay_size=20), small.ppo_builder()])
def test_a_run_in_an_environment_that_writes_into_its_actions_learns_the_same(tmp_path, builder):
    """Bit for bit: the same is stored, learned and evaluated."""
    plain, plain_state = train(tmp_path / "plain", builder, small.Ramp)
    meddling, meddling_state = train(tmp_path / "meddling", builder, Meddling)
    assert plain.learner_steps == meddling.learner_steps > 0
    assert (plain.random, plain.after) == (meddling.random, meddling.after)
    testing.assert_nests_equal(plain_state["learner"], meddling_state["learner"])
