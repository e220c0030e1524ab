"""These timesteps in, exactly these sequences out."""

import dm_env
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minerva_acme import adders, types
from minerva_acme.adders import SequenceAdder
from minerva_acme.replay import base as replay
from minerva_acme.replay import layouts

from .scene import ENDS, LISTS, PERIODS, assert_same, episodes_of, trajectory

# See `scene`; an item is (observation, action, reward, discount, mask). `stored` says how
# many steps of each item are stored, where the layout is of variable length.
TABLES = {
    "an episode longer than T": lambda d: dict(
        length=2,
        period=1,
        episodes=[(0, [1, 2, 3, 4], [1, 1, 1, d])],
        items=[
            ([0, 1, 2], [100, 101], [1, 2], [1, 1], [1, 1]),
            ([1, 2, 3], [101, 102], [2, 3], [1, 1], [1, 1]),
            ([2, 3, 4], [102, 103], [3, 4], [1, d], [1, 1]),
            ([3, 4, 4], [103, 0], [4, 0], [d, 0], [1, 0]),
        ],
    ),
    "an episode shorter than T": lambda d: dict(
        length=4,
        period=1,
        episodes=[(0, [1, 2], [1, d])],
        items=[
            ([0, 1, 2, 2, 2], [100, 101, 0, 0], [1, 2, 0, 0], [1, d, 0, 0], [1, 1, 0, 0]),
            ([1, 2, 2, 2, 2], [101, 0, 0, 0], [2, 0, 0, 0], [d, 0, 0, 0], [1, 0, 0, 0]),
        ],
    ),
    "period 2, odd number of steps": lambda d: dict(
        length=3,
        period=2,
        episodes=[(0, [1, 2, 3, 4, 5], [1, 1, 1, 1, d])],
        items=[
            ([0, 1, 2, 3], [100, 101, 102], [1, 2, 3], [1, 1, 1], [1, 1, 1]),
            ([2, 3, 4, 5], [102, 103, 104], [3, 4, 5], [1, 1, d], [1, 1, 1]),
            ([4, 5, 5, 5], [104, 0, 0], [5, 0, 0], [d, 0, 0], [1, 0, 0]),
        ],
    ),
    "two episodes, neither reaching into the other": lambda d: dict(
        length=2,
        period=1,
        episodes=[(0, [1, 2], [1, d]), (50, [3, 4], [1, d])],
        items=[
            ([0, 1, 2], [100, 101], [1, 2], [1, d], [1, 1]),
            ([1, 2, 2], [101, 0], [2, 0], [d, 0], [1, 0]),
            ([50, 51, 52], [150, 151], [3, 4], [1, d], [1, 1]),
            ([51, 52, 52], [151, 0], [4, 0], [d, 0], [1, 0]),
        ],
    ),
    "a reset before the first step writes nothing": lambda d: dict(
        length=2,
        period=1,
        episodes=[(0, [], [], "reset"), (50, [3], [d])],
        items=[([50, 51, 51], [150, 0], [3, 0], [d, 0], [1, 0])],
    ),
    "what is left is written short": lambda d: dict(
        length=3,
        period=2,
        at_end=adders.write_short,
        stored=[3, 2],
        episodes=[(0, [1, 2, 3, 4], [1, 1, 1, d])],
        items=[
            ([0, 1, 2, 3], [100, 101, 102], [1, 2, 3], [1, 1, 1], [1, 1, 1]),
            ([2, 3, 4, 4], [102, 103, 0], [3, 4, 0], [1, d, 0], [1, 1, 0]),
        ],
    ),
    "an episode shorter than T is written short, once": lambda d: dict(
        length=3,
        period=1,
        at_end=adders.write_short,
        stored=[2, 1],
        episodes=[(0, [1, 2], [1, d]), (50, [3], [d], "reset"), (70, [], [], "reset")],
        items=[
            ([0, 1, 2, 2], [100, 101, 0], [1, 2, 0], [1, d, 0], [1, 1, 0]),
            ([50, 51, 51, 51], [150, 0, 0], [3, 0, 0], [d, 0, 0], [1, 0, 0]),
        ],
    ),
    "the last sequence is shifted back": lambda d: dict(
        length=3,
        period=2,
        at_end=adders.shift_back,
        episodes=[(0, [1, 2, 3, 4], [1, 1, 1, d])],
        items=[
            ([0, 1, 2, 3], [100, 101, 102], [1, 2, 3], [1, 1, 1], [1, 1, 1]),
            ([1, 2, 3, 4], [101, 102, 103], [2, 3, 4], [1, 1, d], [1, 1, 1]),
        ],
    ),
    "what fills no sequence is dropped": lambda d: dict(
        length=2,
        period=2,
        at_end=adders.drop_short,
        episodes=[(0, [1, 2, 3], [1, 1, d]), (50, [4], [d]), (70, [5, 6], [1, d])],
        items=[
            ([0, 1, 2], [100, 101], [1, 2], [1, 1], [1, 1]),
            ([70, 71, 72], [170, 171], [5, 6], [1, d], [1, 1]),
        ],
    ),
}


@ENDS
@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_timesteps_become_exactly_these_sequences(make_store, scalar_spec, play, table, final_discount):
    table = table(final_discount)
    layout = layouts.TrajectoryLayout(scalar_spec, table["length"], variable_length="stored" in table)
    store = make_store(layout.signature)
    with make_adder(store, layout, table) as adder:
        for episode in table["episodes"]:
            play(adder, *episode)
        assert_same(store.items(layout), [trajectory(*item) for item in table["items"]])
        assert adder.num_inserted == len(table["items"])


def make_adder(store, layout, table) -> SequenceAdder:
    return SequenceAdder(
        client=store.client,
        table="table",
        layout=layout,
        period=table["period"],
        at_end=table.get("at_end", adders.pad_every_start),
    )


WRITTEN_SHORT = {name: table for name, table in TABLES.items() if "stored" in table(0.0)}


@ENDS
@pytest.mark.parametrize("table", WRITTEN_SHORT.values(), ids=WRITTEN_SHORT)
def test_what_is_written_short_is_stored_as_short_as_it_is(
    make_store, scalar_spec, play, table, final_discount
):
    table = table(final_discount)
    layout = layouts.TrajectoryLayout(scalar_spec, table["length"], variable_length=True)
    store = make_store(layout.signature)
    with make_adder(store, layout, table) as adder:
        for episode in table["episodes"]:
            play(adder, *episode)
    stored = store.read_one_by_one()
    assert [item["float32"].shape[1] - 1 for item in stored] == table["stored"]
    for item, num_steps, (observation, action, reward, discount, _) in zip(
        stored, table["stored"], table["items"], strict=True
    ):
        rows = item["float32"][0]  # [length, (observation, action, reward, discount, mask)]
        assert rows[:, 0].tolist() == observation[: num_steps + 1]
        expected = zip(action, reward, discount, strict=True)
        assert rows[1:, 1:].tolist() == [[*step, 1] for step in list(expected)[:num_steps]]


@pytest.mark.parametrize("at_end", [adders.pad_every_start, adders.write_short, adders.shift_back])
def test_with_a_layout_of_variable_length_no_padding_is_written(make_memory_store, scalar_spec, play, at_end):
    rows, items = [], []
    for variable_length in (False, True):
        layout = layouts.TrajectoryLayout(scalar_spec, 4, variable_length=variable_length)
        store = make_memory_store(layout.signature)
        table = dict(period=2, at_end=adders.pad_every_start if not variable_length else at_end)
        with make_adder(store, layout, table) as adder:
            play(adder, 0, [1], [0])
            play(adder, 50, [2, 3, 4, 5, 6], [1, 1, 1, 1, 1])
        items.append(store.items(layout))
        rows.append(store.client.writers[0].num_appended)
    timesteps = 2 + 6
    assert rows == [timesteps + 3 + 3, timesteps]
    if at_end is adders.pad_every_start:
        assert_same(*items)


def test_writing_short_needs_a_layout_of_variable_length(make_memory_store, scalar_spec):
    layout = layouts.TrajectoryLayout(scalar_spec, 3)
    store = make_memory_store(layout.signature)
    with pytest.raises(
        ValueError,
        match="`layout` must be of variable length for `write_short`, got one of fixed length.*"
        "`variable_length=True`.*another `at_end`",
    ):
        make_adder(store, layout, dict(period=1, at_end=adders.write_short))


def endless(episode):
    while True:
        yield 1


WRONG_ENDS = {
    "beyond the end": (lambda episode: [4], "4"),
    "far beyond the end": (lambda episode: [2, 1000], "1000"),
    "before the first step": (lambda episode: [-1], "-1"),
    "out of reach": (lambda episode: [0], "0"),
    "in descending order": (lambda episode: [3, 2], "2 after 3"),
    "twice the same": (lambda episode: [2, 2], "2 after 2"),
    "without end": (endless, "1 after 1"),
    "no whole number": (lambda episode: [2.0], "2.0"),
    "a truth value": (lambda episode: [True], "True"),
    "nothing": (lambda episode: None, "None"),
    "one number": (lambda episode: 3, "3"),
}


@pytest.mark.parametrize("end", ["last", "reset", "close"])
@pytest.mark.parametrize("variable_length", [False, True], ids=["padded", "short"])
@pytest.mark.parametrize(("at_end", "found"), WRONG_ENDS.values(), ids=WRONG_ENDS)
def test_a_wrong_end_is_refused_once_and_the_rest_is_kept(
    make_memory_store, scalar_spec, play, at_end, found, variable_length, end
):
    layout = layouts.TrajectoryLayout(scalar_spec, 3, variable_length=variable_length)
    store = make_memory_store(layout.signature)
    answers = [at_end, adders.pad_every_start]
    adder = make_adder(store, layout, dict(period=1, at_end=lambda episode: answers.pop(0)(episode)))
    with pytest.raises(ValueError) as raised:
        play(adder, 0, [1, 2, 3, 4], [1, 1, 1, 0], end)
        adder.close()
    assert str(raised.value) == (
        "`at_end` must return the steps at which sequences start, in ascending order and from 1 to 3 where "
        f"an episode has 4 steps, got {found}. Correct the function; the steps that fill no sequence are "
        "lost."
    )
    if end != "close":
        adder.reset()
        play(adder, 50, [5], [0])
    adder.close()
    adder.close()
    expected = [
        trajectory([0, 1, 2, 3], [100, 101, 102], [1, 2, 3], [1, 1, 1], [1, 1, 1]),
        trajectory([1, 2, 3, 4], [101, 102, 103], [2, 3, 4], [1, 1, 0], [1, 1, 1]),
        trajectory([50, 51, 51, 51], [150, 0, 0], [5, 0, 0], [0, 0, 0], [1, 0, 0]),
    ]
    assert_same(store.items(layout), expected[: 2 if end == "close" else 3])


def test_an_error_of_at_end_is_not_repeated(make_memory_store, scalar_spec, play):
    def failing(episode):
        raise KeyError("mine")

    layout = layouts.TrajectoryLayout(scalar_spec, 3)
    store = make_memory_store(layout.signature)
    adder = make_adder(store, layout, dict(period=1, at_end=failing))
    with pytest.raises(KeyError, match="mine"):
        play(adder, 0, [1, 2, 3, 4], [1, 1, 1, 0])
    adder.reset()
    with pytest.raises(KeyError, match="mine"):
        play(adder, 50, [5], [0])
    adder.close()
    assert [item.observation[0, 0] for item in store.items(layout)] == [0, 1]


def test_of_an_episode_without_steps_at_end_is_not_asked(make_memory_store, scalar_spec, play):
    layout = layouts.TrajectoryLayout(scalar_spec, 3)
    store = make_memory_store(layout.signature)
    with make_adder(store, layout, dict(period=1, at_end=lambda episode: [0])) as adder:
        play(adder, 0, [], [], "reset")
        play(adder, 50, [5], [0])
    assert [item.observation[0, 0] for item in store.items(layout)] == [50]


def test_what_a_timeout_left_is_written_without_asking_at_end_again(make_memory_store, scalar_spec, play):
    layout = layouts.TrajectoryLayout(scalar_spec, 3)
    store = make_memory_store(layout.signature)
    adder = make_adder(store, layout, dict(period=3, at_end=lambda episode: [1, 3]))
    adder.add_first(dm_env.restart(np.float32([0])))
    (writer,) = store.client.writers
    create_item = writer.create_item

    def create_item_late(*args):
        create_item(*args)
        if len(writer.items) == 2:
            raise replay.ReplayTimeout("the table holds inserts back")

    writer.create_item = create_item_late
    steps = [dm_env.transition(np.float32(t), np.float32([t]), np.float32(1)) for t in (1, 2, 3, 4)]
    steps[-1] = steps[-1]._replace(step_type=dm_env.StepType.LAST)
    for step in steps[:-1]:
        adder.add(np.float32([0]), step)
    with pytest.raises(replay.ReplayTimeout):
        adder.add(np.float32([0]), steps[-1])
    adder.close()
    assert [item.observation[0, 0] for item in store.items(layout)] == [0, 1, 3]


def starts(length: int, period: int, at_end, num_steps: int) -> list[int]:
    """Where sequences start, by a plain loop over steps."""
    full = [first for first in range(0, num_steps, period) if first + length <= num_steps]
    short = [first for first in range(0, num_steps, period) if first + length > num_steps]
    is_rest = num_steps > 0 and (not full or full[-1] + length < num_steps)
    if at_end is adders.pad_every_start:
        return full + short
    if at_end is adders.write_short:
        return full + short[:is_rest]
    if at_end is adders.shift_back:
        return full + [max(0, num_steps - length)] * is_rest
    return full


def reference(length: int, period: int, at_end, episodes: list) -> list[types.Trajectory]:
    """The items by a plain loop over transitions."""
    items = []
    for start, rewards, discounts, _ in episodes:
        num_steps = len(rewards)
        for first in starts(length, period, at_end, num_steps):
            rows = []
            for t in range(first, first + length):
                rows.append((start + 100 + t, rewards[t], discounts[t], 1) if t < num_steps else (0, 0, 0, 0))
            observations = [start + min(t, num_steps) for t in range(first, first + length + 1)]
            items.append(trajectory(observations, *zip(*rows, strict=True)))
    return items


@settings(max_examples=50, deadline=None)
@given(
    length_and_period=PERIODS,
    at_end=st.sampled_from(
        [adders.pad_every_start, adders.write_short, adders.shift_back, adders.drop_short]
    ),
    variable_length=st.booleans(),
    lists=LISTS,
)
def test_any_episodes_become_what_a_plain_loop_says(
    make_memory_store, scalar_spec, play, length_and_period, at_end, variable_length, lists
):
    variable_length = variable_length or at_end is adders.write_short
    length, period = length_and_period
    episodes = episodes_of(lists)
    layout = layouts.TrajectoryLayout(scalar_spec, length, variable_length=variable_length)
    once, again = make_memory_store(layout.signature), make_memory_store(layout.signature)
    for store in (once, again):
        with make_adder(store, layout, dict(period=period, at_end=at_end)) as adder:
            for episode in episodes:
                play(adder, *episode)
    expected = reference(length, period, at_end, episodes)
    assert_same(once.items(layout), expected)
    lengths = [item["float32"].shape[1] - 1 for item in again.read_one_by_one()]
    assert lengths == [int(item.mask.sum()) if variable_length else length for item in expected]


@pytest.mark.parametrize("period", [0, 4])
def test_a_period_out_of_range_is_refused(make_memory_store, scalar_spec, period):
    layout = layouts.TrajectoryLayout(scalar_spec, 3)
    client = make_memory_store(layout.signature).client
    with pytest.raises(
        ValueError, match=rf"`period` must be in \[1, 3\], the sequence length, got {period}\."
    ):
        SequenceAdder(client=client, table="table", layout=layout, period=period)
