import json

import numpy as np
import pytest

from minerva_acme import specs
from minerva_acme.runs import plain_specs

NESTS = {
    "an array": specs.Array((2, 3), np.float32, name="observation"),
    "an array without a name": specs.Array((), np.int64),
    "one bound for all": specs.BoundedArray((3,), np.float32, minimum=-1.0, maximum=1.0, name="action"),
    "a bound for each": specs.BoundedArray((2,), np.float64, minimum=[-1.0, -2.0], maximum=[1.0, 2.0]),
    "infinite bounds": specs.BoundedArray((2,), np.float32, minimum=-np.inf, maximum=np.inf),
    "pictures": specs.BoundedArray((8, 8, 3), np.uint8, minimum=np.zeros((8, 8, 3)), maximum=255),
    "a number": specs.DiscreteArray(5, dtype=np.int32, name="action"),
    "text": specs.StringArray((), name="task"),
    "a nest": {
        "arm": (specs.Array((1,), np.float32), [specs.DiscreteArray(2)]),
        "eye": specs.Array((), bool),
    },
    "an empty nest": {},
}


@pytest.mark.parametrize("name", NESTS)
def test_specs_come_back_from_a_file_as_they_were(name):
    nest = NESTS[name]
    found = plain_specs.unpack(json.loads(json.dumps(plain_specs.pack(nest))))
    assert type(found) is type(nest)
    if isinstance(nest, specs.BoundedArray):
        for bound, expected in zip(specs.bounds(found), specs.bounds(nest), strict=True):
            np.testing.assert_array_equal(bound, expected)
        assert (found.shape, found.dtype, found.name) == (nest.shape, nest.dtype, nest.name)
    else:
        assert found == nest


def test_equal_bounds_take_no_room():
    assert len(json.dumps(plain_specs.pack(NESTS["pictures"]))) < 150


def test_what_is_no_spec_is_refused():
    with pytest.raises(ValueError, match=r"A spec must be one of `minerva_acme.specs`, got 3\."):
        plain_specs.pack({"arm": 3})


@pytest.mark.parametrize(
    "values",
    [
        None,
        {},
        {"array": {"shape": [2], "dtype": "float32"}, "list": []},
        {"picture": {"shape": [2]}},
        {"array": {"shape": [2], "dtype": "no such"}},
        {"array": {"shape": [2], "dtype": []}},
        {"array": {"shape": [2], "dtype": "object"}},
        {"array": {"shape": "wide", "dtype": "float32"}},
        {"array": {"shape": [-1], "dtype": "float32"}},
        {"array": {"shape": [1_000_000, 1_000_000], "dtype": "float32"}},
        {"bounded": {"shape": [2], "dtype": "float32", "minimum": [1, 2, 3], "maximum": 1}},
        {"discrete": {"num_values": 0, "dtype": "int32"}},
        {"list": 3},
    ],
)
def test_values_that_describe_no_spec_are_refused(values):
    with pytest.raises(ValueError, match="The values must describe a spec, got "):
        plain_specs.unpack(values)
