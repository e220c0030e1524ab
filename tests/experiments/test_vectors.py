"""Environments that come as a vector, in a whole run: made once, played in, or refused by name."""

import gymnasium
import numpy as np
import pytest
from gymnasium import vector

from minerva_acme import environments, experiments, runs
from minerva_acme.agents import ppo

MODES = list(vector.AutoresetMode)


def make_builder(kind=ppo.PPOBuilder, num_environments=2):
    return kind(
        ppo.PPOConfig(
            num_environments=num_environments,
            rollout_steps=32,
            minibatch_size=16,
            num_epochs=1,
            policy_layer_sizes=(8,),
            value_layer_sizes=(8,),
        )
    )


def make_vector(seed, mode=MODES[0], number=2, **settings):
    inner = gymnasium.make_vec(
        "CartPole-v1", num_envs=number, vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode}
    )
    return environments.GymnasiumVectorEnvironment(inner, seed=seed % 2**31, **settings)


class Forgets(vector.VectorWrapper):
    """Resets in the same step, and says nothing of what was before."""

    def step(self, actions):
        *result, infos = self.env.step(actions)
        return (*result, {name: value for name, value in infos.items() if "final" not in name})


def make_forgetful(seed, **settings):
    inner = vector.SyncVectorEnv(
        [lambda: gymnasium.make("CartPole-v1")] * 2, autoreset_mode=vector.AutoresetMode.SAME_STEP
    )
    return environments.GymnasiumVectorEnvironment(Forgets(inner), seed=seed % 2**31, **settings)


class Blind(ppo.PPOBuilder):
    """Says that it needs no last observation."""

    bootstraps = False


def run(directory, make, builder=None, num_env_steps=64):
    config = experiments.ExperimentConfig(
        builder=builder or make_builder(),
        environment_factory=make,
        directory=directory,
        num_env_steps=num_env_steps,
        evaluation_period=0,
        evaluation_episodes=3,
        replay="memory",
        tensorboard=False,
    )
    return experiments.run_experiment(config)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.promise("Vector environments")
def test_a_run_trains_and_evaluates_in_a_vector_of_every_mode(tmp_path, mode):
    seeds = []

    def make(seed):
        seeds.append(seed)
        return make_vector(seed, mode)

    result = run(tmp_path, make)
    # Both make a step at a time, but not while one of them resets.
    assert 64 <= result.env_steps <= 65
    assert result.learner_steps >= 1
    for evaluation in (result.random, result.before, result.after):
        assert len(evaluation.returns) == 3
        # CartPole pays 1 a step: the returns are those of whole episodes.
        np.testing.assert_array_equal(evaluation.returns, evaluation.lengths)
        assert min(evaluation.lengths) >= 8
    # One for training, though two environments are played, and one for each evaluation.
    assert len(seeds) == 4 and len(set(seeds)) == 3  # random and untrained play the same episodes


def test_a_run_in_a_vector_is_resumed_and_its_checkpoint_evaluated_in_one(tmp_path):
    first = run(tmp_path, make_vector)
    result = run(tmp_path, make_vector, num_env_steps=128)
    assert 128 <= result.env_steps <= 129
    assert result.learner_steps > first.learner_steps > 0
    with make_vector(0) as environment:
        evaluation = runs.evaluate_checkpoint(tmp_path, make_builder(), environment, 4)
    assert len(evaluation.returns) == 4


def test_a_vector_of_one_is_a_vector(tmp_path):
    result = run(tmp_path, lambda seed: make_vector(seed, number=1), make_builder(num_environments=1))
    assert (result.env_steps, result.learner_steps, len(result.after.returns)) == (64, 2, 3)


def test_a_vector_of_another_number_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"vector of the agent's 4 environments, got one of 2\. Set"):
        run(tmp_path, make_vector, make_builder(num_environments=4))
    assert not list(tmp_path.iterdir())


def test_a_lost_last_observation_is_told_where_it_is_lost_with_the_ways_out(tmp_path):
    with pytest.raises(
        ValueError, match=r"must hold `final_obs`.*NEXT_STEP or DISABLED.*loses_final_obs=True"
    ):
        run(tmp_path, make_forgetful)


def test_an_agent_that_bootstraps_refuses_a_vector_without_last_observations_by_name(tmp_path):
    def make(seed):
        return make_forgetful(seed, loses_final_obs=True)

    with pytest.raises(ValueError, match=r"PPOBuilder bootstraps from the last observation.*GymnasiumVector"):
        run(tmp_path / "refused", make)
    assert not (tmp_path / "refused").exists()
    result = run(tmp_path / "taken", make, make_builder(Blind))
    assert result.learner_steps == 2


def test_a_lost_last_observation_is_the_one_before_it_and_never_the_next_episodes():
    with make_forgetful(0, loses_final_obs=True) as environment:
        newest = [timestep.observation for timestep in environment.reset()]
        num_ends = 0
        for _ in range(60):
            for index, timesteps in enumerate(environment.step([np.int64(0)] * 2)):
                if timesteps[0].last():
                    np.testing.assert_array_equal(timesteps[0].observation, newest[index])
                    num_ends += 1
                newest[index] = timesteps[-1].observation
    assert num_ends >= 4
