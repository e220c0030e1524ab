import copy
import io

import gymnasium
import numpy as np
import pytest
import torch

from minerva_acme import environments
from minerva_acme.wrappers import random_state


def play(environment, episodes, actions_seed):
    """The observations and rewards of some episodes of random actions."""
    rng = np.random.default_rng(actions_seed)
    spec = environment.action_spec()
    record = []
    for _ in range(episodes):
        timestep = environment.reset()
        record.append(timestep.observation)
        while not timestep.last():
            timestep = environment.step(rng.uniform(-1, 1, spec.shape).astype(spec.dtype))
            record.append(np.append(timestep.observation, timestep.reward))
    return record


SHORT = [
    ("dm_control/cartpole/swingup", {"time_limit": 0.2}),
    ("dm_control/reacher/easy", {"time_limit": 0.2}),
    ("Pendulum-v1", {"max_episode_steps": 10}),
]


@pytest.mark.parametrize(("environment_id", "task_kwargs"), SHORT)
def test_a_restored_environment_continues_with_the_same_episodes(environment_id, task_kwargs):
    uninterrupted = environments.make_training_environment(environment_id, 3, **task_kwargs)
    play(uninterrupted, 2, actions_seed=0)
    buffer = io.BytesIO()
    torch.save(uninterrupted.save(), buffer)
    buffer.seek(0)
    expected = play(uninterrupted, 4, actions_seed=1)

    resumed = environments.make_training_environment(environment_id, 3, **task_kwargs)
    fresh = play(resumed, 4, actions_seed=1)
    resumed.restore(torch.load(buffer, weights_only=True))
    found = play(resumed, 4, actions_seed=1)

    np.testing.assert_array_equal(np.concatenate(found), np.concatenate(expected))
    assert not np.array_equal(np.concatenate(fresh), np.concatenate(expected))


@pytest.mark.parametrize("environment_id", ["dm_control/cartpole/swingup", "Pendulum-v1"])
def test_a_saved_state_stays_as_it_was(environment_id):
    environment = environments.make(environment_id, 3)
    environment.reset()
    state = environment.save()
    before = copy.deepcopy(state)
    for _ in range(3):
        environment.reset()
    assert state == before
    assert environment.save() != before


def test_a_state_saved_before_the_first_reset_still_holds_the_seed():
    state = environments.make("Pendulum-v1", 3).save()
    resumed = environments.make("Pendulum-v1", 4)
    resumed.restore(state)
    np.testing.assert_array_equal(
        resumed.reset().observation, environments.make("Pendulum-v1", 3).reset().observation
    )


def test_a_restored_gymnasium_environment_starts_an_episode():
    environment = environments.GymnasiumEnvironment(gymnasium.make("Pendulum-v1"), seed=0)
    environment.reset()
    environment.step(np.zeros(1, np.float32))
    environment.restore(environment.save())
    assert environment.step(np.zeros(1, np.float32)).first()


def test_a_restored_dm_control_environment_starts_an_episode():
    environment = environments.make("dm_control/cartpole/swingup", 0)
    environment.reset()
    environment.step(np.zeros(1))
    environment.restore(environment.save())
    assert environment.step(np.zeros(1)).first()


@pytest.mark.parametrize("environment_id", ["dm_control/cartpole/swingup", "Pendulum-v1"])
def test_a_seed_given_later_gives_the_episodes_of_an_environment_made_with_it(environment_id):
    expected = environments.make(environment_id, 7)
    reseeded = environments.make(environment_id, 3)
    reseeded.reset()
    reseeded.seed(7)
    spec = reseeded.action_spec()
    action = np.zeros(spec.shape, spec.dtype)
    for _ in range(2):
        found = reseeded.step(action)
        assert found.first()
        np.testing.assert_equal(found.observation, expected.reset().observation)
        reseeded.seed(7)
        expected.seed(7)


@pytest.mark.parametrize("bad", [["1", ""], [1, [2, 3]], [None]], ids=str)
def test_a_saved_state_that_holds_no_whole_numbers_is_refused_in_words(bad):
    with pytest.raises(ValueError, match="must be made of whole numbers, got others"):
        random_state.to_numpy({"state": {"key": bad}})
