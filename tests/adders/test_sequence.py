"""These timesteps in, exactly these sequences out."""

import numpy as np
import pytest
import tree
from hypothesis import given, settings
from hypothesis import strategies as st

from minerva_acme import types
from minerva_acme.adders import SequenceAdder
from minerva_acme.replay import layouts

# An episode is (start, rewards, discounts[, end]): its observations are start, start + 1, ..., its
# actions start + 100, ...; an item is (observation, action, reward, discount, mask).
TABLES = {
    "a terminated episode of T steps": dict(
        length=3,
        period=1,
        episodes=[(0, [1, 2, 3], [1, 1, 0])],
        items=[
            ([0, 1, 2, 3], [100, 101, 102], [1, 2, 3], [1, 1, 0], [1, 1, 1]),
            ([1, 2, 3, 3], [101, 102, 0], [2, 3, 0], [1, 0, 0], [1, 1, 0]),
            ([2, 3, 3, 3], [102, 0, 0], [3, 0, 0], [0, 0, 0], [1, 0, 0]),
        ],
    ),
    "a truncated episode of T steps": dict(
        length=3,
        period=1,
        episodes=[(0, [1, 2, 3], [1, 1, 1])],
        items=[
            ([0, 1, 2, 3], [100, 101, 102], [1, 2, 3], [1, 1, 1], [1, 1, 1]),
            ([1, 2, 3, 3], [101, 102, 0], [2, 3, 0], [1, 1, 0], [1, 1, 0]),
            ([2, 3, 3, 3], [102, 0, 0], [3, 0, 0], [1, 0, 0], [1, 0, 0]),
        ],
    ),
    "a truncation whose discount is neither 0 nor 1": dict(
        length=2,
        period=1,
        episodes=[(0, [1, 2], [0.75, 0.5])],
        items=[
            ([0, 1, 2], [100, 101], [1, 2], [0.75, 0.5], [1, 1]),
            ([1, 2, 2], [101, 0], [2, 0], [0.5, 0], [1, 0]),
        ],
    ),
    "an episode longer than T": dict(
        length=2,
        period=1,
        episodes=[(0, [1, 2, 3, 4], [1, 1, 1, 0])],
        items=[
            ([0, 1, 2], [100, 101], [1, 2], [1, 1], [1, 1]),
            ([1, 2, 3], [101, 102], [2, 3], [1, 1], [1, 1]),
            ([2, 3, 4], [102, 103], [3, 4], [1, 0], [1, 1]),
            ([3, 4, 4], [103, 0], [4, 0], [0, 0], [1, 0]),
        ],
    ),
    "a terminated episode shorter than T": dict(
        length=4,
        period=1,
        episodes=[(0, [1, 2], [1, 0])],
        items=[
            ([0, 1, 2, 2, 2], [100, 101, 0, 0], [1, 2, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0]),
            ([1, 2, 2, 2, 2], [101, 0, 0, 0], [2, 0, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0]),
        ],
    ),
    "a truncated episode shorter than T": dict(
        length=4,
        period=1,
        episodes=[(0, [1, 2], [1, 1])],
        items=[
            ([0, 1, 2, 2, 2], [100, 101, 0, 0], [1, 2, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0]),
            ([1, 2, 2, 2, 2], [101, 0, 0, 0], [2, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]),
        ],
    ),
    "an episode of one step": dict(
        length=3,
        period=1,
        episodes=[(0, [1], [0])],
        items=[([0, 1, 1, 1], [100, 0, 0], [1, 0, 0], [0, 0, 0], [1, 0, 0])],
    ),
    "sequences of one step": dict(
        length=1,
        period=1,
        episodes=[(0, [1, 2], [1, 0])],
        items=[([0, 1], [100], [1], [1], [1]), ([1, 2], [101], [2], [0], [1])],
    ),
    "period 2, even number of steps": dict(
        length=3,
        period=2,
        episodes=[(0, [1, 2, 3, 4], [1, 1, 1, 0])],
        items=[
            ([0, 1, 2, 3], [100, 101, 102], [1, 2, 3], [1, 1, 1], [1, 1, 1]),
            ([2, 3, 4, 4], [102, 103, 0], [3, 4, 0], [1, 0, 0], [1, 1, 0]),
        ],
    ),
    "period 2, odd number of steps": dict(
        length=3,
        period=2,
        episodes=[(0, [1, 2, 3, 4, 5], [1, 1, 1, 1, 1])],
        items=[
            ([0, 1, 2, 3], [100, 101, 102], [1, 2, 3], [1, 1, 1], [1, 1, 1]),
            ([2, 3, 4, 5], [102, 103, 104], [3, 4, 5], [1, 1, 1], [1, 1, 1]),
            ([4, 5, 5, 5], [104, 0, 0], [5, 0, 0], [1, 0, 0], [1, 0, 0]),
        ],
    ),
    "period T, a multiple of T steps": dict(
        length=2,
        period=2,
        episodes=[(0, [1, 2, 3, 4], [1, 1, 1, 0])],
        items=[
            ([0, 1, 2], [100, 101], [1, 2], [1, 1], [1, 1]),
            ([2, 3, 4], [102, 103], [3, 4], [1, 0], [1, 1]),
        ],
    ),
    "period T, one step more": dict(
        length=2,
        period=2,
        episodes=[(0, [1, 2, 3], [1, 1, 1])],
        items=[
            ([0, 1, 2], [100, 101], [1, 2], [1, 1], [1, 1]),
            ([2, 3, 3], [102, 0], [3, 0], [1, 0], [1, 0]),
        ],
    ),
    "two episodes, neither reaching into the other": dict(
        length=2,
        period=1,
        episodes=[(0, [1, 2], [1, 0]), (50, [3, 4], [1, 1])],
        items=[
            ([0, 1, 2], [100, 101], [1, 2], [1, 0], [1, 1]),
            ([1, 2, 2], [101, 0], [2, 0], [0, 0], [1, 0]),
            ([50, 51, 52], [150, 151], [3, 4], [1, 1], [1, 1]),
            ([51, 52, 52], [151, 0], [4, 0], [1, 0], [1, 0]),
        ],
    ),
    "a reset in the middle is a truncation": dict(
        length=3,
        period=1,
        episodes=[(0, [1, 2], [1, 1], "reset"), (50, [3], [0])],
        items=[
            ([0, 1, 2, 2], [100, 101, 0], [1, 2, 0], [1, 1, 0], [1, 1, 0]),
            ([1, 2, 2, 2], [101, 0, 0], [2, 0, 0], [1, 0, 0], [1, 0, 0]),
            ([50, 51, 51, 51], [150, 0, 0], [3, 0, 0], [0, 0, 0], [1, 0, 0]),
        ],
    ),
    "a reset before the first step writes nothing": dict(
        length=2,
        period=1,
        episodes=[(0, [], [], "reset"), (50, [3], [0])],
        items=[([50, 51, 51], [150, 0], [3, 0], [0, 0], [1, 0])],
    ),
}


def trajectory(observation, action, reward, discount, mask) -> types.Trajectory:
    return types.Trajectory(
        observation=np.float32(observation)[:, None],
        action=np.float32(action)[:, None],
        reward=np.float32(reward),
        discount=np.float32(discount),
        mask=np.float32(mask),
    )


def assert_same(items: list[types.Trajectory], expected: list[types.Trajectory]) -> None:
    assert len(items) == len(expected)
    for item, wanted in zip(items, expected, strict=True):
        tree.map_structure(np.testing.assert_array_equal, item, wanted)
        assert [leaf.dtype for leaf in tree.flatten(item)] == [leaf.dtype for leaf in tree.flatten(wanted)]


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_timesteps_become_exactly_these_sequences(make_store, scalar_spec, play, table):
    layout = layouts.TrajectoryLayout(scalar_spec, table["length"])
    store = make_store(layout.signature)
    with SequenceAdder(client=store.client, table="table", layout=layout, period=table["period"]) as adder:
        for episode in table["episodes"]:
            play(adder, *episode)
        assert_same(store.items(layout), [trajectory(*item) for item in table["items"]])
        assert adder.num_inserted == len(table["items"])


@pytest.mark.parametrize("final_discount", [0.0, 1.0], ids=["termination", "truncation"])
def test_every_kind_of_field_comes_back_as_it_went_in(
    make_store, rich_spec, rich_episode, extras_spec, final_discount
):
    episode = rich_episode(num_steps=3, final_discount=final_discount)
    layout = layouts.TrajectoryLayout(rich_spec, 2, extras_spec)
    store = make_store(layout.signature)
    with SequenceAdder(client=store.client, table="table", layout=layout, period=1) as adder:
        episode.play(adder)
        items = store.items(layout)

    def stack(*nests):
        return tree.map_structure(lambda *leaves: np.stack(leaves), *nests)

    def padded(nest):
        return tree.map_structure(lambda leaf: np.stack([leaf, np.zeros_like(leaf)]), nest)

    o, a, r, d, e = episode
    one, zero = np.float32(1.0), np.float32(0.0)
    expected = [
        types.Trajectory(
            stack(*o[:3]), stack(*a[:2]), stack(*r[:2]), stack(*d[:2]), stack(one, one), stack(*e[:2])
        ),
        types.Trajectory(
            stack(*o[1:]), stack(*a[1:]), stack(*r[1:]), stack(*d[1:]), stack(one, one), stack(*e[1:])
        ),
        types.Trajectory(
            stack(o[2], o[3], o[3]), padded(a[2]), padded(r[2]), padded(d[2]), stack(one, zero), padded(e[2])
        ),
    ]
    assert_same(items, expected)


def reference(length: int, period: int, episodes: list) -> list[types.Trajectory]:
    """The items by a plain loop over transitions."""
    items = []
    for start, rewards, discounts in episodes:
        num_steps = len(rewards)
        for first in range(0, num_steps, period):
            rows = []
            for t in range(first, first + length):
                rows.append((start + 100 + t, rewards[t], discounts[t], 1) if t < num_steps else (0, 0, 0, 0))
            observations = [start + min(t, num_steps) for t in range(first, first + length + 1)]
            items.append(trajectory(observations, *zip(*rows, strict=True)))
    return items


STEPS = st.lists(
    st.tuples(st.floats(-10, 10, width=32), st.sampled_from([0.0, 0.5, 1.0])), min_size=1, max_size=12
)


@settings(max_examples=50, deadline=None)
@given(
    length_and_period=st.integers(1, 6).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n))),
    lists=st.lists(STEPS, max_size=4),
)
def test_any_episodes_become_what_a_plain_loop_says(
    make_memory_store, scalar_spec, play, length_and_period, lists
):
    length, period = length_and_period
    episodes = [(50 * i, *zip(*steps, strict=True)) for i, steps in enumerate(lists)]
    layout = layouts.TrajectoryLayout(scalar_spec, length)
    store = make_memory_store(layout.signature)
    with SequenceAdder(client=store.client, table="table", layout=layout, period=period) as adder:
        for episode in episodes:
            play(adder, *episode)
    assert_same(store.items(layout), reference(length, period, episodes))


@pytest.mark.parametrize("period", [0, 4])
def test_a_period_out_of_range_is_refused(make_memory_store, scalar_spec, period):
    layout = layouts.TrajectoryLayout(scalar_spec, 3)
    client = make_memory_store(layout.signature).client
    with pytest.raises(
        ValueError, match=rf"`period` must be in \[1, 3\], the sequence length, got {period}\."
    ):
        SequenceAdder(client=client, table="table", layout=layout, period=period)
