import collections
from typing import NamedTuple

import numpy as np
import pytest
import tree
from dm_env import specs
from gymnasium import spaces

from minerva_acme.environments import gymnasium_spaces
from minerva_acme.specs import SpecError

SPACES = [
    spaces.Box(-1, 2, (3,), np.float32),
    spaces.Box(np.float64([-1, -np.inf]), np.float64([np.inf, 1]), dtype=np.float64),
    spaces.Box(-np.inf, np.inf, (2, 3), np.float64),
    spaces.Box(-1, 1, (), np.float32),
    spaces.Box(0, 255, (4, 4, 3), np.uint8),
    spaces.Box(-5, 5, (2,), np.int32),
    spaces.Discrete(4),
    spaces.MultiDiscrete([2, 3]),
    spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[1, 0], [-3, 2]]),
    spaces.MultiBinary(3),
    spaces.MultiBinary([2, 2]),
    spaces.Dict(b=spaces.Discrete(2), a=spaces.Tuple((spaces.MultiBinary(1), spaces.Box(-1, 1, (2,))))),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_the_space_of_a_spaces_spec_holds_the_same_values(space):
    spec = gymnasium_spaces.to_spec(space, "action")
    back = gymnasium_spaces.to_space(spec, "action")
    for one, other in ((space, back), (back, space)):
        one.seed(0)
        for _ in range(20):
            assert other.contains(one.sample())


@pytest.mark.parametrize("space", [space for space in SPACES if "int32" not in str(space)], ids=str)
def test_a_space_comes_back_as_it_was(space):
    assert gymnasium_spaces.to_space(gymnasium_spaces.to_spec(space, "action"), "action") == space


@pytest.mark.parametrize(
    "space", [*SPACES, spaces.Discrete(3, start=-1), spaces.Discrete(4, dtype=np.int32)], ids=str
)
def test_a_value_goes_to_its_spec_and_back_and_shares_no_memory(space):
    spec = gymnasium_spaces.to_spec(space, "action")
    space.seed(0)
    for _ in range(5):
        value = space.sample()
        conforming = gymnasium_spaces.from_gymnasium(space, value)
        tree.map_structure(lambda leaf_spec, leaf: leaf_spec.validate(leaf), spec, conforming)
        back = gymnasium_spaces.to_gymnasium(space, conforming)
        assert space.contains(back)
        tree.map_structure(np.testing.assert_array_equal, back, value)
        for first, second in ((value, conforming), (conforming, back)):
            for one, other in zip(tree.flatten(first), tree.flatten(second), strict=True):
                assert not np.shares_memory(one, other)


BYTES = spaces.Box(0, 255, (2,), np.uint8)


@pytest.mark.parametrize(
    ("space", "value", "name"),
    [
        (spaces.Dict(a=BYTES, b=BYTES), {"a": np.zeros(2)}, "`seen`"),
        (spaces.Dict(a=BYTES), {"a": np.zeros(2), "b": np.zeros(2)}, "`seen`"),
        (spaces.Dict(a=BYTES), np.zeros(2), "`seen`"),
        (spaces.Tuple([BYTES, BYTES]), (np.zeros(2),), "`seen`"),
        (spaces.Dict(a=spaces.Tuple([BYTES])), {"a": ([0, 300],)}, "`seen['a'][0]`"),
        (BYTES, np.array([0.5, 0.0]), "`seen`"),
        (BYTES, np.array([np.nan, 0.0]), "`seen`"),
        (BYTES, [0, -1], "`seen`"),
        (BYTES, None, "`seen`"),
        (spaces.Box(-1, 1, (2,)), [None, 1.0], "`seen`"),
        (spaces.Discrete(3), 1.5, "`seen`"),
    ],
)
@pytest.mark.promise("Gymnasium values are never silently truncated or dropped to fit a")
def test_a_value_that_its_space_cannot_hold_is_refused_and_not_converted_in_silence(space, value, name):
    with pytest.raises(SpecError) as raised:
        gymnasium_spaces.from_gymnasium(space, value, "seen")
    assert str(raised.value).startswith(f"{name} must be an element of its space, ")


def test_an_image_that_its_space_cannot_hold_is_described():
    space, image = spaces.Box(0, 255, (36, 36, 3), np.uint8), np.full((36, 36, 3), 0.5)
    image[0] = 0.25
    for value in (image, {"seen": image}):
        with pytest.raises(SpecError) as raised:
            gymnasium_spaces.from_gymnasium(space, value)
        assert len(str(raised.value)) < 300
    with pytest.raises(SpecError, match=r"got float64 of shape \(36, 36, 3\) in \[0.25, 0.5\]\. Correct"):
        gymnasium_spaces.from_gymnasium(space, image)


@pytest.mark.parametrize(
    ("space", "value"),
    [(BYTES, [0.0, 255.0]), (BYTES, [3, 4]), (spaces.Discrete(3), 2.0), (spaces.Box(-1, 1, (2,)), [0, 1])],
)
def test_a_value_of_another_dtype_that_its_space_can_hold_is_converted(space, value):
    converted = gymnasium_spaces.from_gymnasium(space, value)
    np.testing.assert_array_equal(converted, value)
    assert converted.dtype == space.dtype


class Pair(NamedTuple):
    left: object
    right: object


UNIT = specs.BoundedArray((2,), np.float32, -1, 1)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (specs.Array((2,), np.float64), spaces.Box(-np.inf, np.inf, (2,), np.float64)),
        (specs.Array((2,), np.int16), spaces.Box(-(2**15), 2**15 - 1, (2,), np.int16)),
        (specs.Array((), bool), spaces.Box(0, 1, (), np.bool_)),
        (specs.BoundedArray((2,), np.float32, -1, [1, np.inf]), spaces.Box(-1, np.float32([1, np.inf]))),
        (specs.BoundedArray((), np.int32, 2, 4), spaces.Box(2, 4, (), np.int32)),
        (
            specs.BoundedArray((2,), np.int32, 2, [4, 5]),
            spaces.MultiDiscrete([3, 4], np.int32, start=[2, 2]),
        ),
        (
            # One value more than int8 can count.
            specs.BoundedArray((2,), np.int8, -128, 127),
            spaces.Box(-128, 127, (2,), np.int8),
        ),
        (specs.BoundedArray((2,), np.uint8, 0, 1), spaces.Box(0, 1, (2,), np.uint8)),
        (specs.DiscreteArray(3, dtype=np.int32), spaces.Discrete(3)),
        (collections.OrderedDict(b=UNIT, a=[UNIT]), None),
        (Pair(UNIT, (UNIT, UNIT)), None),
    ],
    ids=str,
)
def test_a_spec_becomes_the_space_of_its_values(spec, expected):
    if expected is None:
        box = spaces.Box(-1, 1, (2,), np.float32)
        nested = isinstance(spec, dict)
        expected = spaces.Dict(b=box, a=spaces.Tuple([box])) if nested else spaces.Tuple(
            [box, spaces.Tuple([box, box])]
        )  # fmt: skip
    assert gymnasium_spaces.to_space(spec, "observation") == expected


def test_a_spec_without_a_space_is_refused_by_name():
    spec = {"a": (UNIT, specs.StringArray(()))}
    with pytest.raises(ValueError, match=r"`observation/a/1` spec must be .* got StringArray.*Leave it out"):
        gymnasium_spaces.to_space(spec, "observation")


def test_a_space_without_a_spec_is_refused_by_name():
    with pytest.raises(ValueError, match=r"`action/0` space must be made of .*got Sequence"):
        gymnasium_spaces.to_spec(spaces.Tuple([spaces.Sequence(spaces.Discrete(2))]), "action")
