"""Nests to rows and back."""

import collections
from typing import NamedTuple

import numpy as np
import pytest
import torch
import tree
from dm_env import specs as dm_specs
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from minerva_acme import constraints, specs
from minerva_acme.replay import base, packing


def array(shape=(), dtype=np.float32) -> specs.Array:
    return specs.Array(shape, dtype)


class Pair(NamedTuple):
    left: object
    right: object


def stacked(rows: list[packing.Rows]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(np.stack([row[name] for row in rows])) for name in rows[0]}


def test_a_step_becomes_one_row_per_dtype_in_the_order_of_its_fields():
    packer = packing.RowPacker(
        {
            "b": array((2,)),
            "a": array(),
            "n": array((), np.int32),
            "c": array((2, 2)),
            "t": array((3,), np.bool_),
        }
    )
    rows = packer.pack(
        {
            "a": np.float32(1),
            "b": np.float32([2, 3]),
            "c": np.float32([[4, 5], [6, 7]]),
            "n": np.int32(8),
            "t": np.array([True, False, True]),
        }
    )
    assert {name: row.tolist() for name, row in rows.items()} == {
        "float32": [1, 2, 3, 4, 5, 6, 7],
        "int32": [8],
        "bool": [True, False, True],
    }
    assert packer.columns == {
        "float32": base.ColumnSpec((7,), np.dtype(np.float32)),
        "int32": base.ColumnSpec((1,), np.dtype(np.int32)),
        "bool": base.ColumnSpec((3,), np.dtype(np.bool_)),
    }


def test_images_get_columns_of_their_own_named_by_their_path():
    packer = packing.RowPacker(
        {"cameras": [array((4, 4, 3), np.uint8), array((1, 2, 2))], "x": array((2,))}, "observation"
    )
    assert packer.columns == {
        "observation/cameras/0": base.ColumnSpec((4, 4, 3), np.dtype(np.uint8)),
        "observation/cameras/1": base.ColumnSpec((1, 2, 2), np.dtype(np.float32)),
        "float32": base.ColumnSpec((2,), np.dtype(np.float32)),
    }


def test_a_spec_without_structure_and_an_empty_one_are_nests_too():
    assert packing.RowPacker(array((2,)), "action").pack(np.float32([1, 2]))["float32"].tolist() == [1, 2]
    empty = packing.RowPacker((), "extras")
    assert (empty.pack(()), empty.columns, empty.unpack({})) == ({}, {}, ())


def test_rows_are_copies_that_later_changes_do_not_reach():
    packer = packing.RowPacker({"x": array((2,)), "image": array((1, 1, 2))})
    step = {"x": np.float32([1, 2]), "image": np.float32([[[3, 4]]])}
    rows = packer.pack(step)
    step["x"][:] = 0
    step["image"][:] = 0
    assert rows["float32"].tolist() == [1, 2]
    assert rows["image"].tolist() == [[[3, 4]]]


def test_arrays_of_any_memory_order_are_packed_by_their_indices():
    packer = packing.RowPacker({"m": array((2, 3)), "image": array((2, 1, 2))})
    matrix, image = np.arange(6, dtype=np.float32).reshape(3, 2).T, np.float32([[[1], [2]], [[3], [4]]])
    rows = packer.pack({"m": matrix, "image": image.transpose(0, 2, 1)})
    assert rows["float32"].tolist() == [0, 2, 4, 1, 3, 5]
    assert rows["image"].tolist() == [[[1, 2]], [[3, 4]]]


def test_unpacking_keeps_the_types_of_the_nest():
    spec = collections.OrderedDict(
        z=Pair(array(), [array((2,)), (array((2, 2)),)]), a={"n": array((), np.int64)}
    )
    packer = packing.RowPacker(spec, "step")
    nest = tree.map_structure(lambda leaf: np.ones(leaf.shape, leaf.dtype), spec)
    unpacked = packer.unpack(stacked([packer.pack(nest)] * 3))
    tree.assert_same_structure(unpacked, spec, check_types=True)
    assert [tuple(leaf.shape) for leaf in tree.flatten(unpacked)] == [(3,), (3,), (3, 2), (3, 2, 2)]


def test_unpacking_takes_any_leading_axes():
    packer = packing.RowPacker({"x": array(), "m": array((2, 3)), "image": array((1, 2, 3))})
    columns = {"float32": torch.arange(140.0).reshape(4, 5, 7), "image": torch.zeros(4, 5, 1, 2, 3)}
    unpacked = packer.unpack(columns)
    assert {name: tuple(leaf.shape) for name, leaf in unpacked.items()} == {
        "x": (4, 5),
        "m": (4, 5, 2, 3),
        "image": (4, 5, 1, 2, 3),
    }
    assert torch.equal(unpacked["m"][1, 2], torch.arange(49.0, 55.0).reshape(2, 3))
    assert torch.equal(unpacked["x"][1, 2], torch.tensor(55.0))


LEAVES = st.builds(
    specs.Array,
    shape=npst.array_shapes(min_dims=0, max_dims=4, max_side=3),
    dtype=st.sampled_from([np.float32, np.float64, np.int32, np.int64, np.uint8, np.int8, np.bool_]),
)
NESTS = st.recursive(
    LEAVES,
    lambda nests: (
        st.lists(nests, max_size=3)
        | st.tuples(nests, nests)
        | st.builds(Pair, nests, nests)
        | st.dictionaries(st.sampled_from("abcd"), nests, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=50, deadline=None)
@given(spec=NESTS, seed=st.integers(0, 1000))
def test_whatever_is_packed_is_unpacked_the_same(spec, seed):
    random = np.random.default_rng(seed)
    packer = packing.RowPacker(spec, "step")
    steps = [
        tree.map_structure(lambda s: (100 * random.normal(size=s.shape)).astype(s.dtype), spec)
        for _ in range(2)
    ]
    rows = [packer.pack(step) for step in steps]
    for row in rows:
        assert {name: base.ColumnSpec(r.shape, r.dtype) for name, r in row.items()} == packer.columns
    if not packer.columns:
        return
    unpacked = packer.unpack(stacked(rows))
    for i, step in enumerate(steps):
        for found, expected in zip(tree.flatten(unpacked), tree.flatten(step), strict=True):
            assert found[i].numpy().dtype == np.asarray(expected).dtype
            np.testing.assert_array_equal(found[i].numpy(), expected)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (dm_specs.StringArray(()), "`observation` must have a boolean, integer or floating dtype"),
        (array((2,), np.complex64), "`observation` must have a boolean, integer or floating dtype"),
        (array((2,), ">f4"), "in native byte order to be stored, got Array"),
        ({"x": None}, r"The spec of `observation\['x'\]` must be a nest .* of dm_env specs, got None"),
        ({"x": 3}, r"The spec of `observation\['x'\]` must be a nest .* of dm_env specs, got 3"),
    ],
)
def test_a_spec_that_cannot_be_stored_is_refused(spec, message):
    with pytest.raises(ValueError, match=message):
        packing.RowPacker(spec, "observation")


IMAGE = array((2, 2, 3), np.uint8)


@pytest.mark.parametrize(
    ("name", "spec", "first", "second", "column"),
    [
        (
            "observation",
            {"a": {"b": IMAGE}, "a/b": IMAGE},
            "observation['a']['b']",
            "observation['a/b']",
            "observation/a/b",
        ),
        ("", {"x": [IMAGE], "x/0": IMAGE}, "x[0]", "x/0", "x/0"),
        ("", {"float32": IMAGE, "x": array()}, "float32", "x", "float32"),
        ("", {"a": array(), "float32": IMAGE}, "a", "float32", "float32"),
    ],
)
def test_leaves_of_one_column_are_refused_by_the_names_of_both(name, spec, first, second, column):
    message = (
        f"`{first}` and `{second}` must not share a column of replay, got '{column}' for both. Rename one of "
        "them in a wrapper of the environment."
    )
    with pytest.raises(ValueError) as raised:
        packing.RowPacker(spec, name)
    assert str(raised.value) == message


def test_fields_are_named_as_one_would_write_them():
    packer = packing.RowPacker(Pair(array(), {"legs": (array(), Pair(array(), array()))}))
    good = np.float32(0)

    def error(nest) -> str:
        with pytest.raises(ValueError) as raised:
            packer.pack(nest)
        return str(raised.value).split(" must ")[0]

    assert error(Pair(0.0, {"legs": (good, Pair(good, good))})) == "`left`"
    assert error(Pair(good, {"legs": (0.0, Pair(good, good))})) == "`right['legs'][0]`"
    assert error(Pair(good, {"legs": (good, Pair(good, 0.0))})) == "`right['legs'][1].right`"
    assert error(Pair(good, {"legs": (good, good)})) == "`right['legs'][1]`"
    assert error(Pair(good, {"legs": (good,)})) == "`right['legs']`"


def test_a_named_tuple_of_other_fields_is_refused_and_a_plain_tuple_taken():
    class Swapped(NamedTuple):
        right: object
        left: object

    packer = packing.RowPacker(Pair(array(), array()), "extras")
    assert packer.pack((np.float32(1), np.float32(2)))["float32"].tolist() == [1, 2]
    with pytest.raises(
        ValueError, match=r"the fields \['left', 'right'\], got the fields \['right', 'left'\]"
    ):
        packer.pack(Swapped(np.float32(1), np.float32(2)))


def test_large_values_are_taken_up_to_the_largest_that_is_learned_from():
    packer = packing.RowPacker(array((3,)), "x")
    large = np.float32([constraints.LARGEST, -constraints.LARGEST, 3e12])
    np.testing.assert_array_equal(packer.pack(large)["float32"], large)
    with pytest.raises(ValueError) as raised:
        packer.pack(np.float32([3e12, -1.1e15, 0]))
    assert str(raised.value) == (
        f"`x` must be within ±1e+15, got {np.float32(-1.1e15)} at index (1,). Clip it or scale it down in a "
        "wrapper of the environment."
    )


def test_a_tensor_is_refused():
    with pytest.raises(
        ValueError,
        match=r"`x` must be float32 of shape \(3,\), got a tensor, float32 of shape \(3,\) on cpu. Make it",
    ):
        packing.RowPacker(array((3,)), "x").pack(torch.zeros(3))
