"""Several tables from one adder, and what priority an item gets in each."""

import dm_env
import numpy as np
import pytest

from minerva_acme import types
from minerva_acme.adders import (
    ContinuingSequenceAdder,
    EpisodeAdder,
    NStepTransitionAdder,
    RolloutAdder,
    SequenceAdder,
)
from minerva_acme.replay import base as replay
from minerva_acme.replay import layouts

TRAJECTORIES = {
    "sequence": lambda **kwargs: SequenceAdder(**kwargs, period=1),
    "continuing": lambda **kwargs: ContinuingSequenceAdder(**kwargs, period=1),
    "episode": lambda **kwargs: EpisodeAdder(**kwargs),
    "short": lambda **kwargs: SequenceAdder(**kwargs, period=1),  # with a layout of variable length
}


def make_transition_adder(**kwargs):
    return NStepTransitionAdder(**kwargs, n_step=2, discount=0.5)


def make_rollout_adder(**kwargs):
    return RolloutAdder(**kwargs, discount=0.5)


@pytest.fixture(params=[*TRAJECTORIES, "n_step", "rollout"])
def kind(request, scalar_spec):
    """A layout, and a function that makes an adder for it."""
    if request.param == "n_step":
        return layouts.TransitionLayout(scalar_spec), make_transition_adder
    if request.param == "rollout":
        return layouts.RolloutLayout(scalar_spec, 1), make_rollout_adder
    # Longer sequences across episodes would wait for the next one.
    length = 1 if request.param == "continuing" else 3
    is_short = request.param == "short"
    layout = layouts.TrajectoryLayout(scalar_spec, length, variable_length=is_short)
    return layout, TRAJECTORIES[request.param]


def test_without_a_priority_every_item_has_1(make_memory_store, kind, play):
    layout, make_adder = kind
    store = make_memory_store(layout.signature, ("only",))
    with make_adder(client=store.client, table="only", layout=layout) as adder:
        play(adder, 0, [1, 2, 3], [1, 1, 0])
        play(adder, 50, [4], [1], end="reset")
    _, priorities = store.items_and_priorities(layout, "only")
    assert priorities
    assert set(priorities) == {1.0}


def total_reward(item):
    return 10.0 + float(np.sum(item.reward))


def test_each_table_gets_every_item_with_a_priority_of_its_own(make_store, kind, play):
    layout, make_adder = kind
    store = make_store(layout.signature, ("uniform", "by reward"))
    tables = {"uniform": 2.5, "by reward": total_reward}
    with make_adder(client=store.client, table=tables, layout=layout) as adder:
        play(adder, 0, [1, 2, 3], [1, 1, 0])
        play(adder, 50, [4], [1], end="reset")
    uniform, constants = store.items_and_priorities(layout, "uniform")
    by_reward, priorities = store.items_and_priorities(layout, "by reward")
    np.testing.assert_equal(uniform, by_reward)
    assert constants == [2.5] * len(uniform)
    assert priorities == [total_reward(item) for item in by_reward]
    assert adder.num_inserted == 2 * len(uniform) > 0


@pytest.mark.parametrize("adder_name", [*TRAJECTORIES, "n_step"])
def test_a_priority_function_is_given_the_item_that_a_learner_gets(
    make_memory_store, rich_spec, rich_episode, extras_spec, adder_name
):
    seen = []

    def priority(item):
        seen.append(item)
        return 1.0

    if adder_name == "n_step":
        layout, make_adder = layouts.TransitionLayout(rich_spec, extras_spec), make_transition_adder
        expected = types.Transition
    else:
        is_short = adder_name == "short"
        layout = layouts.TrajectoryLayout(rich_spec, 4, extras_spec, variable_length=is_short)
        make_adder, expected = TRAJECTORIES[adder_name], types.Trajectory
    store = make_memory_store(layout.signature)
    with make_adder(client=store.client, table="table", layout=layout, priority=priority) as adder:
        rich_episode(num_steps=4, final_discount=0.0).play(adder)
    items = store.items(layout)
    assert len(items) > 0
    assert all(type(item) is expected for item in seen)
    np.testing.assert_equal(seen, items)


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_a_constant_that_is_no_priority_is_refused_at_construction(make_memory_store, kind, bad):
    layout, make_adder = kind
    client = make_memory_store(layout.signature).client
    with pytest.raises(ValueError, match=f"`priority` must be finite and >= 0, got {bad} for table 'b'"):
        make_adder(client=client, table={"a": 1.0, "b": bad}, layout=layout)


def test_an_adder_for_no_table_is_refused(make_memory_store, kind):
    layout, make_adder = kind
    client = make_memory_store(layout.signature).client
    with pytest.raises(ValueError, match="`table` must be a table's name, or names and priorities, got none"):
        make_adder(client=client, table={}, layout=layout)


@pytest.mark.parametrize("failing_call", [0, 1, 2])
def test_where_a_function_returns_no_priority_no_item_is_lost(make_memory_store, kind, play, failing_call):
    layout, make_adder = kind
    untouched, store = make_memory_store(layout.signature), make_memory_store(layout.signature)
    with make_adder(client=untouched.client, table="table", layout=layout) as adder:
        play(adder, 0, [1, 2, 3], [1, 1, 0])
    priorities = [1.0] * 9
    priorities[failing_call] = float("nan")
    adder = make_adder(
        client=store.client, table="table", layout=layout, priority=lambda _: priorities.pop(0)
    )
    adder.add_first(dm_env.restart(np.float32([0])))
    refusals = 0
    for t, discount in enumerate([1, 1, 0]):
        step_type = dm_env.StepType.LAST if t == 2 else dm_env.StepType.MID
        timestep = dm_env.TimeStep(step_type, np.float32(t + 1), np.float32(discount), np.float32([t + 1]))
        try:
            adder.add(np.float32([100 + t]), timestep)
        except ValueError as refusal:
            refusals += 1
            assert "`priority` must be finite and >= 0, got nan for table 'table'" in str(refusal)
            try:
                adder.add(np.float32([100 + t]), timestep)
            except ValueError as ended:
                assert "The episode has ended. Call `reset`, which writes its remaining items" in str(ended)
                adder.reset()
    adder.close()
    num_calls = 1 if make_adder is TRAJECTORIES["episode"] else 3
    assert refusals == (1 if failing_call < num_calls else 0)
    expected, found = untouched.read(), store.read()
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name])


def test_a_table_that_holds_inserts_back_keeps_no_item_from_the_others(make_memory_store, kind):
    layout, make_adder = kind
    store = make_memory_store(layout.signature, ("a", "b"))
    adder = make_adder(client=store.client, table={"a": 1.0, "b": 1.0}, layout=layout)
    adder.add_first(dm_env.restart(np.float32([0])))
    (writer,) = store.client.writers
    create_item = writer.create_item

    def create_item_late(table, *args):
        create_item(table, *args)  # It stays pending, as the contract says.
        if table == "a":
            raise replay.ReplayTimeout("table 'a' holds inserts back")

    writer.create_item = create_item_late
    last = dm_env.TimeStep(dm_env.StepType.LAST, np.float32(1), np.float32(1), np.float32([1]))
    timeouts = 0
    for call in (lambda: adder.add(np.float32([100]), last), adder.close):
        try:
            call()
        except replay.ReplayTimeout:
            timeouts += 1
    assert timeouts == 1
    assert adder.num_inserted == 2
    assert [len(store.items(layout, table)) for table in ("a", "b")] == [1, 1]
