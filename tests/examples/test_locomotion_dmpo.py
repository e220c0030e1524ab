"""DMPO on composer's locomotion, in one process and with actors, in a setting that takes seconds."""

import importlib.util
import os
import pathlib
import runpy
import sys

import numpy as np
import pytest

from minerva_acme import environments, wrappers

pytest.importorskip("labmaze", reason="composer's arenas need it, and it has no wheels for Python 3.13")

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "locomotion_dmpo.py"
SMALL = [
    *("--num-env-steps", "100"),
    *("--num-actors", "1"),
    *("--time-limit", "0.5"),
    *("--evaluation-period", "0"),
    *("--evaluation-episodes", "1"),
    *("--config.batch-size", "8"),
    *("--config.samples-per-insert", "2"),
    *("--config.min-replay-size", "30"),
    *("--config.policy-layer-sizes", "8"),
    *("--config.critic-layer-sizes", "8"),
]


@pytest.fixture(autouse=True)
def renderer(monkeypatch):
    """dm_control has chosen how to draw, for this process, and the example's choice does not stay."""
    environments.make("dm_control/cartpole/swingup", seed=0)
    monkeypatch.setenv("MUJOCO_GL", os.environ.get("MUJOCO_GL", "disabled"))


@pytest.fixture
def example():
    spec = importlib.util.spec_from_file_location("locomotion_dmpo", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("engine", "walker"),
    [
        ("none", "humanoid"),
        pytest.param("inline", "ant", marks=pytest.mark.reverb),
        pytest.param("ray", "ant", marks=[pytest.mark.reverb, pytest.mark.ray, pytest.mark.timeout(900)]),
    ],
)
def test_a_walker_trains_with_each_engine(engine, walker, monkeypatch, tmp_path):
    flags = ["--engine", engine, "--walker", walker, "--directory", str(tmp_path / "run"), *SMALL]
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), *flags])
    result = runpy.run_path(str(EXAMPLE), run_name="__main__")["result"]
    assert (result.env_steps, result.given_up) == (100, ())
    assert result.learner_steps >= 5  # with Ray, its last ones may lag behind the actors'
    assert result.after.returns != result.before.returns
    assert all(length <= 20 for length in result.after.lengths)  # of 0.025 s each


def test_a_fall_is_terminal_and_the_time_limit_is_not(example):
    discounts = set()
    for walker, time_limit in (("humanoid", 30.0), ("ant", 0.1)):
        environment = example.make_environment(walker, 0, time_limit)
        timestep = environment.reset()
        assert timestep.observation.dtype == np.float32 and timestep.observation.ndim == 1
        while not timestep.last():
            timestep = environment.step(np.zeros(environment.action_spec().shape, np.float32))
        discounts.add((walker, float(timestep.discount)))
    assert discounts == {("humanoid", 0.0), ("ant", 1.0)}


def test_a_restored_environment_of_composer_continues_with_the_same_episodes():
    from dm_control import composer
    from dm_control.locomotion import arenas, tasks, walkers

    def make():
        task = tasks.GoToTarget(walkers.Ant(), arenas.Floor())  # at a random place, as is the target
        environment = composer.Environment(task, random_state=3, strip_singleton_obs_buffer_dim=True)
        return environments.make_training_environment(wrappers.DmControlRandomState(environment))

    uninterrupted = make()
    first = uninterrupted.reset().observation
    state = uninterrupted.save()
    expected = uninterrupted.reset().observation
    resumed = make()
    resumed.restore(state)
    np.testing.assert_array_equal(resumed.reset().observation, expected)
    assert not np.array_equal(first, expected)
