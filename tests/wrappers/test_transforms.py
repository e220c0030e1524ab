import numpy as np
import pytest
from dm_env import specs

from minerva_acme import testing, wrappers

STEP = specs.Array((1,), np.float64, "step")


def test_every_observation_is_transformed_and_nothing_else(tape):
    environment = wrappers.ObservationTransformWrapper(
        tape([1.0, 2.0]), transform=lambda observation: 10 * observation[1:], spec=STEP
    )
    assert environment.observation_spec() is STEP
    assert environment.reset().observation.tolist() == [0]
    timesteps = [environment.step(0) for _ in range(3)]
    assert [timestep.observation.tolist() for timestep in timesteps] == [[10], [20], [0]]
    assert [timestep.reward for timestep in timesteps] == [1.0, 2.0, None]


def test_every_action_is_transformed(tape):
    inner = tape([1.0, 2.0])
    environment = wrappers.ActionTransformWrapper(
        inner,
        transform=lambda action: np.int32(action["left"] + action["right"]),
        spec={"left": 0, "right": 0},
    )
    assert environment.action_spec() == {"left": 0, "right": 0}
    environment.reset()
    environment.step({"left": 1, "right": 1})
    assert inner.actions == [2]


def test_a_spec_check_tells_a_transform_that_breaks_its_spec(tape):
    environment = wrappers.wrap_all(
        tape([1.0]),
        [
            lambda inner: wrappers.ObservationTransformWrapper(inner, transform=lambda o: o[:0], spec=STEP),
            wrappers.SpecCheckWrapper,
        ],
    )
    with pytest.raises(ValueError, match=r"`observation` must be float64 of shape \(1,\), got .* \(0,\)"):
        environment.reset()


def test_nests_may_become_arrays_and_arrays_nests():
    nest = {"a": specs.Array((2,), np.float32), "b": specs.Array((2,), np.float32)}
    environment = wrappers.ObservationTransformWrapper(
        testing.FakeEnvironment(observation_spec=nest),
        transform=lambda observation: (observation["a"] + observation["b"], {"only": observation["b"]}),
        spec=(nest["a"], {"only": nest["b"]}),
    )
    observation = wrappers.SpecCheckWrapper(environment).reset().observation
    assert set(observation[1]) == {"only"}
