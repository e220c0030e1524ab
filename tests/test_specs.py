"""One checker for all that is held to a spec."""

from typing import NamedTuple

import dm_env
import numpy as np
import pytest
import torch

from minerva_acme import specs
from minerva_acme.replay import packing


class Even(specs.Array):
    """A spec with a rule of its own."""

    def validate(self, value):
        value = super().validate(value)
        if np.any(np.asarray(value) % 2):
            raise ValueError("must be even")
        return value


class Pair(NamedTuple):
    left: object
    right: object


SPEC = {
    "image": specs.BoundedArray((2, 2), np.uint8, 0, 255),
    "pair": Pair(specs.Array((), np.float64), specs.BoundedArray((2,), np.float32, -1, 1)),
    "choice": specs.DiscreteArray(3, dtype=np.int32),
}
GOOD = {
    "image": np.full((2, 2), 255, np.uint8),
    "pair": Pair(np.float64(3), np.float32([-1, 1])),
    "choice": np.int32(2),
}


def wrong(**changes):
    return GOOD | changes


WRONG = {
    "structure": (
        {"image": GOOD["image"]},
        "`x` must have the fields ['choice', 'image', 'pair'], got the fields ['image']. Make it agree with "
        "its spec.",
    ),
    "named tuple": (
        wrong(pair=3.0),
        "`x['pair']` must have the fields ['left', 'right'], got 3.0. Make it agree with its spec.",
    ),
    "dtype": (
        wrong(choice=np.int64(2)),
        "`x['choice']` must be int32 of shape (), got int64 of shape (). Cast it, or wrap the environment in "
        "SinglePrecisionWrapper.",
    ),
    "shape": (
        wrong(image=np.zeros((2, 3), np.uint8)),
        "`x['image']` must be uint8 of shape (2, 2), got uint8 of shape (2, 3). Make it agree with its spec.",
    ),
    "byte order": (
        wrong(pair=Pair(np.float64(3), np.array([0, 1], ">f4"))),
        "`x['pair'].right` must be float32 of shape (2,), got float32 (foreign byte order) of shape (2,). "
        "Convert it to native byte order.",
    ),
    "nan": (
        wrong(pair=Pair(np.float64(np.nan), np.float32([0, 0]))),
        "`x['pair'].left` must be finite, got nan. Look for a simulation or a policy that has diverged.",
    ),
    "text": (
        wrong(choice="two"),
        "`x['choice']` must be int32 of shape (), got 'two'. Make it a numpy array or scalar, as "
        "SinglePrecisionWrapper does for an environment.",
    ),
}


def said(call, *arguments):
    with pytest.raises(ValueError) as raised:
        call(*arguments)
    return str(raised.value)


@pytest.mark.parametrize(("value", "message"), WRONG.values(), ids=WRONG)
def test_environments_and_replay_are_told_the_same(value, message):
    assert said(specs.check_conforms, "x", value, SPEC) == message
    assert said(packing.RowPacker(SPEC, "x").pack, value) == message


def test_what_conforms_comes_back_as_its_leaves_in_order():
    for exact in (False, True):
        checker = specs.Checker(SPEC, "x", exact=exact)
        leaves = checker.fits(GOOD)
        assert [leaf.name for leaf in checker.leaves] == [
            *("x['choice']", "x['image']", "x['pair'].left", "x['pair'].right"),
        ]
        assert leaves is not None and leaves[1] is GOOD["image"] and leaves[3] is GOOD["pair"].right
        assert all(a is b for a, b in zip(leaves, checker.explain(GOOD), strict=True))


def test_bounds_are_held_where_that_is_asked_for():
    outside = wrong(pair=Pair(np.float64(3), np.float32([0, 1.5])))
    message = (
        "`x['pair'].right` must be in [-1, 1], the bounds of its spec, got 1.5 at index (1,). Correct it, "
        "or its spec."
    )
    checker = specs.Checker(SPEC, "x")
    assert checker.fits(outside) is None
    assert said(checker.explain, outside) == message
    assert checker.explain(outside, unbounded=["x"])
    assert specs.Checker(SPEC, "x", bounded=()).fits(outside)
    assert "Correct the environment, or its `reward_spec`." in said(
        specs.check_conforms, "reward", np.float32([0, -2]), SPEC["pair"].right
    )


@pytest.mark.parametrize("number", [0.5, np.float64(0.5), np.array(0.5)])
def test_pythons_numbers_count_as_what_numpy_makes_of_them(number):
    spec = specs.BoundedArray((), np.float64, 0, 1)
    assert specs.Checker(spec, "x").fits(number) == [number]
    specs.check_conforms("x", number, spec)
    specs.check_conforms("x", [0.5, 1.0], specs.Array((2,), np.float64))
    assert "got a list" in said(specs.check_conforms, "x", [[0.5], [1.0, 2.0]], specs.Array((2,), np.float64))
    assert "got 0.5" in said(specs.Checker(spec, "x", exact=True).explain, 0.5)


def test_a_number_of_any_dtype_is_taken_where_that_is_said_and_no_other():
    spec = Pair(specs.Array((), np.float64), specs.Array((), np.float64))
    checker = specs.Checker(spec, any_number=["left"])
    for number in (1, True, np.float32(1), np.int64(1)):
        assert checker.fits((number, 1.0)) is not None
        assert "`right` must be float64" in said(checker.explain, (1.0, number))
    assert checker.fits((np.float32([1]), 1.0)) is None
    assert "`left` must be float64 of shape ()" in said(checker.explain, (np.float32([1]), 1.0))


def test_sizes_from_the_largest_on_are_left_to_the_explanation():
    checker = specs.Checker(specs.Array((2,), np.float32), "x", largest=10.0)
    assert checker.fits(np.float32([6, 7])) and checker.fits(np.float32([8, 8])) is None
    assert checker.explain(np.float32([8, 1e14]))
    assert "`x` must be within ±1e+15, got 1999999973982208.0 at" in said(
        checker.explain, np.float32([8, 2e15])
    )
    unchecked = specs.Checker(specs.Array((2,), np.float32), "x", largest=None)
    assert unchecked.fits(np.float32([np.nan, 2e30])) is not None


def test_a_rule_of_the_specs_own_is_kept():
    spec = {"even": Even((), np.int32), "text": specs.StringArray(())}
    specs.check_conforms("x", {"even": np.int32(2), "text": "a"}, spec)
    assert "`x['even']` must be Even() int32" in (
        message := said(specs.check_conforms, "x", {"even": np.int32(3), "text": "a"}, spec)
    )
    assert message.endswith("got int32 of shape (): must be even")
    assert "`x['text']` must be" in said(specs.check_conforms, "x", {"even": np.int32(2), "text": 3}, spec)


def test_a_tuple_of_another_type_is_told_unless_replay_alone_sees_it():
    spec = (specs.Array((), np.float32), specs.Array((), np.float32))
    value = [np.float32(1), np.float32(2)]
    assert said(specs.check_conforms, "x", value, spec) == (
        "`x` must have 2 elements in a tuple, got 2 elements in a list. Make it agree with its spec."
    )
    assert specs.Checker(spec, "x", exact=True).fits(value) == value


ARM = {"arm": specs.BoundedArray((2,), np.float32, -1, 1), "gear": specs.DiscreteArray(3)}
ARMS = {"arm": np.zeros((4, 2), np.float32), "gear": np.array([0, 1, 2, 0], np.int32)}


def elsewhere(**settings):
    return specs.Checker(ARM, "x", axes=("step",), way_out="Leave it.", **settings)


def test_values_from_elsewhere_are_converted_if_that_loses_nothing_but_digits():
    wide = {"arm": ARMS["arm"].astype(np.float64)[::-1], "gear": ARMS["gear"].tolist()}
    found = elsewhere(converts="digits").conform(wide, (4,))
    assert found["arm"].dtype == np.float32 and found["arm"].flags.c_contiguous
    assert found["gear"].dtype == np.int32 and found["gear"].tolist() == [0, 1, 2, 0]
    whole = wide | {"arm": np.ones((4, 2), bool)}
    assert elsewhere(converts="numbers").conform(whole, (4,))["arm"].tolist() == [[1.0, 1.0]] * 4
    assert said(elsewhere(converts="digits").conform, whole, (4,)) == (
        "`x['arm']` must be float32 of shape (4, 2), got bool of shape (4, 2). Leave it."
    )
    assert "must be float32 of shape (4, 2), got int64" in said(
        elsewhere(converts="numbers").conform, wide | {"arm": np.full((4, 2), 2**24 + 1)}, (4,)
    )
    assert said(elsewhere(converts="digits").conform, wide | {"gear": [0, 1, 2, 1 << 40]}, (4,)) == (
        "`x['gear']` must be int32 of shape (4,), got int64 of shape (4,). Leave it."
    )


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "arm",
            [[0, 0], [0, np.nan], [0, 0], [0, 0]],
            "finite, got nan at step 1 (counted from 0), index (1,)",
        ),
        ("arm", [[0, 0], [0, 0], [2.0, 0], [0, 0]], "in [-1, 1], the bounds of its spec, got 2.0 at step 2"),
        ("gear", [0, 1, 2, 3], "in [0, 2], the bounds of its spec, got 3 at step 3 (counted from 0)"),
        ("gear", [0, 1, 2], "int32 of shape (4,), got int64 of shape (3,)"),
        ("gear", "text", "int32 of shape (4,), got str"),
        ("arm", {"b": 1}, "float32 of shape (4, 2), got a dict of ['b']"),
    ],
)
def test_what_is_wrong_with_an_array_over_time_is_told_with_its_place(name, value, message):
    value = value if isinstance(value, dict | str) else np.array(value)
    with pytest.raises(specs.SpecError) as raised:
        elsewhere(converts="digits").explain(ARMS | {name: value}, sizes=(4,))
    assert str(raised.value).startswith(f"`x['{name}']` must be {message}")
    assert str(raised.value).endswith("Leave it.")


def test_values_from_elsewhere_may_leave_bounds_by_rounding():
    arms = ARMS | {"arm": np.full((4, 2), 1.000001, np.float32)}
    assert elsewhere(converts="digits").explain(arms, sizes=(4,))
    assert "in [-1, 1]" in said(specs.check_conforms, "x", arms["arm"][0], ARM["arm"])
    far = {"arm": ARMS["arm"] + 5, "gear": ARMS["gear"] + 1}
    free = elsewhere(converts="digits", bounded=())
    assert free.explain(far | {"gear": ARMS["gear"]}, sizes=(4,))
    with pytest.raises(specs.SpecError, match=r"`x\['gear'\]` must be in \[0, 2\]"):  # one-hot in a network
        free.explain(far, sizes=(4,))


def test_any_number_of_rows_is_that_of_the_first_leaf():
    checker = elsewhere(converts="numbers")
    assert checker.explain({"arm": [[0, 0]] * 3, "gear": [0, 1, 2]}, sizes=(None,))
    for arm, gear, message in (
        ([[0, 0]] * 3, [0, 1], "`x['gear']` must be int32 of shape (3,), got int64 of shape (2,)"),
        (
            [0, 0],
            [0],
            "`x['arm']` must be float32 of shape (2,) behind a leading axis of 1 or more, got int64",
        ),
    ):
        with pytest.raises(specs.SpecError) as raised:
            checker.explain({"arm": arm, "gear": gear}, sizes=(None,))
        assert str(raised.value).startswith(message)
    assert checker.resembles({"arm": [[0, 0]], "gear": [0]}, 1)
    assert not checker.resembles({"arm": [0, 0], "gear": 0}, 1) and checker.resembles(
        {"arm": [9, 9], "gear": 0}
    )


@pytest.mark.parametrize(
    ("name", "change", "found"),
    [
        ("arm", lambda arm: arm.double(), "float64 of shape (4, 2) on cpu"),
        ("arm", lambda arm: arm[:3], "float32 of shape (3, 2) on cpu"),
        ("arm", lambda arm: arm.to("meta"), "float32 of shape (4, 2) on meta"),
        ("arm", lambda arm: arm.numpy(), "a numpy array"),
        ("gear", lambda gear: None, "None"),
    ],
)
def test_tensors_are_held_to_their_form_and_not_read(name, change, found):
    arms = {key: torch.tensor(value) for key, value in ARMS.items()}
    checker = specs.Checker(ARM, "x", device=torch.device("cpu"))
    arms["arm"][0] = np.nan  # is not looked at
    assert checker.explain(arms, sizes=(4,))[0] is arms["arm"]
    with pytest.raises(specs.SpecError) as raised:
        checker.explain(arms | {name: change(arms[name])}, sizes=(4,))
    expected = {"arm": "float32 of shape (4, 2)", "gear": "int32 of shape (4,)"}[name]
    assert str(raised.value) == (
        f"`x['{name}']` must be a tensor, {expected} on cpu, got {found}. Make it agree with its spec."
    )


def test_a_first_timestep_has_neither_reward_nor_discount():
    spec = specs.EnvironmentSpec(*[specs.Array((), np.float64)] * 4)
    specs.check_timestep(dm_env.restart(0.5), spec)
    message = said(specs.check_timestep, dm_env.restart(0.5)._replace(discount=1.0), spec)
    assert message == "`discount` of a FIRST timestep must be None, got 1.0."


def bounded(low, high, size):
    return specs.BoundedArray((size,), np.float32, low, high)


def test_bounds_that_differ_by_dimension_are_named_each():
    assert specs.describe(bounded(-1, [3, 3], 2)) == "BoundedArray(2,) float32 in [-1, 3]"
    assert specs.describe(bounded([-1, 0], [3, 0.5], 2)) == "BoundedArray(2,) float32 in [-1, 3], [0, 0.5]"
    many = specs.describe(bounded(np.arange(9), 10, 9))
    assert many == "BoundedArray(9,) float32 in [0, 10], [1, 10], [2, 10], [3, 10], ..."
    assert specs.describe(specs.BoundedArray((0,), np.float32, -1, 1)) == "BoundedArray(0,) float32"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (bounded([-1, 0], [3, 0.5], 2), bounded(-1, 3, 2)),
        (bounded(np.arange(9), 10, 9), bounded([*range(8), 8.5], 10, 9)),
        (bounded(0, 1, 2), bounded(0, 1.00001, 2)),
        (specs.BoundedArray((), np.float64, 0, 1), specs.BoundedArray((), np.float64, 0, 1 + 1e-7)),
        (specs.BoundedArray((2, 2), np.uint8, 0, 255), specs.BoundedArray((2, 2), np.uint8, 0, 254)),
    ],
)
def test_two_specs_that_differ_are_described_apart(one, other):
    first, second = specs.describe_apart(one, other)
    assert first != second
    assert (first.startswith(specs.describe(one)), second.startswith(specs.describe(other))) == (True, True)
    assert specs.describe_apart(one, one) == (specs.describe(one),) * 2
