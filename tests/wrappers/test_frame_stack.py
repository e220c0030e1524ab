import numpy as np
import pytest
import tree
from dm_env import specs

from minerva_acme import testing, wrappers


def test_the_first_observation_is_repeated_and_then_the_oldest_leaves(tape):
    environment = wrappers.FrameStackWrapper(tape([1.0] * 4), num_frames=3)
    for episode in (1, 2):
        stacks = [environment.reset().observation] + [environment.step(0).observation for _ in range(4)]
        assert [stack[:, 1].tolist() for stack in stacks] == [
            [0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4],
        ]  # fmt: skip
        assert all((stack[:, 0] == episode).all() for stack in stacks)


def test_a_step_that_resets_starts_a_new_stack(tape):
    environment = wrappers.FrameStackWrapper(tape([1.0]), num_frames=2)
    assert environment.step(0).observation.tolist() == [[1, 0], [1, 0]]
    environment.step(0)
    assert environment.step(0).observation.tolist() == [[2, 0], [2, 0]]


def test_the_spec_has_a_leading_axis_and_the_bounds_of_each_frame(tape):
    environment = wrappers.FrameStackWrapper(tape([1.0] * 3), num_frames=4)
    spec = environment.observation_spec()
    assert spec == specs.BoundedArray((4, 2), np.float64, [0, 0], [np.inf, 3], "observation")
    for timestep in [environment.reset(), *(environment.step(0) for _ in range(3))]:
        spec.validate(timestep.observation)


def test_nests_images_and_discrete_observations_are_stacked():
    nest = {
        "image": specs.BoundedArray((4, 4, 3), np.uint8, 0, 255),
        "room": (specs.DiscreteArray(5, dtype=np.int64), specs.Array((2,), np.float32)),
    }
    environment = wrappers.FrameStackWrapper(testing.FakeEnvironment(observation_spec=nest), num_frames=2)
    shapes = tree.map_structure(lambda spec: (spec.shape, spec.dtype.name), environment.observation_spec())
    assert shapes["image"] == ((2, 4, 4, 3), "uint8")
    assert shapes["room"] == (((2,), "int64"), ((2, 2), "float32"))
    observation = environment.reset().observation
    tree.map_structure(lambda spec, leaf: spec.validate(leaf), environment.observation_spec(), observation)


def test_stacks_given_out_do_not_change_later(tape):
    environment = wrappers.FrameStackWrapper(tape([1.0] * 3), num_frames=1)
    first = environment.reset().observation
    environment.step(0)
    assert first.tolist() == [[1, 0]]


def test_fewer_than_one_frame_is_refused(tape):
    with pytest.raises(ValueError, match="`num_frames` must be >= 1, got 0"):
        wrappers.FrameStackWrapper(tape([1.0]), num_frames=0)
