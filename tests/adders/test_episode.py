"""These timesteps in, exactly these episodes out."""

import dm_env
import numpy as np
import pytest

from minerva_acme.adders import EpisodeAdder
from minerva_acme.replay import layouts

from .scene import ENDS, assert_same, trajectory

# See `scene`; an item is (observation, action, reward, discount, mask).
TABLES = {
    "a reset before the first step writes nothing": lambda d: dict(
        length=2,
        episodes=[(0, [], [], "reset"), (50, [3], [d])],
        items=[([50, 51, 51], [150, 0], [3, 0], [d, 0], [1, 0])],
    ),
    "an episode one step shorter": lambda d: dict(
        length=3,
        episodes=[(0, [1, 2], [1, d])],
        items=[([0, 1, 2, 2], [100, 101, 0], [1, 2, 0], [1, d, 0], [1, 1, 0])],
    ),
    "discounts within an episode": lambda d: dict(
        length=4,
        episodes=[(0, [1, 2, 3], [0.5, 0, d])],
        items=[([0, 1, 2, 3, 3], [100, 101, 102, 0], [1, 2, 3, 0], [0.5, 0, d, 0], [1, 1, 1, 0])],
    ),
    "episodes of different lengths": lambda d: dict(
        length=2,
        episodes=[(0, [1], [d]), (50, [2, 3], [1, d]), (70, [4], [d])],
        items=[
            ([0, 1, 1], [100, 0], [1, 0], [d, 0], [1, 0]),
            ([50, 51, 52], [150, 151], [2, 3], [1, d], [1, 1]),
            ([70, 71, 71], [170, 0], [4, 0], [d, 0], [1, 0]),
        ],
    ),
    "a reset at the maximum length": lambda d: dict(
        length=2,
        episodes=[(0, [1, 2], [1, d], "reset")],
        items=[([0, 1, 2], [100, 101], [1, 2], [1, d], [1, 1])],
    ),
    "more rows than fit in one of the store's chunks": lambda d: dict(
        length=40,
        episodes=[(0, [1] * 40, [1] * 39 + [d])],
        items=[(range(41), range(100, 140), [1] * 40, [1] * 39 + [d], [1] * 40)],
    ),
}


@ENDS
@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_each_episode_becomes_exactly_one_item(make_store, scalar_spec, play, table, final_discount):
    table = table(final_discount)
    layout = layouts.TrajectoryLayout(scalar_spec, table["length"])
    store = make_store(layout.signature)
    with EpisodeAdder(client=store.client, table="table", layout=layout) as adder:
        for episode in table["episodes"]:
            play(adder, *episode)
        assert_same(store.items(layout), [trajectory(*item) for item in table["items"]])
        assert adder.num_inserted == len(table["items"])


@ENDS
def test_with_a_layout_of_variable_length_episodes_are_stored_as_short_as_they_are(
    make_store, scalar_spec, play, final_discount
):
    table = TABLES["episodes of different lengths"](final_discount)
    layout = layouts.TrajectoryLayout(scalar_spec, table["length"], variable_length=True)
    once, again = make_store(layout.signature), make_store(layout.signature)
    for store in (once, again):
        with EpisodeAdder(client=store.client, table="table", layout=layout) as adder:
            for episode in table["episodes"]:
                play(adder, *episode)
    assert_same(once.items(layout), [trajectory(*item) for item in table["items"]])
    assert [item["float32"].shape[1] - 1 for item in again.read_one_by_one()] == [1, 2, 1]


@pytest.mark.parametrize("step_type", [dm_env.StepType.MID, dm_env.StepType.LAST])
def test_a_step_too_many_is_refused_and_what_came_before_is_kept(make_store, scalar_spec, play, step_type):
    layout = layouts.TrajectoryLayout(scalar_spec, 2)
    store = make_store(layout.signature)
    one = np.float32(1)
    with EpisodeAdder(client=store.client, table="table", layout=layout) as adder:
        play(adder, 0, [1, 2], [1, 1], end="not yet")
        for _ in range(2):
            with pytest.raises(
                ValueError, match="An episode must have at most 2 steps, .* `reset` writes the 2 steps so far"
            ):
                adder.add(np.float32([102]), dm_env.TimeStep(step_type, one, one, np.float32([3])))
        assert adder.num_inserted == 0
        adder.reset()
        play(adder, 50, [3], [0])
        items = store.items(layout)
    assert_same(
        items,
        [
            trajectory([0, 1, 2], [100, 101], [1, 2], [1, 1], [1, 1]),
            trajectory([50, 51, 51], [150, 0], [3, 0], [0, 0], [1, 0]),
        ],
    )


@pytest.mark.parametrize("variable_length", [False, True])
def test_a_function_of_ones_own_makes_the_padding_and_the_mask_stays(
    make_store, scalar_spec, play, variable_length
):
    def minus_three(shape, dtype):
        return np.full(shape, -3, dtype)

    layout = layouts.TrajectoryLayout(scalar_spec, 4, variable_length=variable_length, padding_fn=minus_three)
    store = make_store(layout.signature)
    with EpisodeAdder(client=store.client, table="table", layout=layout) as adder:
        play(adder, 0, [1, 2], [1, 0])
        play(adder, 50, [1, 2, 3, 4], [1, 1, 1, 1])
        items = store.items(layout)
    expected = [
        trajectory([0, 1, 2, -3, -3], [100, 101, -3, -3], [1, 2, -3, -3], [1, 0, -3, -3], [1, 1, 0, 0]),
        trajectory([50, 51, 52, 53, 54], [150, 151, 152, 153], [1, 2, 3, 4], [1, 1, 1, 1], [1, 1, 1, 1]),
    ]
    assert_same(items, expected)


def test_padding_of_stacks_is_not_made_by_a_function(rich_spec):
    with pytest.raises(ValueError, match="`padding_fn` must be None with `frame_stack` above 1"):
        layouts.TrajectoryLayout(rich_spec, 4, frame_stack=2, padding_fn=np.zeros)
