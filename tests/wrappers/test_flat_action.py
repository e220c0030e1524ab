import numpy as np
import pytest

from minerva_acme import environments, specs, testing, wrappers
from minerva_acme.wrappers import flat_action

ARM = specs.BoundedArray((2, 2), np.float64, -1.0, [[1.0, 2.0], [3.0, 4.0]])
GRIP = specs.BoundedArray((), np.float32, 0.0, 9.0)
GEAR = specs.DiscreteArray(3)
SWITCH = specs.BoundedArray((), bool, False, True)


def wrap(action_spec):
    environment = testing.FakeEnvironment(action_spec=action_spec)
    wrapped = wrappers.FlatActionWrapper(environment)
    wrapped.reset()
    return environment, wrapped


def test_floats_become_one_vector_in_the_order_of_the_nest():
    environment, wrapped = wrap({"c": GRIP, "b": GRIP, "a": (ARM,)})
    low, high = [-1, -1, -1, -1, 0, 0], [1, 2, 3, 4, 9, 9]
    assert wrapped.action_spec() == specs.BoundedArray((6,), np.float64, low, high, name="action")
    wrapped.step(np.float64([0.1, 0.2, 0.3, 0.4, 5.0, 6.0]))
    expected = {"a": (np.float64([[0.1, 0.2], [0.3, 0.4]]),), "b": np.float32(5.0), "c": np.float32(6.0)}
    testing.assert_nests_equal(environment.actions[-1], expected)


def test_discrete_ones_become_choices():
    environment, wrapped = wrap((specs.DiscreteArray(3), specs.BoundedArray((2,), np.int64, 5, [6, 8])))
    spec = wrapped.action_spec()
    assert (spec.shape, spec.minimum.tolist(), spec.maximum.tolist()) == ((3,), [0, 5, 5], [2, 6, 8])
    wrapped.step(np.int64([2, 6, 7]))
    testing.assert_nests_equal(environment.actions[-1], (np.int32(2), np.int64([6, 7])))


@pytest.mark.parametrize(
    ("spec", "low", "high"),
    [
        (specs.BoundedArray((2, 2), np.int64, 0, [[1, 2], [3, 4]]), [0] * 4, [1, 2, 3, 4]),
        (specs.BoundedArray((2, 2), np.int8, 0, 1), [0] * 4, [1] * 4),
        (specs.BoundedArray((), np.int32, -2, 5), [-2], [5]),
        (ARM, [-1] * 4, [1, 2, 3, 4]),
    ],
)
def test_one_array_of_other_axes_becomes_a_vector(spec, low, high):
    assert flat_action.is_nested(spec)
    environment, wrapped = wrap(spec)
    assert wrapped.action_spec() == specs.BoundedArray((len(low),), spec.dtype, low, high, name="action")
    wrapped.step(np.array(high, spec.dtype))
    testing.assert_nests_equal(environment.actions[-1], np.broadcast_to(spec.maximum, spec.shape))


@pytest.mark.parametrize("spec", [specs.DiscreteArray(3), ARM.replace(shape=(4,), minimum=-1, maximum=1)])
def test_one_action_in_a_nest_is_taken_out(spec):
    environment, wrapped = wrap({"paddle": spec})
    assert wrapped.action_spec() == spec
    action = spec.generate_value() if isinstance(spec, specs.DiscreteArray) else np.full(4, 0.5)
    wrapped.step(action)
    testing.assert_nests_equal(environment.actions[-1], {"paddle": action})


def test_floats_and_integers_become_a_vector_of_each():
    environment, wrapped = wrap(
        (specs.BoundedArray((2,), np.int8, 5, [6, 8]), {"b": GRIP, "a": ARM, "c": GEAR})
    )
    spec = wrapped.action_spec()
    assert spec == {
        "continuous": specs.BoundedArray((5,), np.float64, [-1, -1, -1, -1, 0], [1, 2, 3, 4, 9]),
        "discrete": specs.BoundedArray((3,), np.int32, [5, 5, 0], [6, 8, 2]),
    }
    assert specs.is_hybrid(spec)
    assert not flat_action.is_nested(spec)
    wrapped.step({"continuous": np.float64([0.1, 0.2, 0.3, 0.4, 5.0]), "discrete": np.int32([6, 7, 2])})
    arm = np.float64([[0.1, 0.2], [0.3, 0.4]])
    expected = (np.int8([6, 7]), {"a": arm, "b": np.float32(5.0), "c": np.int32(2)})
    testing.assert_nests_equal(environment.actions[-1], expected)


@pytest.mark.parametrize(
    "nest",
    [{"a": ARM, "b": specs.Array((), np.int32)}, {"a": specs.Array((2,), np.float32)}, {"a": SWITCH}],
)
def test_actions_without_bounds_and_booleans_are_refused(nest):
    with pytest.raises(ValueError, match=r"must hold floats and integers with bounds.*Bound them in"):
        wrappers.FlatActionWrapper(testing.FakeEnvironment(action_spec=nest))


def test_a_training_environment_takes_nests_of_actions_of_one_kind():
    nest = {"left": specs.BoundedArray((1,), np.float64, 0.0, 4.0), "right": GRIP}
    inner = testing.FakeEnvironment(action_spec=nest)
    environment = environments.make_training_environment(inner)
    assert environment.action_spec() == specs.BoundedArray((2,), np.float32, [-1, -1], [1, 1], name="action")
    environment.reset()
    environment.step(np.float32([0.5, -1.0]))
    testing.assert_nests_equal(inner.actions[-1], {"left": np.float64([3.0]), "right": np.float32(0.0)})
