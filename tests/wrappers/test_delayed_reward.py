import numpy as np
import pytest
from dm_env import specs

from minerva_acme import wrappers


def play(tape, rewards, period, episodes=1, **settings):
    environment = wrappers.DelayedRewardWrapper(tape(rewards, **settings), period=period)
    found = []
    for _ in range(episodes):
        environment.reset()
        found += [environment.step(0) for _ in rewards]
    return found


@pytest.mark.parametrize(
    ("period", "expected"),
    [
        (1, [1, 2, 4, 8, 16]),
        (2, [0, 3, 0, 12, 16]),
        (3, [0, 0, 7, 0, 24]),
        (5, [0, 0, 0, 0, 31]),
        (None, [0, 0, 0, 0, 31]),
    ],
)
def test_rewards_come_summed_every_period_and_at_the_end(tape, period, expected):
    timesteps = play(tape, [1.0, 2.0, 4.0, 8.0, 16.0], period, episodes=2)
    assert [timestep.reward for timestep in timesteps] == expected * 2
    assert [timestep.discount for timestep in timesteps] == [1, 1, 1, 1, 0] * 2


def test_a_reset_drops_what_is_owed(tape):
    environment = wrappers.DelayedRewardWrapper(tape([1.0, 2.0, 4.0]), period=2)
    environment.reset()
    environment.step(0)
    environment.reset()
    assert [environment.step(0).reward for _ in range(3)] == [0, 3, 4]


def test_nested_rewards_are_delayed_leaf_by_leaf_and_keep_their_dtype(tape):
    rewards = [{"run": np.float32(i), "jump": np.float32([i, -i])} for i in (1, 2)]
    first, last = play(tape, rewards, None)
    assert first.reward["run"] == 0 and first.reward["run"].dtype == np.float32
    np.testing.assert_array_equal(first.reward["jump"], [0, 0])
    np.testing.assert_array_equal(last.reward["jump"], [3, -3])


def test_a_sum_may_leave_the_bounds_of_the_rewards(tape):
    spec = specs.BoundedArray((), np.float64, 0, 1, "reward")
    environment = wrappers.DelayedRewardWrapper(tape([1.0], reward_spec=spec), period=None)
    assert environment.reward_spec() == specs.Array((), np.float64, "reward")


def test_a_period_below_one_is_refused(tape):
    with pytest.raises(ValueError, match="`period` must be None or >= 1 step, got 0"):
        wrappers.DelayedRewardWrapper(tape([1.0]), period=0)
