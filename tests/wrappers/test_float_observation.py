import dm_env
import numpy as np
import pytest

from minerva_acme import specs, testing, wrappers

INTEGERS = specs.BoundedArray((2,), np.int64, [0, 5], [2, 8])


def observe(spec, value):
    """What becomes of one observation."""
    environment = testing.FakeEnvironment(observation_spec=spec)
    environment.reset = lambda: dm_env.restart(value)
    wrapped = wrappers.FloatObservationWrapper(environment)
    observation = wrapped.reset().observation
    specs.check_conforms("observation", observation, wrapped.observation_spec())
    return observation


@pytest.mark.parametrize(
    ("spec", "value", "expected"),
    [
        (specs.DiscreteArray(4), np.int32(2), [0, 0, 1, 0]),
        (INTEGERS, np.int64([1, 8]), [0, 1, 0, 0, 0, 0, 1]),
        (specs.BoundedArray((2, 1), np.int8, 0, 2), np.int8([[1], [2]]), [0, 1, 0, 0, 0, 1]),
        (specs.BoundedArray((3,), np.int8, 0, 1), np.int8([1, 0, 1]), [1, 0, 1]),
        (specs.Array((2,), bool), np.array([True, False]), [1, 0]),
        (specs.Array((), bool), np.array(True), 1),
        (specs.BoundedArray((3,), np.uint8, 0, 255), np.uint8([0, 51, 255]), [0, 0.2, 1]),
        (specs.BoundedArray((2,), np.uint8, [0, 10], [4, 20]), np.uint8([1, 15]), [0.25, 0.5]),
        (specs.Array((2,), np.int64), np.int64([-3, 70_000]), [-3, 70_000]),
        (specs.BoundedArray((1,), np.int64, 0, 5000), np.int64([4000]), [4000]),
    ],
    ids=lambda value: str(value)[:60],
)  # fmt: skip
def test_numbers_that_are_no_floats_become_float32(spec, value, expected):
    observation = observe(spec, value)
    assert observation.dtype == np.float32
    np.testing.assert_allclose(observation, expected, rtol=1e-6)


def test_a_grid_of_truth_values_becomes_an_image_of_bytes():
    grid = np.random.default_rng(0).random((4, 5, 3)) < 0.5
    observation = observe(specs.BoundedArray(grid.shape, bool, False, True), grid)
    assert observation.dtype == np.uint8
    np.testing.assert_array_equal(observation, np.where(grid, 255, 0))


@pytest.mark.parametrize(
    "spec",
    [
        specs.Array((3,), np.float64),
        specs.BoundedArray((4, 4, 3), np.uint8, 0, 255),
        specs.BoundedArray((4, 4), np.uint8, 0, 255),
        specs.DiscreteArray(5000),
    ],
    ids=str,
)
def test_floats_images_and_one_of_very_many_values_stay_as_they_are(spec):
    environment = testing.FakeEnvironment(observation_spec=spec)
    wrapped = wrappers.FloatObservationWrapper(environment)
    assert wrapped.observation_spec() == spec
    given = wrapped.reset().observation
    assert given is environment.timesteps[-1].observation


def test_a_nest_is_turned_leaf_by_leaf():
    spec = {"gear": specs.DiscreteArray(3), "pair": (specs.Array((1,), bool), specs.Array((1,), np.float32))}
    observation = observe(spec, {"gear": np.int32(1), "pair": (np.array([True]), np.float32([0.5]))})
    testing.assert_nests_equal(
        observation,
        {"gear": np.float32([0, 1, 0]), "pair": (np.float32([1]), np.float32([0.5]))},
    )


@pytest.mark.parametrize("value", [[0, 4], [3, 5], [0, 9]])
def test_a_value_beyond_its_bounds_has_no_place_and_is_refused(value):
    spec = {"gear": INTEGERS.replace(name="gear")}
    with pytest.raises(specs.SpecError, match="`gear` must be in .*, the bounds of its spec, got"):
        observe(spec, {"gear": np.int64(value)})
