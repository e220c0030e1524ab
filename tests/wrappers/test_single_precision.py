import numpy as np
import pytest
import tree
from dm_env import specs

from minerva_acme.wrappers import SinglePrecisionWrapper

NESTED_SPEC = {
    "pixels": specs.BoundedArray((2, 2), np.uint8, 0, 255),
    "parts": (
        specs.Array((3,), np.float64),
        specs.DiscreteArray(4, dtype=np.int64),
        specs.Array((), np.float32),
    ),
}
NESTED_OBSERVATION = {
    "pixels": np.full((2, 2), 7, np.uint8),
    "parts": (np.array([0.1, 0.2, 0.3]), np.int64(3), np.float32(1.5)),
}


def test_a_nest_is_narrowed_leaf_by_leaf_and_other_dtypes_stay(scripted):
    environment = SinglePrecisionWrapper(scripted(NESTED_OBSERVATION, NESTED_SPEC))
    expected = {"pixels": np.uint8, "parts": (np.float32, np.int32, np.float32)}
    observation = environment.reset().observation
    assert tree.map_structure(lambda leaf: leaf.dtype.type, observation) == expected
    assert tree.map_structure(lambda spec: spec.dtype.type, environment.observation_spec()) == expected
    tree.map_structure(lambda spec, leaf: spec.validate(leaf), environment.observation_spec(), observation)
    np.testing.assert_allclose(observation["parts"][0], [0.1, 0.2, 0.3], rtol=1e-6)
    assert observation["parts"][1] == 3


def test_rewards_and_discounts_are_float32_and_none_at_the_first_timestep(scripted):
    environment = SinglePrecisionWrapper(scripted())
    first = environment.reset()
    assert first.reward is None and first.discount is None
    timestep = environment.step(np.zeros(1, np.float32))
    assert (timestep.reward.dtype, timestep.discount.dtype) == (np.float32, np.float32)
    assert (timestep.reward, timestep.discount) == (0.5, 1.0)
    assert environment.reward_spec().dtype == environment.discount_spec().dtype == np.float32
    environment.reward_spec().validate(timestep.reward)
    environment.discount_spec().validate(timestep.discount)


def test_an_integer_reward_becomes_what_its_spec_says(scripted):
    environment = SinglePrecisionWrapper(scripted(reward=1))
    environment.reset()
    environment.reward_spec().validate(environment.step(np.zeros(1)).reward)


@pytest.mark.parametrize(
    ("spec", "reward", "expected"),
    [
        (specs.Array((), np.int64), np.int64(3_000_000_000), 3e9),
        (specs.Array((), bool), True, 1.0),
        (specs.BoundedArray((), np.int8, -1, 1, name="reward"), -1, -1.0),
        (specs.DiscreteArray(3), 2, 2.0),
        (specs.Array((), np.float16), np.float16(0.5), 0.5),
    ],
)
def test_a_reward_of_any_numbers_is_float32_with_its_bounds(scripted, spec, reward, expected):
    environment = SinglePrecisionWrapper(scripted(reward=reward, reward_spec=spec))
    environment.reset()
    found = environment.step(np.zeros(1)).reward
    assert (found, found.dtype, environment.reward_spec().dtype) == (expected, np.float32, np.float32)
    environment.reward_spec().validate(found)
    assert environment.reward_spec().name == spec.name
    if isinstance(spec, specs.BoundedArray):
        assert environment.reward_spec().minimum == spec.minimum
        assert environment.reward_spec().maximum == spec.maximum


def test_half_precision_becomes_single_and_actions_go_back(scripted):
    half = specs.BoundedArray((2,), np.float16, -1, 1)
    inner = scripted(np.float16([0.5, 1.0]), half, action_spec=half)
    environment = SinglePrecisionWrapper(inner)
    assert environment.reset().observation.dtype == np.float32
    assert environment.observation_spec() == environment.action_spec() == half.replace(dtype=np.float32)
    environment.step(np.float32([0.5, -0.5]))
    assert inner.actions[0].dtype == np.float16


def test_nested_rewards_are_narrowed_too(scripted):
    spec = {"task": specs.Array((2,), np.float64), "bonus": specs.Array((), np.float64)}
    environment = SinglePrecisionWrapper(
        scripted(reward={"task": np.ones(2), "bonus": 0.25}, reward_spec=spec)
    )
    environment.reset()
    reward = environment.step(np.zeros(1)).reward
    tree.map_structure(lambda spec, leaf: spec.validate(leaf), environment.reward_spec(), reward)
    assert reward["bonus"] == 0.25


def test_the_environment_gets_actions_in_its_own_dtype(scripted):
    inner = scripted()
    environment = SinglePrecisionWrapper(inner)
    assert environment.action_spec().dtype == np.float32
    environment.reset()
    environment.step(np.array([0.5], np.float32))
    assert inner.actions[0].dtype == np.float64
    assert inner.actions[0] == [0.5]


def test_bounds_out_of_reach_become_the_furthest_and_infinite_ones_stay(scripted):
    spec = specs.BoundedArray((2,), np.float64, [-np.inf, -1e300], [1.0, 1e300])
    environment = SinglePrecisionWrapper(scripted(np.zeros(2), spec))
    largest = np.finfo(np.float32).max
    np.testing.assert_array_equal(environment.observation_spec().minimum, np.float32([-np.inf, -largest]))
    np.testing.assert_array_equal(environment.observation_spec().maximum, np.float32([1.0, largest]))


def test_integer_bounds_out_of_reach_become_the_furthest(scripted):
    limits = np.iinfo(np.int64)
    spec = specs.BoundedArray((), np.int64, limits.min, limits.max)
    environment = SinglePrecisionWrapper(scripted(np.int64(0), spec))
    assert environment.observation_spec().minimum == np.iinfo(np.int32).min
    assert environment.observation_spec().maximum == np.iinfo(np.int32).max


def test_an_integer_that_does_not_fit_is_refused_instead_of_wrapped_around(scripted):
    environment = SinglePrecisionWrapper(scripted(np.int64(2**40), specs.Array((), np.int64)))
    with pytest.raises(ValueError, match=r"does not fit int32: 1099511627776\. Leave out"):
        environment.reset()
