"""Tasks of dm_control with repeated actions and from pixels, by id."""

import functools
import os
import subprocess
import sys

import numpy as np
import pytest

from minerva_acme import environments
from minerva_acme.environments.task_settings import TaskSettings, split_repeat

ID = "dm_control/cartpole/swingup/pixels"


@functools.cache
def why_not():
    """Why this machine cannot draw; "" if it can."""
    try:
        environments.make(f"{ID},size=8").close()
    except RuntimeError as error:
        return str(error)
    return ""


def need_a_renderer():
    if why_not():
        pytest.skip(f"no renderer: {why_not()}")


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("repeat=4", TaskSettings(pixels=False, repeat=4)),
        ("pixels", TaskSettings(pixels=True, repeat=2, frames=3, size=84)),
        ("pixels,repeat=8", TaskSettings(pixels=True, repeat=8, frames=3, size=84)),
        ("pixels,size=64,frames=1,repeat=4", TaskSettings(pixels=True, repeat=4, frames=1, size=64)),
    ],
)
def test_settings_are_read_from_the_end_of_an_id(text, settings):
    assert TaskSettings.parse(text) == settings


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pictures", "without pixels must be repeat, .*got 'pictures'"),
        ("size=64", "without pixels must be repeat, .*got 'size=64'"),
        ("repeat=2,pixels", "got 'pixels'"),
        ("pixels,repat=8", "must be repeat, frames, size.*got 'repat=8'.*pixels,repeat=8"),
        ("pixels,repeat=0", "number >= 1, got 'repeat=0'"),
        ("pixels,repeat=-2", "got 'repeat=-2'"),
        ("pixels,repeat", "got 'repeat'"),
        ("pixels,size=84,size=64", "each once.*got 'size=64'"),
    ],
)
def test_settings_that_are_none_are_refused_with_the_right_ones(text, message):
    with pytest.raises(ValueError, match=message):
        TaskSettings.parse(text)


@pytest.mark.parametrize(
    ("environment_id", "env_name", "action_repeat"),
    [
        ("dm_control/cheetah/run", "dm_control/cheetah/run", 1),
        ("dm_control/cheetah/run/repeat=2", "dm_control/cheetah/run", 2),
        ("dm_control/cheetah/run/repeat=1", "dm_control/cheetah/run", 1),
        (ID, ID, 2),
        (f"{ID},repeat=8", ID, 8),
        (f"{ID},size=64,repeat=8,frames=1", f"{ID},size=64,frames=1", 8),
        ("gymnasium/CartPole-v1", "CartPole-v1", 1),
        ("minatar_ids:MinAtar/Breakout-v1", "minatar_ids:MinAtar/Breakout-v1", 1),
        ("a/b/c/repeat=2", "a/b/c/repeat=2", 1),
    ],
)
def test_an_id_is_split_into_its_base_task_and_its_repeat(environment_id, env_name, action_repeat):
    assert split_repeat(environment_id) == (env_name, action_repeat)


def test_an_id_whose_settings_are_none_is_not_split():
    with pytest.raises(ValueError, match="must be repeat, each once .*got 'repat=2'"):
        split_repeat("dm_control/cheetah/run/repat=2")


def test_without_pixels_an_action_is_repeated_and_nothing_else_changes():
    task = environments.make_training_environment("dm_control/cartpole/swingup", seed=3)
    repeated = environments.make_training_environment("dm_control/cartpole/swingup/repeat=4", seed=3)
    np.testing.assert_array_equal(task.reset().observation, repeated.reset().observation)
    random = np.random.default_rng(0)
    for _ in range(250):
        action = random.uniform(-1.0, 1.0, 1).astype(np.float32)
        steps = [task.step(action) for _ in range(4)]
        timestep = repeated.step(action)
        assert timestep.reward == pytest.approx(sum(step.reward for step in steps), rel=1e-5)
        np.testing.assert_array_equal(timestep.observation, steps[-1].observation)
    assert timestep.last() and steps[-1].last()


def test_an_agent_gets_stacks_of_pictures_and_an_action_is_repeated():
    need_a_renderer()
    task = environments.make_training_environment("dm_control/cartpole/swingup", seed=3)
    seen = environments.make_training_environment(f"{ID},repeat=4,size=24", seed=3)
    spec = seen.observation_spec()
    assert (spec.shape, spec.dtype) == ((3, 24, 24, 3), np.uint8)
    task.reset()
    before = seen.reset()
    random = np.random.default_rng(0)
    for _ in range(3):
        action = random.uniform(-1.0, 1.0, 1).astype(np.float32)
        reward = sum(task.step(action).reward for _ in range(4))
        timestep = seen.step(action)
        assert timestep.reward == pytest.approx(reward, rel=1e-5)
        np.testing.assert_array_equal(timestep.observation[:-1], before.observation[1:])
        assert not np.array_equal(timestep.observation[-1], before.observation[-1])
        before = timestep


def test_a_seed_gives_the_same_pictures_and_a_saved_state_the_following_ones():
    need_a_renderer()
    first, again = (environments.make(f"{ID},size=16", seed=1) for _ in range(2))
    np.testing.assert_array_equal(first.reset().observation, again.reset().observation)
    state = first.save()
    following = first.reset().observation
    other = environments.make(f"{ID},size=16", seed=1)
    other.restore(state)
    np.testing.assert_array_equal(other.reset().observation, following)


def test_without_a_renderer_pixels_are_refused_before_anything_starts():
    code = f"from minerva_acme import environments; environments.make('{ID}')"
    result = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"MUJOCO_GL": "disabled"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 1
    assert "this machine cannot draw" in result.stderr.splitlines()[-1]
    assert "apt-get install libegl1" in result.stderr.splitlines()[-1]
