"""One stream of timesteps in, exactly these sequences out, and what a learner makes of the boundaries."""

import dm_env
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from minerva_acme import losses, types
from minerva_acme.adders import ContinuingSequenceAdder
from minerva_acme.replay import layouts

from .scene import ENDS, LISTS, PERIODS, assert_same, episodes_of, trajectory

# See `scene`; an item is (observation, action, reward, discount, mask). `rest` is written
# when the adder is closed.
TABLES = {
    "the second episode follows the first": lambda d: dict(
        length=4,
        period=2,
        episodes=[(0, [1, 2], [1, d]), (50, [3, 4], [1, d])],
        items=[([0, 1, 2, 50, 51], [100, 101, 0, 150], [1, 2, 0, 3], [1, d, 0, 1], [1, 1, 0, 1])],
        rest=[
            ([2, 50, 51, 52, 52], [0, 150, 151, 0], [0, 3, 4, 0], [0, 1, d, 0], [0, 1, 1, 0]),
            ([51, 52, 52, 52, 52], [151, 0, 0, 0], [4, 0, 0, 0], [d, 0, 0, 0], [1, 0, 0, 0]),
        ],
    ),
    "an episode that fills its sequences": lambda d: dict(
        length=2,
        period=2,
        episodes=[(0, [1, 2, 3, 4], [1, 1, 1, d])],
        items=[
            ([0, 1, 2], [100, 101], [1, 2], [1, 1], [1, 1]),
            ([2, 3, 4], [102, 103], [3, 4], [1, d], [1, 1]),
        ],
        rest=[],
    ),
    "period 1": lambda d: dict(
        length=2,
        period=1,
        episodes=[(0, [1, 2], [1, d]), (50, [3], [d])],
        items=[
            ([0, 1, 2], [100, 101], [1, 2], [1, d], [1, 1]),
            ([1, 2, 50], [101, 0], [2, 0], [d, 0], [1, 0]),
            ([2, 50, 51], [0, 150], [0, 3], [0, d], [0, 1]),
        ],
        rest=[([50, 51, 51], [150, 0], [3, 0], [d, 0], [1, 0])],
    ),
    "a reset is a boundary": lambda d: dict(
        length=3,
        period=3,
        episodes=[(0, [1], [d], "reset"), (50, [2], [d], "reset")],
        items=[([0, 1, 50, 51], [100, 0, 150], [1, 0, 2], [d, 0, d], [1, 0, 1])],
        rest=[],
    ),
}


@ENDS
@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_timesteps_become_exactly_these_sequences(make_store, scalar_spec, play, table, final_discount):
    table = table(final_discount)
    layout = layouts.TrajectoryLayout(scalar_spec, table["length"])
    store = make_store(layout.signature)
    with ContinuingSequenceAdder(
        client=store.client, table="table", layout=layout, period=table["period"]
    ) as adder:
        for episode in table["episodes"]:
            play(adder, *episode)
        assert adder.num_inserted == len(table["items"])
        assert_same(store.items(layout), [trajectory(*item) for item in table["items"]])
    assert adder.num_inserted == len(table["items"]) + len(table["rest"])
    assert_same(store.items(layout), [trajectory(*item) for item in table["rest"]])


def reference(length: int, period: int, episodes: list) -> list[types.Trajectory]:
    """The items by a plain loop over the rows of all episodes, those of `close` included."""
    rows = []
    for start, rewards, discounts, _ in episodes:
        rows.append((start, 0, 0, 0, 0))
        for t, (reward, discount) in enumerate(zip(rewards, discounts, strict=True)):
            rows.append((start + t + 1, start + 100 + t, reward, discount, 1))
    items = []
    for first in range(0, len(rows), period):
        window = [
            rows[t] if t < len(rows) else (rows[-1][0], 0, 0, 0, 0) for t in range(first, first + length + 1)
        ]
        columns = list(zip(*window, strict=True))
        if any(columns[4][1:]):
            items.append(trajectory(columns[0], *(column[1:] for column in columns[1:])))
    return items


@settings(max_examples=50, deadline=None)
@given(
    length_and_period=PERIODS,
    lists=LISTS,
)
def test_any_episodes_become_what_a_plain_loop_says(
    make_memory_store, scalar_spec, play, length_and_period, lists
):
    length, period = length_and_period
    episodes = episodes_of(lists)
    layout = layouts.TrajectoryLayout(scalar_spec, length)
    store = make_memory_store(layout.signature)
    with ContinuingSequenceAdder(client=store.client, table="table", layout=layout, period=period) as adder:
        for episode in episodes:
            play(adder, *episode)
    assert_same(store.items(layout), reference(length, period, episodes))


@ENDS
def test_no_trace_and_no_reward_passes_the_boundary(make_memory_store, scalar_spec, play, final_discount):
    """The targets of a window over two episodes are those of each episode's part alone."""
    layout = layouts.TrajectoryLayout(scalar_spec, 6)
    store = make_memory_store(layout.signature)
    with ContinuingSequenceAdder(client=store.client, table="table", layout=layout, period=6) as adder:
        play(adder, 0, [1, 2, 4], [1, 1, final_discount])
        play(adder, 50, [8, 16], [1, final_discount])
    (item,) = store.items(layout)
    np.testing.assert_array_equal(item.mask, [1, 1, 1, 0, 1, 1])
    # An observation is its own value, so that V(s_{t+1}) of the last step is that of the true last one.
    value = torch.from_numpy(item.observation[:, 0])
    reward_t, discount_t = torch.from_numpy(item.reward), torch.from_numpy(item.discount)
    mask_t = torch.from_numpy(item.mask)
    value_tp1, q_t = value[1:], torch.arange(6.0)
    log_prob_t = torch.zeros(6)

    def targets(steps: slice) -> torch.Tensor:
        arguments = (q_t, value_tp1, reward_t, discount_t, log_prob_t, log_prob_t, mask_t)
        retrace = losses.retrace_targets(*(x[None, steps] for x in arguments), lambda_=0.9)[0]
        n_step = losses.n_step_targets(*(x[None, steps] for x in (value_tp1, reward_t, discount_t, mask_t)))
        return torch.stack([retrace, n_step[0]])

    whole = targets(slice(0, 6))
    torch.testing.assert_close(whole[:, :3], targets(slice(0, 3)))
    torch.testing.assert_close(whole[:, 4:], targets(slice(4, 6)))
    # The last step of the first episode bootstraps from its own last observation, 3, if it was truncated.
    assert whole[1, 2] == 4 + final_discount * 3


@pytest.mark.parametrize("period", [0, 4])
def test_a_period_out_of_range_is_refused(make_memory_store, scalar_spec, period):
    layout = layouts.TrajectoryLayout(scalar_spec, 3)
    client = make_memory_store(layout.signature).client
    with pytest.raises(ValueError, match=rf"`period` must be in \[1, 3\], .*got {period}\."):
        ContinuingSequenceAdder(client=client, table="table", layout=layout, period=period)


def test_a_stream_is_one_history_to_the_store_and_flushed_at_each_end(make_memory_store, scalar_spec, play):
    layout = layouts.TrajectoryLayout(scalar_spec, 1)
    store = make_memory_store(layout.signature)
    adder = ContinuingSequenceAdder(client=store.client, table="table", layout=layout, period=1)
    play(adder, 0, [1, 2], [1, 0])
    (writer,) = store.client.writers
    assert (writer.num_episodes, writer.flushed_items) == (0, 2)
    with pytest.raises(ValueError, match="No episode is open"):
        adder.add(np.float32([0]), dm_env.transition(np.float32(0), np.float32([0])))
    adder.close()
    assert writer.closed
