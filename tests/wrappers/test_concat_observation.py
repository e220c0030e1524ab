import collections

import numpy as np
import pytest
from dm_env import specs

from minerva_acme.wrappers import ConcatObservationWrapper

# Listed out of order on purpose.
SPEC = collections.OrderedDict(
    velocity=specs.Array((2,), np.float64),
    arm=specs.Array((2, 2), np.float64),
    height=specs.Array((), np.float64),
)
OBSERVATION = collections.OrderedDict(
    velocity=np.array([5.0, 6.0]), arm=np.array([[0.0, 1.0], [2.0, 3.0]]), height=4.0
)


def test_entries_follow_each_other_by_sorted_name_whatever_their_order(scripted):
    for names in (list(SPEC), list(reversed(SPEC))):
        observation = collections.OrderedDict((name, OBSERVATION[name]) for name in names)
        spec = collections.OrderedDict((name, SPEC[name]) for name in names)
        environment = ConcatObservationWrapper(scripted(observation, spec))
        vector = environment.reset().observation
        np.testing.assert_array_equal(vector, [0, 1, 2, 3, 4, 5, 6])
        environment.observation_spec().validate(vector)


def test_every_timestep_is_converted_and_nothing_else_in_it(scripted):
    inner = scripted(OBSERVATION, SPEC)
    environment = ConcatObservationWrapper(inner)
    environment.reset()
    for last in (False, True):
        timestep = environment.step(np.zeros(1))
        assert timestep.observation.shape == (7,)
        assert (timestep.last(), timestep.reward, timestep.discount) == (last, 0.5, 1.0)
    assert list(inner.observation) == list(OBSERVATION)


def test_nests_of_dicts_and_tuples_are_flattened_in_order(scripted):
    spec = {
        "b": (specs.Array((1,), np.float32), specs.Array((), np.float32)),
        "a": {"z": specs.Array((2,), np.float32)},
    }
    observation = {"b": (np.float32([2]), np.float32(3)), "a": {"z": np.float32([0, 1])}}
    environment = ConcatObservationWrapper(scripted(observation, spec))
    np.testing.assert_array_equal(environment.reset().observation, [0, 1, 2, 3])


def test_a_single_array_becomes_a_vector(scripted):
    environment = ConcatObservationWrapper(scripted(np.float64(2.0), specs.Array((), np.float64)))
    assert environment.observation_spec() == specs.Array((1,), np.float64)
    np.testing.assert_array_equal(environment.reset().observation, [2.0])


def test_the_dtype_is_the_widest_among_the_leaves(scripted):
    spec = {"a": specs.Array((1,), np.float32), "b": specs.Array((1,), np.float64)}
    environment = ConcatObservationWrapper(scripted({"a": np.float32([1]), "b": np.float64([2])}, spec))
    assert environment.observation_spec().dtype == environment.reset().observation.dtype == np.float64


def test_the_vector_does_not_share_memory_with_the_environment(scripted):
    observation = np.zeros(3)
    environment = ConcatObservationWrapper(scripted(observation, specs.Array((3,), np.float64)))
    vector = environment.reset().observation
    observation[:] = 1
    np.testing.assert_array_equal(vector, np.zeros(3))


def test_name_filter_selects_and_keeps_the_sorted_order(scripted):
    environment = ConcatObservationWrapper(scripted(OBSERVATION, SPEC), name_filter=["velocity", "height"])
    np.testing.assert_array_equal(environment.reset().observation, [4, 5, 6])
    assert environment.observation_spec().shape == (3,)


def test_name_filter_can_leave_out_what_cannot_be_concatenated(scripted):
    spec = {"pixels": specs.Array((4, 4, 3), np.uint8), "state": specs.Array((2,), np.float64)}
    observation = {"pixels": np.zeros((4, 4, 3), np.uint8), "state": np.ones(2)}
    environment = ConcatObservationWrapper(scripted(observation, spec), name_filter=["state"])
    np.testing.assert_array_equal(environment.reset().observation, [1, 1])


@pytest.mark.parametrize(
    ("spec", "name_filter", "message"),
    [
        (SPEC, ["speed"], r"`name_filter` must name observations among \['arm', .*\], got \['speed'\]"),
        (SPEC, "arm", r"`name_filter` must be a list of names, got 'arm'"),
        (SPEC, [], "must have at least one array to concatenate"),
        (specs.Array((2,), np.float64), ["arm"], "`name_filter` must be None unless observations are a dict"),
        (
            {"a": specs.Array((2,), np.int64)},
            None,
            r"`observation_spec`\['a'\] must be a float .*in a wrapper of the environment",
        ),
        ({"a": (specs.Array((4, 4, 3), np.float32),)}, None, r"\['a'\]\[0\] .* at most two axes .* an image"),
        (
            specs.Array((4, 4), np.uint8),
            None,
            r"`observation_spec` must be a float array .* uint8.*a vector of floats in a wrapper",
        ),
    ],
)
def test_what_cannot_be_concatenated_is_refused_at_construction(scripted, spec, name_filter, message):
    with pytest.raises(ValueError, match=message):
        ConcatObservationWrapper(scripted(observation_spec=spec), name_filter=name_filter)
