import dm_env
import numpy as np
import pytest
from dm_env import specs

from minerva_acme import wrappers


def repeated(tape, rewards, discounts=None, num_repeats=3, **settings):
    inner = tape(rewards, discounts, **settings)
    environment = wrappers.ActionRepeatWrapper(inner, num_repeats=num_repeats)
    environment.reset()
    return inner, environment


def test_rewards_are_summed_and_discounts_multiplied_over_the_repeats(tape):
    inner, environment = repeated(tape, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0], [0.5] * 7)
    first, second = environment.step(1), environment.step(2)
    assert first.mid() and (first.reward, first.discount) == (7.0, 0.125)
    assert second.mid() and (second.reward, second.discount) == (56.0, 0.125)
    assert second.observation.tolist() == [1, 6]
    assert inner.actions == [1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize("discount", [0.0, 1.0])
def test_repeats_stop_at_the_end_of_the_episode(tape, discount):
    inner, environment = repeated(tape, [1.0, 2.0, 4.0, 8.0, 16.0], [1.0, 1.0, 1.0, 0.5, discount])
    environment.step(1)
    last = environment.step(2)
    assert last.last() and (last.reward, last.discount) == (24.0, 0.5 * discount)
    assert inner.actions == [1, 1, 1, 2, 2]
    assert environment.step(0).first()
    assert len(inner.actions) == 5  # the step that resets repeats nothing


def test_a_step_on_a_fresh_environment_resets_and_repeats_nothing(tape):
    inner = tape([1.0] * 5)
    assert wrappers.ActionRepeatWrapper(inner, num_repeats=3).step(1).first()
    assert inner.actions == []


def test_nested_rewards_and_vector_discounts_are_combined_leaf_by_leaf(tape):
    reward = {"run": np.float32(1.0), "jump": np.float32([1.0, 2.0])}
    _, environment = repeated(tape, [reward] * 5, [np.array([0.5, 1.0])] * 5)
    timestep = environment.step(0)
    assert timestep.reward["run"] == 3.0 and timestep.reward["run"].dtype == np.float32
    np.testing.assert_array_equal(timestep.reward["jump"], [3.0, 6.0])
    np.testing.assert_array_equal(timestep.discount, [0.125, 1.0])
    np.testing.assert_array_equal(reward["jump"], [1.0, 2.0])


def test_a_sum_may_leave_the_bounds_of_the_rewards(tape):
    _, environment = repeated(tape, [1.0] * 5, reward_spec=specs.BoundedArray((), np.float64, 0, 1, "reward"))
    assert environment.reward_spec() == specs.Array((), np.float64, "reward")
    environment.reward_spec().validate(environment.step(0).reward)


def test_a_step_lasts_as_long_as_its_repeats(tape):
    _, environment = repeated(tape, [1.0])
    assert environment.control_timestep() == 0.75
    assert wrappers.frames_per_second(environment) == pytest.approx(4 / 3)


def test_fewer_than_one_repeat_is_refused(tape):
    with pytest.raises(ValueError, match="`num_repeats` must be >= 1, got 0"):
        wrappers.ActionRepeatWrapper(tape([1.0]), num_repeats=0)


def test_what_the_environment_lacks_the_wrappers_lack_too():
    class Bare(dm_env.Environment):
        reset = step = observation_spec = lambda self, *arguments: None

        def action_spec(self):
            return specs.Array((), np.int32)

    repeated_ = wrappers.ActionRepeatWrapper(Bare(), num_repeats=2)
    assert not hasattr(repeated_, "control_timestep")
    with pytest.raises(ValueError, match="`environment` must have a method `control_timestep`"):
        wrappers.frames_per_second(repeated_)
