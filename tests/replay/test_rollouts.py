"""How rollouts lie in replay."""

import dm_env
import numpy as np
import pytest
import torch

from minerva_acme import specs
from minerva_acme.replay import base, layouts

FLOAT = specs.Array((), np.float32)
SPEC = specs.EnvironmentSpec(
    observations={"x": specs.Array((3,), np.float32), "pixels": specs.Array((2, 2, 1), np.uint8)},
    actions=specs.DiscreteArray(4),
    rewards=FLOAT,
    discounts=FLOAT,
)
EXTRAS_SPEC = {"log_prob": FLOAT}
ONE = np.float32(1)


def observation(value: int) -> dict[str, np.ndarray]:
    return {"x": np.full(3, value, np.float32), "pixels": np.full((2, 2, 1), value, np.uint8)}


def make_rows(layout: layouts.RolloutLayout, value: int, *, first: bool = False) -> dict[str, np.ndarray]:
    """The row of a step from observation `value` to the next, every number of it told by `value`."""
    number = np.float32(value)
    timestep = dm_env.transition(number, observation(value + 1), ONE)
    step = layout.step(np.int32(value % 4), timestep, {"log_prob": -number})
    packed = layout.first(observation(value))
    return layout.transition(observation=packed, step=step, first=first, return_so_far=10.0 * value)


def batch(layout: layouts.RolloutLayout, *items: list[dict[str, np.ndarray]]) -> dict[str, torch.Tensor]:
    """Items as a sampler gives them, [E, T, *row shape]."""
    names = layout.signature.fields
    return {
        name: torch.from_numpy(np.stack([np.stack([row[name] for row in rows]) for rows in items]))
        for name in names
    }


def test_a_rollout_is_one_window_of_each_column():
    layout = layouts.RolloutLayout(SPEC, 4, EXTRAS_SPEC)
    pixels = base.ColumnSpec((2, 2, 1), np.dtype(np.uint8))
    names = {"float32", "int32", "observation/pixels", "next_observation/pixels"}
    assert layout.rollout_length == 4
    assert layout.signature == base.ItemSignature(
        columns={
            # first, return so far, x, next x, reward, discount, log_prob
            "float32": base.ColumnSpec((2 + 3 + 3 + 3,), np.dtype(np.float32)),
            "int32": base.ColumnSpec((1,), np.dtype(np.int32)),
            "observation/pixels": pixels,
            "next_observation/pixels": pixels,
        },
        fields={name: base.FieldSpec(name, 4) for name in names},
    )
    assert layout.fields(start=7) == {name: base.Window(name, 7, 4) for name in names}


def test_a_row_holds_the_whole_transition():
    layout = layouts.RolloutLayout(SPEC, 4, EXTRAS_SPEC)
    rows = make_rows(layout, 5, first=True)
    assert rows["float32"].tolist() == [1, 50, 5, 5, 5, 6, 6, 6, 5, 1, -5]
    assert rows["int32"].tolist() == [1]
    assert (rows["observation/pixels"] == 5).all()
    assert (rows["next_observation/pixels"] == 6).all()
    for name, column in layout.signature.columns.items():
        assert (rows[name].shape, rows[name].dtype) == (column.shape, column.dtype)


def test_the_next_observation_of_a_step_is_that_of_the_next_row():
    layout = layouts.RolloutLayout(SPEC, 4, EXTRAS_SPEC)
    step = layout.step(np.int32(0), dm_env.transition(ONE, observation(6), ONE), {"log_prob": ONE})
    found, expected = layout.next_observation(step), layout.first(observation(6))
    assert found.keys() == expected.keys() == {"float32", "observation/pixels"}
    for name, row in expected.items():
        np.testing.assert_array_equal(found[name], row)


def test_a_batch_is_time_major_contiguous_and_keeps_dtypes():
    spec = SPEC._replace(rewards=specs.Array((), np.int32), discounts=specs.Array((), np.float64))
    layout = layouts.RolloutLayout(spec, 3, EXTRAS_SPEC)
    items = []
    for start in (10, 20):
        rows = []
        for value in range(start, start + 3):
            timestep = dm_env.transition(np.int32(value), observation(value + 1), np.float64(0.5))
            step = layout.step(np.int32(value % 4), timestep, {"log_prob": ONE})
            packed = layout.first(observation(value))
            rows.append(layout.transition(observation=packed, step=step, first=False, return_so_far=value))
        items.append(rows)
    rollout = layout.unpack(batch(layout, *items))
    times = torch.tensor([[10, 20], [11, 21], [12, 22]])  # [T, E]
    assert torch.equal(rollout.reward, times.float())
    assert torch.equal(rollout.return_so_far, times.float())
    assert torch.equal(rollout.discount, torch.full((3, 2), 0.5))
    assert torch.equal(rollout.action, (times % 4).int())
    assert torch.equal(rollout.observation["x"], times.float()[..., None].expand(3, 2, 3))
    assert torch.equal(rollout.next_observation["x"], times.float()[..., None].expand(3, 2, 3) + 1)
    assert torch.equal(rollout.observation["pixels"][..., 0, 0, 0], times.byte())
    assert torch.equal(rollout.next_observation["pixels"][..., 0, 0, 0], times.byte() + 1)
    assert rollout.observation["pixels"].shape == (3, 2, 2, 2, 1)
    assert rollout.extras["log_prob"].shape == (3, 2)
    leaves = [rollout.action, rollout.reward, rollout.discount, rollout.last, rollout.return_so_far]
    leaves += [*rollout.observation.values(), *rollout.next_observation.values(), *rollout.extras.values()]
    assert all(leaf.is_contiguous() for leaf in leaves)


def test_a_step_is_last_before_a_first_one_and_at_the_end_of_the_rollout():
    layout = layouts.RolloutLayout(SPEC, 5, EXTRAS_SPEC)
    firsts = [[1, 0, 0, 1, 1], [0, 0, 0, 0, 0]]
    items = [[make_rows(layout, t, first=bool(first)) for t, first in enumerate(item)] for item in firsts]
    last = layout.unpack(batch(layout, *items)).last
    assert last.dtype == torch.float32
    assert last.T.tolist() == [[0, 0, 1, 1, 1], [0, 0, 0, 0, 1]]


def test_a_rollout_of_one_step_is_last():
    layout = layouts.RolloutLayout(SPEC, 1, EXTRAS_SPEC)
    assert layout.unpack(batch(layout, [make_rows(layout, 3)])).last.tolist() == [[1]]


def test_an_item_is_what_unpack_gives_of_one_environment():
    layout = layouts.RolloutLayout(SPEC, 2, EXTRAS_SPEC)
    rows = [make_rows(layout, 0, first=True), make_rows(layout, 1)]
    item = layout.item(rows)
    np.testing.assert_array_equal(item.reward, [0, 1])
    np.testing.assert_array_equal(item.last, [0, 1])
    np.testing.assert_array_equal(item.next_observation["x"], [[1, 1, 1], [2, 2, 2]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_marks_have_their_place_where_the_observation_is_no_float32(dtype):
    signal = specs.Array((), dtype)
    spec = specs.EnvironmentSpec(
        observations=specs.Array((2,), np.int32),
        actions=specs.DiscreteArray(3),
        rewards=signal,
        discounts=signal,
    )
    layout = layouts.RolloutLayout(spec, 1)
    packed = layout.first(np.int32([1, 2]))
    step = layout.step(np.int32(2), dm_env.transition(dtype(0.5), np.int32([3, 4]), dtype(1)))
    rows = layout.transition(observation=packed, step=step, first=True, return_so_far=0.5)
    rollout = layout.unpack(batch(layout, [rows]))
    assert rollout.observation.tolist() == [[[1, 2]]]
    assert rollout.next_observation.tolist() == [[[3, 4]]]
    assert (rollout.action.item(), rollout.reward.item(), rollout.return_so_far.item()) == (2, 0.5, 0.5)
    assert rollout.reward.dtype == rollout.discount.dtype == torch.float32


VECTOR = specs.Array((1,), np.float32)


@pytest.mark.parametrize(
    ("name", "spec", "message"),
    [
        ("discounts", VECTOR, r"one number per step for rollouts, got Array\(1,\) float32"),
        ("discounts", {"a": FLOAT}, r"one number per step for rollouts, got \{'a'"),
        (
            "rewards",
            VECTOR,
            r"one number per step, or a dict of these, for rollouts, got Array\(1,\) float32",
        ),
        ("rewards", {"a": VECTOR}, r"one number per step, or a dict of these, for rollouts, got \{'a'"),
        (
            "rewards",
            {"a": {"b": FLOAT}},
            r"one number per step, or a dict of these, for rollouts, got \{'a': \{'b'",
        ),
    ],
)
def test_signals_that_are_not_numbers_are_refused(name, spec, message):
    with pytest.raises(ValueError, match=f"`{name}` must be {message}"):
        layouts.RolloutLayout(SPEC._replace(**{name: spec}), 4)


def test_a_rollout_without_a_step_is_refused():
    with pytest.raises(ValueError, match="`rollout_length` must be >= 1 step, got 0"):
        layouts.RolloutLayout(SPEC, 0)


@pytest.mark.parametrize("total", [1.1e15, -4e38, float("inf")])
def test_a_return_too_large_for_its_dtype_is_refused(total):
    layout = layouts.RolloutLayout(SPEC, 1, EXTRAS_SPEC)
    step = layout.step(np.int32(0), dm_env.transition(ONE, observation(1), ONE), {"log_prob": ONE})
    with pytest.raises(ValueError, match=r"sum to .*, beyond 1e\+15. Clip them or scale them down"):
        layout.transition(
            observation=layout.first(observation(0)), step=step, first=True, return_so_far=total
        )
