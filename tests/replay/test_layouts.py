"""How trajectories and transitions lie in replay."""

import dm_env
import numpy as np
import pytest
import torch
import tree

from minerva_acme import specs, types
from minerva_acme.replay import base, layouts

FLOAT = specs.Array((), np.float32)
SPEC = specs.EnvironmentSpec(
    observations={"x": specs.Array((3,), np.float32), "pixels": specs.Array((2, 2, 1), np.uint8)},
    actions=specs.DiscreteArray(4),
    rewards=FLOAT,
    discounts=FLOAT,
)
EXTRAS_SPEC = {"log_prob": FLOAT}


def float32(width: int) -> base.ColumnSpec:
    return base.ColumnSpec((width,), np.dtype(np.float32))


PIXELS = base.ColumnSpec((2, 2, 1), np.dtype(np.uint8))
INTEGER = base.ColumnSpec((1,), np.dtype(np.int32))


def test_a_trajectory_is_one_window_of_each_column():
    layout = layouts.TrajectoryLayout(SPEC, 4, EXTRAS_SPEC)
    names = {"float32", "int32", "observation/pixels"}
    assert layout.signature == base.ItemSignature(
        # x, reward, discount, mask, log_prob
        columns={"float32": float32(3 + 4), "int32": INTEGER, "observation/pixels": PIXELS},
        fields={name: base.FieldSpec(name, 5) for name in names},
    )
    assert layout.fields(start=7) == {name: base.Window(name, 7, 5) for name in names}


def test_a_trajectory_of_variable_length_is_a_window_of_up_to_as_many_rows():
    layout = layouts.TrajectoryLayout(SPEC, 4, EXTRAS_SPEC, variable_length=True)
    fixed = layouts.TrajectoryLayout(SPEC, 4, EXTRAS_SPEC)
    assert (layout.variable_length, fixed.variable_length) == (True, False)
    assert layout.signature.columns == fixed.signature.columns
    assert layout.signature.fields == {
        name: base.FieldSpec(name, 5, variable=True) for name in fixed.signature.fields
    }
    assert layout.fields(start=7, num_rows=2) == {
        name: base.Window(name, 7, 2) for name in fixed.signature.fields
    }


def test_a_transition_shares_its_images_with_others():
    layout = layouts.TransitionLayout(SPEC, EXTRAS_SPEC)
    assert layout.signature == base.ItemSignature(
        # x, reward, discount, next x, log_prob
        columns={"float32": float32(3 + 2 + 3 + 1), "int32": INTEGER, "observation/pixels": PIXELS},
        fields={
            "float32": base.FieldSpec("float32", 1),
            "int32": base.FieldSpec("int32", 1),
            "observation/pixels": base.FieldSpec("observation/pixels", 1),
            "next_observation/pixels": base.FieldSpec("observation/pixels", 1),
        },
    )
    assert layout.fields(row=4, start=4, end=6) == {
        "float32": base.Window("float32", 4, 1),
        "int32": base.Window("int32", 4, 1),
        "observation/pixels": base.Window("observation/pixels", 4, 1),
        "next_observation/pixels": base.Window("observation/pixels", 6, 1),
    }
    assert layout.max_window(n_step=5) == 6


def test_without_images_a_transition_reaches_back_no_further_than_its_row():
    assert layouts.TransitionLayout(SPEC._replace(observations=FLOAT)).max_window(n_step=5) == 1


def test_an_observation_that_is_one_image_has_a_column_of_its_own():
    layout = layouts.TransitionLayout(SPEC._replace(observations=specs.Array((2, 2, 1), np.uint8)))
    assert layout.signature.columns["observation"] == PIXELS
    assert layout.signature.fields["next_observation"] == base.FieldSpec("observation", 1)


def observation(value: int):
    return {"x": np.full(3, value, np.float32), "pixels": np.full((2, 2, 1), value, np.uint8)}


def test_padding_repeats_the_observation_and_is_zero_elsewhere():
    layout = layouts.TrajectoryLayout(SPEC, 2, EXTRAS_SPEC)
    one = np.float32(1)
    rows = layout.step(
        np.int32(3), dm_env.TimeStep(dm_env.StepType.LAST, one, one, observation(5)), {"log_prob": one}
    )
    padding, first = layout.padding(rows), layout.first(observation(5))
    assert padding.keys() == first.keys() == rows.keys()
    for name in rows:
        np.testing.assert_array_equal(padding[name], first[name])
    assert padding["float32"].tolist() == [5, 5, 5, 0, 0, 0, 0]
    assert rows["float32"].tolist() == [5, 5, 5, 1, 1, 1, 1]
    assert padding["int32"].tolist() == [0]
    assert (padding["observation/pixels"] == 5).all()


def test_a_batch_of_trajectories_is_contiguous_with_float32_signals():
    spec = SPEC._replace(rewards=specs.Array((), np.int32), discounts=specs.Array((), np.float64))
    layout = layouts.TrajectoryLayout(spec, 2, EXTRAS_SPEC)
    rows = [layout.first(observation(0))]
    for t in (1, 2):
        timestep = dm_env.transition(np.int32(t), observation(t), np.float64(0.5))
        rows.append(layout.step(np.int32(t), timestep, {"log_prob": np.float32(-t)}))
    fields = {
        name: torch.from_numpy(np.stack([row[name] for row in rows]))[None].repeat_interleave(6, 0)
        for name in rows[0]
    }
    batch = layout.unpack(fields)
    assert isinstance(batch, types.Trajectory)
    assert all(leaf.is_contiguous() for leaf in tree.flatten(batch))
    assert {
        name: (tuple(leaf.shape), leaf.dtype)
        for name, leaf in batch._asdict().items()
        if torch.is_tensor(leaf)
    } == {
        "action": ((6, 2), torch.int32),
        "reward": ((6, 2), torch.float32),
        "discount": ((6, 2), torch.float32),
        "mask": ((6, 2), torch.float32),
    }
    assert batch.observation["x"].shape == (6, 3, 3)
    assert batch.observation["pixels"].shape == (6, 3, 2, 2, 1)
    assert torch.equal(batch.extras["log_prob"][0], torch.tensor([-1.0, -2.0]))
    assert torch.equal(batch.reward[5], torch.tensor([1.0, 2.0]))


@pytest.mark.parametrize("num_zeros", [0, 1, 2])
def test_items_of_variable_length_are_padded_as_those_of_fixed_length_are_stored(num_zeros):
    fixed = layouts.TrajectoryLayout(SPEC, 4, EXTRAS_SPEC)
    variable = layouts.TrajectoryLayout(SPEC, 4, EXTRAS_SPEC, variable_length=True)
    one = np.float32(1)
    # The first row is within an episode: its own step happened, though it is not of this item.
    rows = [
        fixed.step(np.int32(3), dm_env.transition(np.float32(t), observation(t), one), {"log_prob": -one})
        for t in (5, 6, 7)
    ]
    padded = [*rows, *[fixed.padding(rows[-1])] * 2]
    zeros = {name: np.zeros_like(row) for name, row in rows[0].items()}

    def batch(rows):
        return {name: torch.from_numpy(np.stack([row[name] for row in rows]))[None] for name in rows[0]}

    found = variable.unpack(batch([*rows, *[zeros] * num_zeros]))
    expected = fixed.unpack(batch(padded))
    assert expected.observation["x"][0, :, 0].tolist() == [5, 6, 7, 7, 7]
    assert expected.mask.tolist() == [[1, 1, 0, 0]]
    tree.map_structure(lambda *leaves: torch.testing.assert_close(*leaves, rtol=0, atol=0), found, expected)
    assert all(leaf.is_contiguous() for leaf in tree.flatten(found))
    np.testing.assert_equal(variable.item(rows), fixed.item(padded))


def test_items_longer_than_the_layout_are_refused():
    layout = layouts.TrajectoryLayout(SPEC, 2, variable_length=True)
    rows = {
        name: torch.zeros((1, 4, *column.shape), dtype=torch.float32)
        for name, column in layout.signature.columns.items()
    }
    with pytest.raises(ValueError, match="`sequence_length` must be >= .* 3 transitions, got 2"):
        layout.unpack(rows)


def test_a_length_below_one_is_refused():
    with pytest.raises(ValueError, match="`sequence_length` must be >= 1 transition, got 0."):
        layouts.TrajectoryLayout(SPEC, 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"rewards": specs.Array((2, 2, 2), np.float32)},
            "`rewards` must have at most two axes to be folded",
        ),
        ({"discounts": {"a": specs.Array((1, 1, 1), np.float32)}}, "`discounts` must have at most two axes"),
        (
            {"rewards": {"a": FLOAT}, "discounts": {"b": FLOAT}},
            "`discounts` must be one array or a nest with the structure of the rewards",
        ),
        (
            {"rewards": specs.Array((2,), np.float32), "discounts": specs.Array((3,), np.float32)},
            r"`rewards` and `discounts` must broadcast against each other, got shapes \(2,\) and \(3,\)",
        ),
    ],
)
def test_rewards_and_discounts_that_cannot_be_folded_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        layouts.TransitionLayout(SPEC._replace(**changes))


@pytest.mark.parametrize(
    ("reward_shape", "discount_shape", "folded_shape"),
    [
        ((3,), (), (3,)),
        ((), (3,), (3,)),
        ((3,), (3,), (3,)),
        ((2, 3), (3,), (2, 3)),
        ((2, 1), (3,), (2, 3)),
        ((1,), (2, 2), (2, 2)),
    ],
)
def test_a_folded_reward_has_the_shape_that_reward_and_discount_broadcast_to(
    reward_shape, discount_shape, folded_shape
):
    random = np.random.default_rng(0)
    rewards = random.normal(size=(2, *reward_shape)).astype(np.float32)
    discounts = random.uniform(size=(2, *discount_shape)).astype(np.float32)
    layout = layouts.TransitionLayout(
        SPEC._replace(
            rewards=specs.Array(reward_shape, np.float32), discounts=specs.Array(discount_shape, np.float32)
        )
    )
    steps = [
        layout.step(
            np.int32(0),
            dm_env.TimeStep(dm_env.StepType.MID, np.asarray(r), np.asarray(d), observation(0)),
        )
        for r, d in zip(rewards, discounts, strict=True)
    ]
    reward, discount = layout.fold(steps, gamma=0.5)
    expected = rewards[0] + np.float64(0.5) * discounts[0] * rewards[1]
    assert expected.shape == folded_shape
    np.testing.assert_allclose(reward, expected.ravel(), rtol=1e-6)
    np.testing.assert_allclose(discount, (0.25 * discounts[0] * discounts[1]).ravel(), rtol=1e-6)
