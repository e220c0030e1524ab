"""One extreme number of an environment must not become part of what every resumed run dies of."""

import dm_env
import numpy as np
import pytest
import torch
import tree

from minerva_acme import specs

from . import table

NUM_STEPS = 32
AT_STEP = 20  # which no evaluation reaches: it plays an episode before and one after training


class Poisoned(dm_env.Environment):
    """Episodes of 8 steps; the reward or the observation of one step is `number`."""

    def __init__(self, seed, field, number, at_step):
        self._random = np.random.default_rng(seed)
        self._field, self._number, self._at_step = field, number, at_step
        self._num_steps = 0

    def reset(self):
        return dm_env.restart(self._random.normal(size=3).astype(np.float32))

    def step(self, action):
        self._num_steps += 1
        observation = self._random.normal(size=3).astype(np.float32)
        reward = np.float32(-np.abs(action).sum())
        if self._num_steps == self._at_step:
            reward = np.float32(self._number) if self._field == "reward" else reward
            observation[1] = self._number if self._field == "observation" else observation[1]
        is_last = self._num_steps % 8 == 0
        step_type = dm_env.StepType.LAST if is_last else dm_env.StepType.MID
        return dm_env.TimeStep(step_type, reward, np.float32(1.0), observation)

    def observation_spec(self):
        return specs.Array((3,), np.float32, name="observation")

    def action_spec(self):
        return specs.BoundedArray((2,), np.float32, -1.0, 1.0, name="action")

    def reward_spec(self):
        return specs.Array((), np.float32, name="reward")

    def discount_spec(self):
        return specs.BoundedArray((), np.float32, 0.0, 1.0, name="discount")


@pytest.fixture(params=["mpo", "ppo"])  # over replay, and on rollouts
def builder(request):
    few = {"samples_per_insert": 1.0} if request.param == "mpo" else {}
    return table.Scene(request.param).builder(**few)


@pytest.fixture
def train(builder, run, tmp_path):
    """Trains in one folder, for as many steps in all, in an environment with one extreme number."""

    def train(num_env_steps, field="reward", number=0.0, at_step=0):
        return run(
            builder,
            lambda seed: Poisoned(seed, field, number, at_step),
            num_env_steps,
            directory=tmp_path / "run",
            checkpoint_period=16,
        )

    return train


def saved_tensors(folder):
    (newest,) = sorted(folder.glob("checkpoints/*/state.pt"))[-1:]
    state = torch.load(newest, weights_only=True)
    return {
        path: leaf.double()
        for path, leaf in tree.flatten_with_path(state)
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
    }


@pytest.mark.parametrize("field", ["reward", "observation"])
@pytest.mark.promise("A reward or observation beyond 1e15 is refused like NaN")
def test_a_number_that_float32_cannot_square_is_refused_and_the_run_can_go_on(train, tmp_path, field):
    with pytest.raises(ValueError) as raised:
        train(NUM_STEPS, field, 1.1e15, AT_STEP)
    assert f"`{field}` must be within ±1e+15, got " in str(raised.value)
    assert "Clip it or scale it down in a wrapper of the environment" in str(raised.value)
    train(NUM_STEPS + 16)
    assert all(tensor.abs().max() < 1e6 for tensor in saved_tensors(tmp_path / "run").values())


@pytest.mark.parametrize("field", ["reward", "observation"])
def test_an_extreme_number_that_is_taken_ends_neither_the_run_nor_a_resumed_one(train, tmp_path, field):
    train(NUM_STEPS, field, -9e14, AT_STEP)
    train(NUM_STEPS + 16)
    assert all(torch.isfinite(tensor).all() for tensor in saved_tensors(tmp_path / "run").values())
