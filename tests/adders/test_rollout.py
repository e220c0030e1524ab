"""One stream of timesteps in, exactly these rollouts out."""

import importlib.util
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import dm_env
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minerva_acme import specs, types
from minerva_acme.adders import RolloutAdder
from minerva_acme.replay import backends, layouts
from minerva_acme.replay import base as replay
from minerva_acme.testing import checks

from .scene import ENDS, assert_same

GAMMA = 0.5

# See `scene`; an item is (observation, action, reward, discount, next_observation, first, last,
# return_so_far).
TABLES = {
    "episodes longer than T": lambda d: dict(
        length=3,
        episodes=[(0, [1, 2, 3, 4], [1, 1, 1, d]), (50, [5, 6], [1, d])],
        items=[
            (
                [0, 1, 2],
                [100, 101, 102],
                [1, 2, 3],
                [1, 1, 1],
                [1, 2, 3],
                [1, 0, 0],
                [0, 0, 1],
                [1, 2.5, 4.25],
            ),
            (
                [3, 50, 51],
                [103, 150, 151],
                [4, 5, 6],
                [d, 1, d],
                [4, 51, 52],
                [0, 1, 0],
                [1, 0, 1],
                [6.125, 5, 8.5],
            ),
        ],
    ),
    "several episodes in a rollout": lambda d: dict(
        length=4,
        episodes=[(0, [1], [d]), (50, [2, 3], [1, d]), (70, [4, 5], [1, d])],
        items=[
            (
                [0, 50, 51, 70],
                [100, 150, 151, 170],
                [1, 2, 3, 4],
                [d, 1, d, 1],
                [1, 51, 52, 71],
                [1, 1, 0, 1],
                [1, 0, 1, 1],
                [1, 2, 4, 4],
            ),
        ],
    ),
    "a reset in an episode": lambda d: dict(
        length=4,
        episodes=[(0, [1, 2], [1, 1], "reset"), (50, [3], [1], "reset"), (70, [4], [d])],
        items=[
            (
                [0, 1, 50, 70],
                [100, 101, 150, 170],
                [1, 2, 3, 4],
                [1, 1, 1, d],
                [1, 2, 51, 71],
                [1, 0, 1, 1],
                [0, 1, 1, 1],
                [1, 2.5, 3, 4],
            ),
        ],
    ),
    "episodes without a step": lambda d: dict(
        length=2,
        episodes=[(0, [], [], "reset"), (50, [1], [d]), (60, [], [], "reset"), (70, [2], [d])],
        items=[([50, 70], [150, 170], [1, 2], [d, d], [51, 71], [1, 1], [1, 1], [1, 2])],
    ),
}


def make_adder(store: Any, layout: layouts.RolloutLayout, **changes: Any) -> RolloutAdder:
    options = dict(client=store.client, table="table", layout=layout, discount=GAMMA)
    return RolloutAdder(**{**options, **changes})


def rollout(
    observation, action, reward, discount, next_observation, first, last, return_so_far
) -> types.Rollout:
    return types.Rollout(
        observation=np.float32(observation)[:, None],
        action=np.float32(action)[:, None],
        reward=np.float32(reward),
        discount=np.float32(discount),
        next_observation=np.float32(next_observation)[:, None],
        first=np.float32(first),
        last=np.float32(last),
        return_so_far=np.float32(return_so_far),
    )


@ENDS
@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_timesteps_become_exactly_these_rollouts(make_store, scalar_spec, play, table, final_discount):
    table = table(final_discount)
    layout = layouts.RolloutLayout(scalar_spec, table["length"])
    store = make_store(layout.signature)
    with make_adder(store, layout) as adder:
        for episode in table["episodes"]:
            play(adder, *episode)
        assert adder.num_inserted == len(table["items"])
        assert_same(store.items(layout), [rollout(*item) for item in table["items"]])
    assert adder.num_inserted == len(table["items"])
    assert store.items(layout) == []


STEPS = st.lists(st.tuples(st.integers(-9, 9), st.sampled_from([0.0, 0.5, 1.0])), min_size=1, max_size=9)


@settings(max_examples=50, deadline=None)
@given(
    length=st.integers(1, 7), lists=st.lists(st.tuples(STEPS, st.sampled_from(["last", "reset"])), max_size=5)
)
def test_any_episodes_become_what_a_plain_loop_says(make_memory_store, scalar_spec, play, length, lists):
    episodes = [(50 * i, *zip(*steps, strict=True), end) for i, (steps, end) in enumerate(lists)]
    rows = []
    for start, rewards, discounts, _ in episodes:
        return_so_far = 0.0
        for t, (reward, discount) in enumerate(zip(rewards, discounts, strict=True)):
            return_so_far = reward + GAMMA * return_so_far
            is_last = t + 1 == len(rewards)
            marks = (t == 0, is_last, return_so_far)
            rows.append((start + t, start + 100 + t, reward, discount, start + t + 1, *marks))
    expected = []
    for first in range(0, len(rows) - length + 1, length):
        columns = [list(column) for column in zip(*rows[first : first + length], strict=True)]
        columns[6][-1] = 1
        expected.append(rollout(*columns))

    layout = layouts.RolloutLayout(scalar_spec, length)
    store = make_memory_store(layout.signature)
    with make_adder(store, layout) as adder:
        for episode in episodes:
            play(adder, *episode)
    assert_same(store.items(layout), expected)


def test_priorities_are_asked_for_a_whole_rollout(make_memory_store, scalar_spec, play):
    layout = layouts.RolloutLayout(scalar_spec, 2)
    store = make_memory_store(layout.signature)
    with make_adder(store, layout, priority=lambda item: float(item.reward.sum())) as adder:
        play(adder, 0, [1, 2, 3, 4], [1, 1, 1, 0])
    items, priorities = store.items_and_priorities(layout)
    assert priorities == [3, 7]
    assert [item.reward.shape for item in items] == [(2,), (2,)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(reward=np.float32(np.nan)), "`reward` must be finite, got nan"),
        (dict(reward=np.float32(np.inf)), "`reward` must be finite, got inf"),
        (dict(reward=None), "`reward` must be float32 of shape .*, got None"),
        (dict(observation=np.float32([np.inf])), "`observation` must be finite, got inf at index"),
        (dict(reward=np.float32(9e14)), r"rewards of an episode sum to .*, beyond 1e\+15"),
    ],
    ids=["nan reward", "infinite reward", "no reward", "infinite observation", "return too large"],
)
@pytest.mark.parametrize("num_before", [1, 2], ids=["within the rollout", "at its last step"])
def test_a_step_that_is_refused_changes_nothing(
    make_memory_store, scalar_spec, play, changes, message, num_before
):
    layout = layouts.RolloutLayout(scalar_spec, 3)
    untouched, store = make_memory_store(layout.signature), make_memory_store(layout.signature)
    rewards, discounts = [9e14, 2, 3, 4], [1, 1, 1, 0]
    play(make_adder(untouched, layout, discount=1.0), 0, rewards, discounts)

    adder = make_adder(store, layout, discount=1.0)
    adder.add_first(dm_env.restart(np.float32([0])))
    for t in range(4):
        step_type = dm_env.StepType.LAST if t == 3 else dm_env.StepType.MID
        timestep = dm_env.TimeStep(
            step_type, np.float32(rewards[t]), np.float32(discounts[t]), np.float32([t + 1])
        )
        if t == num_before:
            with pytest.raises(ValueError, match=message):
                adder.add(np.float32([100 + t]), timestep._replace(**changes))
        adder.add(np.float32([100 + t]), timestep)
    assert_same(store.items(layout), untouched.items(layout))


@pytest.mark.parametrize("discount", [-0.1, 1.1, float("nan")])
def test_a_discount_out_of_range_is_refused(make_memory_store, scalar_spec, discount):
    layout = layouts.RolloutLayout(scalar_spec, 2)
    with pytest.raises(ValueError, match=rf"`discount` must be in \[0, 1\], got {discount}"):
        make_adder(make_memory_store(layout.signature), layout, discount=discount)


def test_an_item_is_sent_at_once_and_the_stream_is_one_history(make_memory_store, scalar_spec, play):
    layout = layouts.RolloutLayout(scalar_spec, 2)
    store = make_memory_store(layout.signature)
    adder = make_adder(store, layout)
    play(adder, 0, [1], [0])
    adder.add_first(dm_env.restart(np.float32([50])))
    (writer,) = store.client.writers
    assert (writer.max_window, writer.flushed_items, writer.num_appended) == (2, 0, 1)
    adder.add(np.float32([150]), dm_env.transition(np.float32(1), np.float32([51]), np.float32(1)))
    assert (writer.flushed_items, writer.num_episodes) == (1, 0)
    adder.close()
    assert writer.closed


def test_closing_says_how_many_steps_it_drops(make_memory_store, scalar_spec, play, caplog):
    layout = layouts.RolloutLayout(scalar_spec, 3)
    store = make_memory_store(layout.signature)
    with caplog.at_level(logging.INFO, "minerva_acme.adders.rollout"):
        with make_adder(store, layout) as adder:
            play(adder, 0, [1, 2, 3], [1, 1, 0])
        assert not caplog.messages
        with make_adder(store, layout) as adder:
            play(adder, 0, [1, 2], [1, 0])
            adder.add_first(dm_env.restart(np.float32([0])))
    assert caplog.messages == ["dropped 2 steps of an unfinished rollout of 3"]
    assert len(store.items(layout)) == 1


# Saving and restoring.


def make_calls() -> list[Callable[[RolloutAdder], None]]:
    """Three episodes, of 3 steps, 1 step that is reset, and 4 steps; each call is one of the loop's."""
    calls: list[Callable[[RolloutAdder], None]] = []

    def first(start: int) -> None:
        calls.append(lambda adder: adder.add_first(dm_env.restart(np.float32([start]))))

    def add(number: int, step_type: dm_env.StepType) -> None:
        timestep = dm_env.TimeStep(step_type, np.float32(number), np.float32(1), np.float32([number + 1]))
        calls.append(lambda adder: adder.add(np.float32([100 + number]), timestep))

    for start, num_steps, ends in ((0, 3, True), (50, 1, False), (70, 4, True)):
        first(start)
        for t in range(num_steps):
            is_last = ends and t == num_steps - 1
            add(start + t, dm_env.StepType.LAST if is_last else dm_env.StepType.MID)
        if not ends:
            calls.append(lambda adder: adder.reset())
    return calls


@pytest.mark.parametrize("length", [1, 3, 4, 8])
def test_a_restored_adder_goes_on_as_the_saved_one_wherever_it_was_saved(
    make_memory_store, scalar_spec, length
):
    layout = layouts.RolloutLayout(scalar_spec, length)
    uninterrupted = make_memory_store(layout.signature)
    calls = make_calls()
    with make_adder(uninterrupted, layout) as adder:
        for call in calls:
            call(adder)
    expected = uninterrupted.items(layout)
    assert len(expected) == 8 // length
    for cut in range(len(calls) + 1):
        before, after = make_memory_store(layout.signature), make_memory_store(layout.signature)
        adder = make_adder(before, layout)
        for call in calls[:cut]:
            call(adder)
        state = checks.through_a_file(adder.save())
        with make_adder(after, layout) as restored:
            restored.restore(state)
            checks.assert_nests_equal(restored.save(), state)
            for call in calls[cut:]:
                call(restored)
        assert_same(before.items(layout) + after.items(layout), expected)
        assert adder.num_inserted + restored.num_inserted == len(expected)


def test_a_state_is_a_copy_on_both_sides(make_memory_store, scalar_spec):
    layout = layouts.RolloutLayout(scalar_spec, 4)
    calls = make_calls()
    saved_store, restored_store = make_memory_store(layout.signature), make_memory_store(layout.signature)
    saved, restored = make_adder(saved_store, layout), make_adder(restored_store, layout)
    for call in calls[:3]:
        call(saved)
    state = saved.save()
    copy = checks.through_a_file(state)
    restored.restore(state)
    for call in calls[3:]:
        call(saved)
    checks.assert_nests_equal(state, copy)
    for tensor in [*state["rows"].values(), *state["observation"].values()]:
        tensor.fill_(-1.0)
    for call in calls[3:]:
        call(restored)
    items = saved_store.items(layout)
    assert_same(restored_store.items(layout), items)
    np.testing.assert_array_equal(items[0].observation[:, 0], [0, 1, 2, 50])

    state = saved.save()
    copy = checks.through_a_file(state)
    for tensor in state["observation"].values():
        tensor.fill_(-1.0)
    checks.assert_nests_equal(saved.save(), copy)


def test_a_restored_adder_writes_to_a_new_server(make_store, scalar_spec, play):
    layout = layouts.RolloutLayout(scalar_spec, 3)
    old, new = make_store(layout.signature), make_store(layout.signature)
    with make_adder(old, layout) as adder:
        play(adder, 0, [1, 2, 3, 4], [1, 1, 1, 0])
        state = adder.save()
    with make_adder(new, layout) as adder:
        adder.restore(state)
        play(adder, 50, [5, 6], [1, 0])
        expected = ([3, 50, 51], [103, 150, 151], [4, 5, 6], [0, 1, 0], [4, 51, 52])
        assert_same(new.items(layout), [rollout(*expected, [0, 1, 0], [1, 0, 1], [6.125, 5, 8.5])])


class OnGPU:
    """A tensor that must be copied to the CPU first, like those that a checkpoint loads to a GPU."""

    def __init__(self, tensor):
        self.cpu = lambda: tensor


def test_a_state_that_was_loaded_to_a_gpu_is_restored(make_memory_store, scalar_spec, play):
    layout = layouts.RolloutLayout(scalar_spec, 3)
    old, *stores = (make_memory_store(layout.signature) for _ in range(3))
    with make_adder(old, layout) as adder:
        play(adder, 0, [1, 2, 3, 4], [1, 1, 1, 0])
        state = adder.save()
    parts = ("rows", "observation")
    assert all(state[part] for part in parts)
    on_gpu = state | {part: {name: OnGPU(x) for name, x in state[part].items()} for part in parts}
    items = []
    for store, each in zip(stores, (state, on_gpu), strict=True):
        with make_adder(store, layout) as adder:
            adder.restore(each)
            play(adder, 50, [5, 6], [1, 0])
            items.append(store.items(layout))
    assert_same(*items)


def test_an_episode_that_cannot_go_on_after_a_restore_is_ended_by_reset(make_memory_store, scalar_spec, play):
    layout = layouts.RolloutLayout(scalar_spec, 3)
    store = make_memory_store(layout.signature)
    adder = make_adder(store, layout)
    for call in make_calls()[:3]:  # Two steps of an episode.
        call(adder)
    resumed = make_adder(store, layout)
    resumed.restore(adder.save())
    with pytest.raises(ValueError, match="An episode is still open"):
        resumed.add_first(dm_env.restart(np.float32([50])))
    resumed.reset()
    play(resumed, 50, [7], [0])
    (item,) = store.items(layout)
    np.testing.assert_array_equal(item.next_observation[:, 0], [1, 2, 51])
    np.testing.assert_array_equal(item.last, [0, 1, 1])
    np.testing.assert_array_equal(item.return_so_far, [0, 1, 7])


def test_a_state_of_other_rollouts_is_refused(make_memory_store, scalar_spec, play):
    layout = layouts.RolloutLayout(scalar_spec, 3)
    adder = make_adder(make_memory_store(layout.signature), layout)
    play(adder, 0, [1], [0])
    state = adder.save()
    longer = layouts.RolloutLayout(scalar_spec, 4)
    other = layouts.RolloutLayout(scalar_spec, 3, specs.Array((), np.float32))
    for wrong in (longer, other):
        client = make_memory_store(wrong.signature)
        with pytest.raises(
            ValueError, match="`state` must hold rollouts of .* Resume with the configuration"
        ):
            make_adder(client, wrong).restore(state)


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_state_is_restored_into_a_new_adder_alone(make_memory_store, scalar_spec, play, is_closed):
    layout = layouts.RolloutLayout(scalar_spec, 3)
    adder = make_adder(make_memory_store(layout.signature), layout)
    state = adder.save()
    if is_closed:
        adder.close()
    else:
        play(adder, 0, [1], [0])
    with pytest.raises(ValueError, match="must be restored into a new adder, got a used one"):
        adder.restore(state)


# A queue, as on-policy agents use it.

NUM_ENVIRONMENTS = 3


@pytest.fixture(params=["memory", pytest.param("reverb", marks=pytest.mark.reverb)])
def make_queue(request) -> Iterator[Callable[..., replay.ReplayClient]]:
    """Makes a client of a server with one queue of rollouts, on each backend."""
    if request.param == "reverb" and importlib.util.find_spec("reverb") is None:
        pytest.skip("Reverb is not installed")
    opened: list[Any] = []

    def make(layout: layouts.RolloutLayout, capacity: int, timeout_seconds: float) -> replay.ReplayClient:
        queue = replay.TableConfig(
            name="table",
            signature=layout.signature,
            max_size=capacity,
            rate_limiter=replay.Queue(capacity),
            sampler=replay.Fifo(),
            max_times_sampled=1,
        )
        server = backends.make_server([queue], request.param, seed=0)
        client = server.client(timeout_seconds)
        opened.extend([server, client])
        return client

    yield make
    for resource in reversed(opened):
        resource.close()


class Stream:
    """Endless episodes of one environment; each observation is the number of the step it is before."""

    def __init__(self, adder: RolloutAdder, episode_length: int, start: int) -> None:
        self.adder = adder
        self.episode_length = episode_length
        self.start = start
        self.num_steps = 0

    def step(self) -> None:
        number = self.start + self.num_steps
        place = self.num_steps % self.episode_length
        if place == 0:
            self.adder.add_first(dm_env.restart(np.float32([number])))
        self.num_steps += 1
        step_type = dm_env.StepType.LAST if place + 1 == self.episode_length else dm_env.StepType.MID
        timestep = dm_env.TimeStep(step_type, np.float32(1), np.float32(1), np.float32([number + 1]))
        self.adder.add(np.float32([number]), timestep)


def unpack(layout: layouts.RolloutLayout, fields: dict[str, np.ndarray]) -> types.Rollout:
    return layout.unpack({name: torch.from_numpy(rows) for name, rows in fields.items()})


def test_one_thread_writes_and_learns_in_turn_and_each_rollout_is_learned_from_once(make_queue, scalar_spec):
    length = 5
    layout = layouts.RolloutLayout(scalar_spec, length)
    client = make_queue(layout, NUM_ENVIRONMENTS, timeout_seconds=5.0)
    streams = [
        Stream(RolloutAdder(client=client, table="table", layout=layout, discount=GAMMA), 3 + e, 1000 * e)
        for e in range(NUM_ENVIRONMENTS)
    ]
    with client.sampler("table") as sampler:
        for update in range(50):
            for _ in range(length):
                for stream in streams:
                    stream.step()
            batch = unpack(layout, sampler.sample_batch(NUM_ENVIRONMENTS, timeout_seconds=5.0)[1])
            # The steps since the last update, all of them, those of each environment in its column.
            starts = torch.tensor([1000.0 * e + length * update for e in range(NUM_ENVIRONMENTS)])
            assert torch.equal(batch.observation[..., 0], starts + torch.arange(5.0)[:, None])
            assert torch.equal(batch.next_observation, batch.observation + 1)
            assert torch.equal(batch.action, batch.observation)
        info = client.table_info("table")
    assert (info.size, info.inserted, info.sampled) == (0, 150, 150)
    for stream in streams:
        assert stream.adder.num_inserted == 50
        stream.adder.close()


def test_a_writer_that_goes_on_waits_for_the_learner(make_queue, scalar_spec):
    layout = layouts.RolloutLayout(scalar_spec, 4)
    client = make_queue(layout, 2, timeout_seconds=20.0)
    num_items = 12

    def write() -> None:
        with RolloutAdder(client=client, table="table", layout=layout, discount=GAMMA) as adder:
            stream = Stream(adder, 3, 0)
            for _ in range(4 * num_items):
                stream.step()
                written.append(adder.num_inserted)

    written: list[int] = [0]
    writer = threading.Thread(target=write)
    writer.start()
    with client.sampler("table") as sampler:
        for update in range(num_items):
            batch = unpack(layout, sampler.sample_batch(1, timeout_seconds=20.0)[1])
            assert batch.observation.flatten().tolist() == [4 * update + t for t in range(4)]
            # Two are stored, and the writer stands at one that it cannot insert yet.
            assert written[-1] <= update + 1 + 2 + 1
    writer.join(20.0)
    assert not writer.is_alive()


def test_where_the_queue_is_full_for_too_long_add_says_so_and_loses_nothing(make_queue, scalar_spec):
    layout = layouts.RolloutLayout(scalar_spec, 2)
    client = make_queue(layout, 1, timeout_seconds=0.2)
    adder = RolloutAdder(client=client, table="table", layout=layout, discount=GAMMA)
    stream = Stream(adder, 4, 0)
    found = []
    with client.sampler("table") as sampler:
        for _ in range(3):
            stream.step()
        with pytest.raises(replay.ReplayTimeout, match="Table 'table' holds inserts back: 1 inserted"):
            stream.step()  # It is the last of its episode too, which stays open.
        with pytest.raises(ValueError, match="The episode has ended. Call `reset`"):
            adder.add(np.float32([0]), dm_env.transition(np.float32(0), np.float32([0]), np.float32(1)))
        restored = RolloutAdder(client=client, table="table", layout=layout, discount=GAMMA)
        restored.restore(adder.save())
        restored.add_first(dm_env.restart(np.float32([0])))
        restored.close()
        with pytest.raises(replay.ReplayTimeout, match="holds inserts back"):
            adder.reset()
        found.append(unpack(layout, sampler.sample_batch(1, timeout_seconds=5.0)[1]))
        adder.reset()
        found.append(unpack(layout, sampler.sample_batch(1, timeout_seconds=5.0)[1]))
        for _ in range(2):
            stream.step()
        found.append(unpack(layout, sampler.sample_batch(1, timeout_seconds=5.0)[1]))
    adder.close()
    steps = [batch.observation.flatten().tolist() for batch in found]
    assert steps == [[0, 1], [2, 3], [4, 5]]
