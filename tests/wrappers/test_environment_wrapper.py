import copy
import pickle

import dm_env
import numpy as np
import pytest

from minerva_acme import environments, wrappers


class AddsOne(wrappers.EnvironmentWrapper):
    def reset(self):
        timestep = self._environment.reset()
        return timestep._replace(observation=timestep.observation + 1)


class Doubles(wrappers.EnvironmentWrapper):
    def reset(self):
        timestep = self._environment.reset()
        return timestep._replace(observation=timestep.observation * 2)


def test_wrapper_behaves_as_what_it_wraps(scripted):
    environment = scripted()
    wrapper = wrappers.EnvironmentWrapper(environment)
    assert wrapper.reset() == environment.reset()
    assert wrapper.step(np.zeros(1)).reward == 0.5
    for name in ("observation_spec", "action_spec", "reward_spec", "discount_spec"):
        assert getattr(wrapper, name)() == getattr(environment, name)()
    assert wrapper.environment is environment


def test_public_attributes_reach_through_every_layer(scripted):
    wrapper = AddsOne(Doubles(scripted()))
    assert wrapper.greet("you") == "hello you"
    assert wrapper.closed is False


def test_private_and_unknown_attributes_are_not_found(scripted):
    wrapper = AddsOne(scripted())
    with pytest.raises(AttributeError, match="'AddsOne' has no attribute '_steps'"):
        _ = wrapper._steps
    with pytest.raises(AttributeError, match="nonsense"):
        _ = wrapper.nonsense
    assert not hasattr(wrapper, "__array__")


def test_leaving_the_context_closes_the_wrapped_environment(scripted):
    environment = scripted()
    with AddsOne(environment):
        assert not environment.closed
    assert environment.closed


def test_wrap_all_applies_the_first_wrapper_innermost(scripted):
    environment = scripted(observation=np.float64(3.0))
    assert wrappers.wrap_all(environment, [AddsOne, Doubles]).reset().observation == 8.0
    assert wrappers.wrap_all(environment, [Doubles, AddsOne]).reset().observation == 7.0
    assert wrappers.wrap_all(environment, []) is environment


@pytest.mark.parametrize(
    "wrap", [AddsOne, wrappers.SinglePrecisionWrapper, wrappers.CanonicalActionWrapper,
             wrappers.ConcatObservationWrapper]
)  # fmt: skip
def test_copies_are_independent_and_equal(scripted, wrap):
    wrapper = wrap(scripted(observation=np.float64(3.0)))
    for copied in (copy.deepcopy(wrapper), copy.copy(wrapper)):
        assert copied.reset().observation == wrapper.reset().observation
    copied = copy.deepcopy(wrapper)
    copied.reset()
    copied.step(np.zeros(1))
    assert len(copied.actions) == 1 and wrapper.actions == []


def test_wrappers_of_a_picklable_environment_pickle():
    wrapper = wrappers.wrap_all(
        environments.GymnasiumEnvironment("Pendulum-v1", seed=3),
        [wrappers.CanonicalActionWrapper, wrappers.ConcatObservationWrapper, wrappers.SinglePrecisionWrapper],
    )
    copied = pickle.loads(pickle.dumps(wrapper))
    expected, found = wrapper.reset(), copied.reset()
    assert found.step_type == dm_env.StepType.FIRST
    np.testing.assert_array_equal(found.observation, expected.observation)


def test_every_public_name_exists_and_is_listed_in_order():
    assert wrappers.__all__ == sorted(wrappers.__all__)
    assert all(hasattr(wrappers, name) for name in wrappers.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = wrappers.Nothing
