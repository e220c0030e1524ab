"""The recurrent state of each sequence, and the burn-in before its first step that is learned from."""

from typing import Any, NamedTuple

import dm_env
import numpy as np
import pytest

from minerva_acme import adders, specs
from minerva_acme.replay import layouts

pytestmark = pytest.mark.promise("With a memory, every step is behind some burn-in")

STATE_SPEC = (specs.Array((2,), np.float32), specs.Array((), np.float32))


class Extras(NamedTuple):
    state: Any = ()
    noise: Any = ()


def make_layout(scalar_spec, length, burn_in=0, **settings):
    extras = Extras(noise=specs.Array((), np.float32))
    return layouts.TrajectoryLayout(
        scalar_spec, length, extras, burn_in=burn_in, state_spec=STATE_SPEC, **settings
    )


def state(observation):
    """Any state that says before which observation it was: 0 at the beginning of an episode at 0, 100, ..."""
    t = np.float32(observation)
    return np.array([t, -t], np.float32), np.float32(t + 0.5)


def play(adder, start, num_steps, end="last"):
    adder.add_first(dm_env.restart(np.float32([start])))
    for t in range(num_steps):
        is_last = t == num_steps - 1 and end == "last"
        timestep = (dm_env.termination if is_last else dm_env.transition)(
            np.float32(1), np.float32([start + t + 1])
        )
        discount = np.float32(0 if is_last else 1)
        extras = Extras(state(start + t), np.float32(start + t))
        adder.add(np.float32([start + t]), timestep._replace(discount=discount), extras)
    if end == "reset":
        adder.reset()


def first_states(items):
    """What each item says of its state: before which observation it was; None for a state of 0."""
    found = []
    for item in items:
        vector, number = item.state
        is_none = not (vector.any() or number)
        assert is_none or (vector[1], number) == (-vector[0], vector[0] + 0.5)
        found.append(None if is_none else int(vector[0]))
    return found


def summary(items):
    return [(item.observation[:, 0].tolist(), item.mask.tolist()) for item in items]


ENDS = {
    "every start": (adders.pad_every_start, [0, 2, 4], False),
    "short": (adders.write_short, [0, 2, 4], True),
    "shifted back": (adders.shift_back, [0, 2, 3], False),
    "dropped": (adders.drop_short, [0, 2], False),
}


@pytest.mark.parametrize(("at_end", "starts", "variable"), ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("end", ["last", "reset"])
def test_each_sequence_has_the_state_before_its_first_row(
    make_store, scalar_spec, at_end, starts, variable, end
):
    layout = make_layout(scalar_spec, 3, variable_length=variable)
    store = make_store(layout.signature)
    adder = adders.SequenceAdder(client=store.client, table="table", layout=layout, period=2, at_end=at_end)
    with adder:
        for start in (100, 200):  # 6 steps: the last sequence of a `write_short` has 2
            play(adder, start, 6, end)
        items = store.items(layout)
    assert first_states(items) == [begin + start for begin in (100, 200) for start in starts]
    assert first_states(items) == [item.observation[0, 0] for item in items]
    for item in items:  # other extras are stored with every step
        happened = item.mask > 0
        assert (item.extras.noise == item.action[:, 0]).all() and item.extras.state == ()
        assert (item.extras.noise[happened] == item.observation[:-1, 0][happened]).all()


def test_a_whole_episode_has_the_state_that_was_recorded_at_its_first_step(make_store, scalar_spec):
    layout = make_layout(scalar_spec, 4)
    store = make_store(layout.signature)
    with adders.EpisodeAdder(client=store.client, table="table", layout=layout) as adder:
        for start in (100, 200):
            play(adder, start, 3)
        items = store.items(layout)
    assert first_states(items) == [100, 200]


@pytest.mark.parametrize("frame_stack", [1, 3])
def test_burn_in_comes_before_the_first_step_and_is_padded_where_the_episode_begins(
    make_store, scalar_spec, frame_stack
):
    spec = scalar_spec
    if frame_stack > 1:
        spec = spec._replace(observations=specs.Array((frame_stack, 1), np.float32))
    layout = make_layout(spec, 2, burn_in=3, frame_stack=frame_stack)
    assert (layout.sequence_length, layout.burn_in) == (2, 3)
    store = make_store(layout.signature)
    with adders.SequenceAdder(client=store.client, table="table", layout=layout, period=2) as adder:
        for start, num_steps in ((100, 7), (200, 1)):
            frames = [start] * frame_stack
            stacked = frame_stack > 1

            def observe(frames=frames, stacked=stacked):
                return np.float32(frames)[:, None] if stacked else np.float32([frames[-1]])

            adder.add_first(dm_env.restart(observe()))
            for t in range(num_steps):
                frames[:] = [*frames[1:], start + t + 1]
                make = dm_env.termination if t == num_steps - 1 else dm_env.transition
                timestep = make(np.float32(1), observe())._replace(discount=np.float32(1))
                adder.add(np.float32([start + t]), timestep, Extras(state(start + t), np.float32(start + t)))
        items = store.items(layout)
    newest = [item.observation.reshape(len(item.observation), -1)[:, -1].tolist() for item in items]
    assert list(zip(newest, [item.mask.tolist() for item in items], strict=True)) == [
        ([100, 100, 100, 100, 101, 102], [0, 0, 0, 1, 1]),
        ([100, 100, 101, 102, 103, 104], [0, 1, 1, 1, 1]),
        ([101, 102, 103, 104, 105, 106], [1, 1, 1, 1, 1]),
        ([103, 104, 105, 106, 107, 107], [1, 1, 1, 1, 0]),
        ([200, 200, 200, 200, 201, 201], [0, 0, 0, 1, 0]),
    ]
    # Where the burn-in begins before the episode, so does the state.
    assert first_states(items) == [None, None, 101, 103, None]
    if frame_stack > 1:
        assert items[2].observation[0, :, 0].tolist() == [100, 100, 101]


@pytest.mark.parametrize("num_steps", [1, 2, 3, 4, 7, 11])
@pytest.mark.parametrize("at_end", [adders.pad_every_start, adders.write_short, adders.shift_back])
def test_every_step_of_an_episode_is_behind_the_burn_in_of_a_sequence(
    make_memory_store, scalar_spec, num_steps, at_end
):
    layout = make_layout(scalar_spec, 3, burn_in=5, variable_length=at_end is adders.write_short)
    store = make_memory_store(layout.signature)
    with adders.SequenceAdder(
        client=store.client, table="table", layout=layout, period=2, at_end=at_end
    ) as adder:
        play(adder, 100, num_steps)
    learned = set()
    for item in store.items(layout):
        assert item.mask.shape == (8,)
        learned |= set(item.action[5:, 0][item.mask[5:] > 0].tolist())
    assert learned == {100 + t for t in range(num_steps)}


def test_a_continuing_sequence_has_the_state_of_its_first_row_or_none(make_store, scalar_spec):
    layout = make_layout(scalar_spec, 2, burn_in=1)
    store = make_store(layout.signature)
    with adders.ContinuingSequenceAdder(client=store.client, table="table", layout=layout, period=1) as adder:
        play(adder, 100, 2)
        play(adder, 200, 3, "reset")
        adder.flush()
        items = store.items(layout)
    assert summary(items) == [
        ([100, 100, 101, 102], [0, 1, 1]),
        ([100, 101, 102, 200], [1, 1, 0]),
        ([101, 102, 200, 201], [1, 0, 1]),
        ([102, 200, 201, 202], [0, 1, 1]),
        ([200, 201, 202, 203], [1, 1, 1]),
    ]
    assert first_states(items) == [None, 100, 101, None, 200]


def test_a_priority_sees_the_state(make_memory_store, scalar_spec):
    seen = []

    def priority(item):
        seen.append(item)
        return 1.0

    layout = make_layout(scalar_spec, 3, burn_in=2)
    store = make_memory_store(layout.signature)
    with adders.SequenceAdder(
        client=store.client, table="table", layout=layout, period=2, priority=priority
    ) as adder:
        play(adder, 100, 8)
    items = store.items(layout)
    assert first_states(seen) == first_states(items) == [None, 100, 102, 104]


def test_there_is_one_row_of_a_state_for_each_sequence(make_memory_store, scalar_spec):
    layout = make_layout(scalar_spec, 4)
    store = make_memory_store(layout.signature)
    with adders.SequenceAdder(client=store.client, table="table", layout=layout, period=4) as adder:
        play(adder, 100, 12)
        num_items = len(store.items(layout))
    (writer,) = store.client.writers
    assert num_items == 3
    assert writer.num_appended == 13 + 3


def test_extras_without_a_state_are_refused_and_change_nothing(make_memory_store, scalar_spec):
    layout = make_layout(scalar_spec, 2)
    store = make_memory_store(layout.signature)
    with adders.SequenceAdder(client=store.client, table="table", layout=layout, period=1) as adder:
        adder.add_first(dm_env.restart(np.float32([0])))
        step = np.float32([0]), dm_env.transition(np.float32(1), np.float32([1]), np.float32(1))
        with pytest.raises(ValueError, match="`extras` must be a named tuple with .* `state`.*got tuple"):
            adder.add(*step)
        with pytest.raises(ValueError, match=r"`state\[1\]`"):
            adder.add(*step, Extras((np.zeros(2, np.float32), np.float64(0)), np.float32(0)))
        (writer,) = store.client.writers
        assert writer.num_appended == 1


def test_a_burn_in_below_0_is_refused(scalar_spec):
    with pytest.raises(ValueError, match="`burn_in` must be >= 0 transitions, got -1."):
        layouts.TrajectoryLayout(scalar_spec, 2, burn_in=-1)
