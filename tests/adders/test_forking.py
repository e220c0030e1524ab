"""Several adders fed the same, and extras dropped on purpose."""

from typing import NamedTuple

import dm_env
import numpy as np
import pytest

from minerva_acme import specs
from minerva_acme.adders import (
    EpisodeAdder,
    ExtrasFilter,
    ForkingAdder,
    NStepTransitionAdder,
    RolloutAdder,
    SequenceAdder,
)
from minerva_acme.datasets import RecordingAdder
from minerva_acme.replay import base as replay
from minerva_acme.replay import layouts

FLOAT = specs.Array((), np.float32)


def n_step(store, layout):
    return NStepTransitionAdder(client=store.client, table="table", layout=layout, n_step=1, discount=0.5)


def step(observation, step_type=dm_env.StepType.MID):
    return dm_env.TimeStep(step_type, np.float32(1), np.float32(1), np.float32([observation]))


@pytest.mark.parametrize("final_discount", [0.0, 1.0], ids=["termination", "truncation"])
def test_each_adder_writes_what_it_writes_alone(make_store, scalar_spec, play, final_discount):
    transitions, sequences = layouts.TransitionLayout(scalar_spec), layouts.TrajectoryLayout(scalar_spec, 2)
    stores = [make_store(layout.signature) for layout in (transitions, sequences)]
    alone = [make_store(layout.signature) for layout in (transitions, sequences)]

    def make_adders(stores):
        return [
            n_step(stores[0], transitions),
            SequenceAdder(client=stores[1].client, table="table", layout=sequences, period=1),
        ]

    with ForkingAdder(make_adders(stores)) as fork:
        play(fork, 0, [1, 2, 3], [1, 1, final_discount])
        play(fork, 50, [4], [final_discount], end="reset")
        fork.flush()
        assert fork.num_inserted == 8
    for adder in make_adders(alone):
        with adder:
            play(adder, 0, [1, 2, 3], [1, 1, final_discount])
            play(adder, 50, [4], [final_discount], end="reset")
    for forked, expected in zip(stores, alone, strict=True):
        found, wanted = forked.read(), expected.read()
        assert found.keys() == wanted.keys()
        for name in wanted:
            np.testing.assert_array_equal(found[name], wanted[name])


def test_what_the_first_adder_refuses_none_has_taken(make_memory_store, scalar_spec, play):
    layout = layouts.TransitionLayout(scalar_spec)
    stores = [make_memory_store(layout.signature) for _ in range(2)]
    with ForkingAdder([n_step(store, layout) for store in stores]) as fork:
        fork.add_first(dm_env.restart(np.float32([0])))
        with pytest.raises(ValueError, match="`action` must be float32"):
            fork.add(np.zeros(1), step(1))
        fork.add(np.float32([100]), step(1, dm_env.StepType.LAST))
    assert [len(store.items(layout)) for store in stores] == [1, 1]


def test_what_a_later_adder_refuses_ends_the_episode_in_all(make_memory_store, scalar_spec, play):
    transitions, episodes = layouts.TransitionLayout(scalar_spec), layouts.TrajectoryLayout(scalar_spec, 1)
    stores = [make_memory_store(layout.signature) for layout in (transitions, episodes)]
    short = EpisodeAdder(client=stores[1].client, table="table", layout=episodes)
    action = np.float32([100])
    with ForkingAdder([n_step(stores[0], transitions), short]) as fork:
        fork.add_first(dm_env.restart(np.float32([0])))
        fork.add(action, step(1))
        with pytest.raises(ValueError, match="at most 1 steps") as error:
            fork.add(action, step(2))
        assert error.value.__notes__ == ["Adder 1 rejected it; the episode is ended in all adders."]
        with pytest.raises(ValueError, match="No episode is open"):
            fork.add(action, step(2))
        play(fork, 50, [4], [0])
    starts = [
        [item.observation.flat[0] for item in store.items(layout)]
        for store, layout in zip(stores, (transitions, episodes), strict=True)
    ]
    assert starts == [[0, 1, 50], [0, 50]]


def test_where_one_table_holds_back_all_adders_get_the_timestep(make_memory_store, scalar_spec):
    layout = layouts.TransitionLayout(scalar_spec)
    stores = [make_memory_store(layout.signature) for _ in range(2)]
    fork = ForkingAdder([n_step(store, layout) for store in stores])
    fork.add_first(dm_env.restart(np.float32([0])))
    (writer,) = stores[0].client.writers
    create_item = writer.create_item

    def create_item_late(*args):
        create_item(*args)  # It stays pending, as the contract says.
        raise replay.ReplayTimeout("the table holds inserts back")

    writer.create_item = create_item_late
    with pytest.raises(replay.ReplayTimeout, match="holds inserts back"):
        fork.add(np.float32([100]), step(1))
    writer.create_item = create_item
    fork.close()
    assert [len(store.items(layout)) for store in stores] == [1, 1]


def test_every_adder_is_closed_though_one_fails(make_memory_store, scalar_spec):
    layout = layouts.TransitionLayout(scalar_spec)
    stores = [make_memory_store(layout.signature) for _ in range(2)]
    fork = ForkingAdder([n_step(store, layout) for store in stores])
    fork.add_first(dm_env.restart(np.float32([0])))

    def fail():
        raise replay.ReplayError("the server is gone")

    stores[0].client.writers[0].flush = fail
    with pytest.raises(replay.ReplayError, match="the server is gone"):
        fork.close()
    assert [store.client.writers[0].closed for store in stores] == [True, True]


def test_a_fork_without_adders_is_refused():
    with pytest.raises(ValueError, match="`adders` must be one adder or more, got none."):
        ForkingAdder([])


class Extras(NamedTuple):
    log_prob: object
    value: object


@pytest.mark.parametrize("make_extras", [dict, Extras], ids=["dict", "named tuple"])
def test_extras_that_are_not_kept_are_dropped(make_store, scalar_spec, make_extras):
    layout = layouts.TransitionLayout(scalar_spec, {"log_prob": FLOAT})
    store = make_store(layout.signature)
    with ExtrasFilter(n_step(store, layout), keep=["log_prob"]) as adder:
        adder.add_first(dm_env.restart(np.float32([0])))
        extras = make_extras(log_prob=np.float32(-2), value=np.float32(7))
        adder.add(np.float32([100]), step(1, dm_env.StepType.LAST), extras)
        adder.flush()
        (item,) = store.items(layout)
        assert adder.num_inserted == 1
    assert item.extras == {"log_prob": -2}


def test_all_extras_can_be_dropped(make_memory_store, scalar_spec):
    layout = layouts.TransitionLayout(scalar_spec)
    store = make_memory_store(layout.signature)
    with ExtrasFilter(n_step(store, layout), keep=[]) as adder:
        adder.add_first(dm_env.restart(np.float32([0])))
        adder.add(np.float32([100]), step(1), {"value": np.float32(7)})
        adder.reset()
    (item,) = store.items(layout)
    assert item.extras == ()


@pytest.mark.parametrize(
    ("extras", "found"), [({"value": np.float32(0)}, r"fields \['value'\]"), ((), "a tuple")]
)
def test_extras_to_keep_that_are_missing_are_refused(make_memory_store, scalar_spec, extras, found):
    layout = layouts.TransitionLayout(scalar_spec, {"log_prob": FLOAT})
    store = make_memory_store(layout.signature)
    with ExtrasFilter(n_step(store, layout), keep=["log_prob"]) as adder:
        adder.add_first(dm_env.restart(np.float32([0])))
        with pytest.raises(ValueError, match=rf"`extras` must have the fields \['log_prob'\], got {found}"):
            adder.add(np.float32([100]), step(1), extras)
        assert adder.num_inserted == 0


# Saving and restoring.


def rollout_adder(store, layout):
    return RolloutAdder(client=store.client, table="table", layout=layout, discount=0.5)


def keep_nothing(adder):
    return ExtrasFilter(adder, keep=[])


def record(adder):
    return RecordingAdder(lambda episode: None, adder)


@pytest.mark.parametrize(
    "wrap", [lambda adder: adder, keep_nothing, record], ids=["bare", "filtered", "recorded"]
)
def test_a_restored_fork_goes_on_with_the_unfinished_rollout(make_memory_store, scalar_spec, play, wrap):
    on_policy, transitions = layouts.RolloutLayout(scalar_spec, 4), layouts.TransitionLayout(scalar_spec)
    stores = [make_memory_store(layout.signature) for layout in (on_policy, transitions)]

    def make_fork(stores):
        return ForkingAdder([wrap(rollout_adder(stores[0], on_policy)), wrap(n_step(stores[1], transitions))])

    interrupted = make_fork(stores)
    play(interrupted, 0, [1, 2, 3], [1, 1, 0])
    state = interrupted.save()
    after = [make_memory_store(layout.signature) for layout in (on_policy, transitions)]
    with make_fork(after) as resumed:
        resumed.restore(state)
        play(resumed, 50, [4, 5], [1, 0])
    (rollout,) = after[0].items(on_policy)
    np.testing.assert_array_equal(rollout.reward, [1, 2, 3, 4])
    assert len(after[1].items(transitions)) == 2  # an adder without a state begins anew


def test_a_state_of_another_fork_is_refused(make_memory_store, scalar_spec):
    layout = layouts.RolloutLayout(scalar_spec, 4)
    stores = [make_memory_store(layout.signature) for _ in range(2)]
    state = ForkingAdder([rollout_adder(store, layout) for store in stores]).save()
    fork = ForkingAdder([rollout_adder(stores[0], layout)])
    with pytest.raises(ValueError, match="for 1 adders, 1 of which have a state, got one for 2, 2 of"):
        fork.restore(state)
