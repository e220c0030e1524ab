"""The example of MuJoCo Playground trains in a batch. It takes a minute, since JAX compiles the task."""

import dataclasses
import importlib.util
import pathlib

import pytest

pytest.importorskip("mujoco_playground", reason="the extra `playground` is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")  # of JAX's, Brax's and Playground's own

PATH = pathlib.Path(__file__).parents[2] / "examples" / "playground.py"


def test_cartpole_swingup_is_trained_in_and_evaluated(tmp_path):
    spec = importlib.util.spec_from_file_location("playground", PATH)
    playground = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(playground)
    small = dataclasses.replace(
        playground.CONFIG,
        num_environments=4,
        policy_layer_sizes=(16,),
        critic_layer_sizes=(16,),
        min_replay_size=100,
        random_steps=100,
    )
    result = playground.main(num_env_steps=1_200, directory=str(tmp_path / "run"), config=small)
    assert (result.env_steps, result.learner_steps > 100) == (1_200, True)
    for evaluation in (result.random, result.before, result.after):
        assert evaluation.lengths == (125,) * 4  # 1,000 steps of the simulator
        assert all(0.0 < each < 1_000.0 for each in evaluation.returns)
    assert len(set(result.random.returns)) == 4
