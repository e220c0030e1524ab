import numpy as np
import pytest
import tree
from dm_env import specs

from minerva_acme.wrappers import CanonicalActionWrapper

LOPSIDED = specs.BoundedArray((3,), np.float64, [-2.0, 0.0, 1.0], [2.0, 10.0, 5.0])


def scaled(environment_class, spec, action, clip=True):
    inner = environment_class(action_spec=spec)
    environment = CanonicalActionWrapper(inner, clip=clip)
    environment.reset()
    environment.step(action)
    return inner.actions[0]


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ([-1, -1, -1], [-2, 0, 1]),
        ([0, 0, 0], [0, 5, 3]),
        ([1, 1, 1], [2, 10, 5]),
        ([0.5, -0.5, 0.25], [1, 2.5, 3.5]),
    ],
)
def test_minus_one_to_one_is_scaled_to_the_bounds(scripted, action, expected):
    np.testing.assert_array_equal(scaled(scripted, LOPSIDED, np.float32(action)), expected)


def test_an_action_outside_becomes_the_nearest_inside(scripted):
    np.testing.assert_array_equal(scaled(scripted, LOPSIDED, np.array([-3.0, 1.5, 9.0])), [-2, 10, 5])


def test_without_clipping_an_action_outside_is_scaled_beyond_the_bounds(scripted):
    np.testing.assert_array_equal(
        scaled(scripted, LOPSIDED, np.array([-3.0, 1.5, 0.0]), clip=False), [-6, 12.5, 3]
    )


def test_rounding_never_pushes_an_action_over_a_bound(scripted):
    rng = np.random.default_rng(0)
    minimum = rng.normal(size=1000)
    maximum = minimum + rng.uniform(size=1000)
    for dtype in (np.float32, np.float64):
        spec = specs.BoundedArray((1000,), dtype, minimum, maximum)
        for action in (-np.ones(1000), np.ones(1000)):
            spec.validate(scaled(scripted, spec, action))


def test_the_canonical_spec_is_minus_one_to_one_in_shape_and_dtype_of_the_inner_one(scripted):
    spec = CanonicalActionWrapper(scripted(action_spec=LOPSIDED)).action_spec()
    assert spec == specs.BoundedArray((3,), np.float64, -np.ones(3), np.ones(3))


def test_nests_of_actions_are_scaled_leaf_by_leaf(scripted):
    spec = {"arm": LOPSIDED, "grip": (specs.BoundedArray((), np.float32, 0, 4),)}
    action = {"arm": np.ones(3), "grip": (np.float32(-0.5),)}
    found = scaled(scripted, spec, action)
    tree.map_structure(lambda leaf_spec, leaf: leaf_spec.validate(leaf), spec, found)
    np.testing.assert_array_equal(found["arm"], [2, 10, 5])
    assert found["grip"][0] == 1.0


def test_integers_among_floats_stay_as_they_are(scripted):
    spec = {"arm": LOPSIDED, "gear": specs.DiscreteArray(3)}
    assert CanonicalActionWrapper(scripted(action_spec=spec)).action_spec()["gear"] == spec["gear"]
    found = scaled(scripted, spec, {"arm": np.ones(3), "gear": np.int32(2)})
    np.testing.assert_array_equal(found["arm"], [2, 10, 5])
    assert found["gear"] == 2


def test_an_action_that_would_broadcast_is_refused(scripted):
    with pytest.raises(ValueError, match=r"`action` must have shape \(3,\), got \(1,\)\."):
        scaled(scripted, LOPSIDED, np.zeros(1))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            specs.Array((2,), np.float64),
            r"`action_spec` must be bounded on both sides .* got Array\(2,\) float64",
        ),
        (
            specs.BoundedArray((2,), np.float64, -np.inf, 1),
            r"bounded on both sides .*\[-inf, 1\].*in a wrapper",
        ),
        (
            specs.DiscreteArray(3),
            r"must be a float array .* got DiscreteArray with 3 values.*Discrete actions",
        ),
        (
            specs.BoundedArray((1,), np.float32, -np.finfo(np.float32).max, np.finfo(np.float32).max),
            r"must have a range that float32 can hold .* got .*e\+38\]. Give it closer bounds in a wrapper",
        ),
        ({"a": {"b": specs.Array((2,), np.float64)}}, r"`action_spec`\['a'\]\['b'\] must be bounded"),
    ],
)
def test_actions_that_cannot_be_scaled_are_refused_at_construction(scripted, spec, message):
    with pytest.raises(ValueError, match=message):
        CanonicalActionWrapper(scripted(action_spec=spec))
