"""These timesteps in, exactly these transitions out."""

import dm_env
import numpy as np
import pytest
import tree
from hypothesis import given, settings
from hypothesis import strategies as st

from minerva_acme import specs, types
from minerva_acme.adders import NStepTransitionAdder
from minerva_acme.replay import base as replay
from minerva_acme.replay import layouts

from .scene import ENDS, LISTS, assert_same, episodes_of

# See `scene`; an item is (observation, action, reward, discount, next_observation).
TABLES = {
    "3 steps": lambda d: dict(
        n_step=3,
        gamma=0.5,
        episodes=[(0, [1, 2, 4, 8], [1, 1, 1, d])],
        items=[
            (0, 100, 1 + 1 + 1, 0.125, 3),
            (1, 101, 2 + 2 + 2, 0.125 * d, 4),
            (2, 102, 4 + 4, 0.25 * d, 4),
            (3, 103, 8, 0.5 * d, 4),
        ],
    ),
    "the environment's discount scales what comes after it": lambda d: dict(
        n_step=2,
        gamma=0.5,
        episodes=[(0, [1, 4, 8], [0.5, 0.25, d])],
        items=[
            (0, 100, 1 + 0.5 * 0.5 * 4, 0.5 * 0.5 * 0.5 * 0.25, 2),
            (1, 101, 4 + 0.5 * 0.25 * 8, 0.5 * 0.25 * 0.5 * d, 3),
            (2, 102, 8, 0.5 * d, 3),
        ],
    ),
    "two episodes, neither reaching into the other": lambda d: dict(
        n_step=2,
        gamma=0.5,
        episodes=[(0, [1, 2], [1, d]), (50, [4, 8], [1, d])],
        items=[
            (0, 100, 2, 0.25 * d, 2),
            (1, 101, 2, 0.5 * d, 2),
            (50, 150, 8, 0.25 * d, 52),
            (51, 151, 8, 0.5 * d, 52),
        ],
    ),
    "a reset before the first step writes nothing": lambda d: dict(
        n_step=2,
        gamma=0.5,
        episodes=[(0, [], [], "reset"), (50, [4], [d])],
        items=[(50, 150, 4, 0.5 * d, 51)],
    ),
    "Acme's start, 3 steps": lambda d: dict(
        n_step=3,
        gamma=0.5,
        shorter_at_start=True,
        episodes=[(0, [1, 2, 4, 8, 16], [1, 1, 1, 1, d])],
        items=[
            (0, 100, 1, 0.5, 1),
            (0, 100, 1 + 1, 0.25, 2),
            (0, 100, 1 + 1 + 1, 0.125, 3),
            (1, 101, 2 + 2 + 2, 0.125, 4),
            (2, 102, 4 + 4 + 4, 0.125 * d, 5),
            (3, 103, 8 + 8, 0.25 * d, 5),
            (4, 104, 16, 0.5 * d, 5),
        ],
    ),
    "Acme's start, a reset before n steps": lambda d: dict(
        n_step=3,
        gamma=0.5,
        shorter_at_start=True,
        episodes=[(0, [1, 2], [1, d], "reset"), (50, [4], [d])],
        items=[
            (0, 100, 1, 0.5, 1),
            (0, 100, 2, 0.25 * d, 2),
            (1, 101, 2, 0.5 * d, 2),
            (50, 150, 4, 0.5 * d, 51),
        ],
    ),
}


def transition(observation, action, reward, discount, next_observation) -> types.Transition:
    return types.Transition(
        observation=np.float32([observation]),
        action=np.float32([action]),
        reward=np.float32(reward),
        discount=np.float32(discount),
        next_observation=np.float32([next_observation]),
    )


@ENDS
@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_timesteps_become_exactly_these_transitions(make_store, scalar_spec, play, table, final_discount):
    table = table(final_discount)
    layout = layouts.TransitionLayout(scalar_spec)
    store = make_store(layout.signature)
    with NStepTransitionAdder(
        client=store.client,
        table="table",
        layout=layout,
        n_step=table["n_step"],
        discount=table["gamma"],
        shorter_at_start=table.get("shorter_at_start", False),
    ) as adder:
        for episode in table["episodes"]:
            play(adder, *episode)
        assert_same(store.items(layout), [transition(*item) for item in table["items"]])
        assert adder.num_inserted == len(table["items"])


def two_step_adder(client, layout):
    return NStepTransitionAdder(client=client, table="table", layout=layout, n_step=2, discount=0.5)


def test_rewards_and_discounts_of_one_structure_are_folded_leaf_by_leaf(make_memory_store, scalar_spec):
    scalar = specs.Array((), np.float32)
    spec = scalar_spec._replace(rewards={"a": scalar, "b": scalar}, discounts={"a": scalar, "b": scalar})
    layout = layouts.TransitionLayout(spec)
    store = make_memory_store(layout.signature)
    x = np.float32([0])
    with two_step_adder(store.client, layout) as adder:
        adder.add_first(dm_env.restart(x))
        for reward_a, reward_b in [(1, 10), (2, 20)]:
            timestep = dm_env.TimeStep(
                dm_env.StepType.MID,
                reward={"a": np.float32(reward_a), "b": np.float32(reward_b)},
                discount={"a": np.float32(1), "b": np.float32(0)},
                observation=x,
            )
            adder.add(x, timestep)
    first = store.items(layout)[0]
    assert first.reward == {"a": 1 + 0.5 * 2, "b": 10}
    assert first.discount == {"a": 0.25, "b": 0}


# (rewards and discounts of an episode of 2 steps, the folded reward and discount of its first item), n = 2.
BROADCASTS = {
    "a vector and a scalar": lambda d: dict(
        rewards=[[1, 10], [2, 20]], discounts=[1, d], reward=[1 + 0.5 * 2, 10 + 0.5 * 20], discount=0.25 * d
    ),
    "a scalar and a vector": lambda d: dict(
        rewards=[4, 8],
        discounts=[[1, 0.5], [d, 1]],
        reward=[4 + 0.5 * 8, 4 + 0.25 * 8],
        discount=[0.25 * d, 0.125],
    ),
    "two vectors": lambda d: dict(
        rewards=[[1, 10], [2, 20]],
        discounts=[[1, 0.5], [d, 1]],
        reward=[1 + 0.5 * 2, 10 + 0.25 * 20],
        discount=[0.25 * d, 0.125],
    ),
    "a column and a row": lambda d: dict(
        rewards=[[[1], [10]], [[2], [20]]],
        discounts=[[1, 0], [d, 1]],
        reward=[[1 + 0.5 * 2, 1], [10 + 0.5 * 20, 10]],
        discount=[0.25 * d, 0],
    ),
}


@ENDS
@pytest.mark.parametrize("table", BROADCASTS.values(), ids=BROADCASTS)
def test_rewards_and_discounts_broadcast_against_each_other(make_store, scalar_spec, table, final_discount):
    table = {name: np.float32(value) for name, value in table(final_discount).items()}
    spec = scalar_spec._replace(
        rewards=specs.Array(table["rewards"].shape[1:], np.float32),
        discounts=specs.Array(table["discounts"].shape[1:], np.float32),
    )
    layout = layouts.TransitionLayout(spec)
    store = make_store(layout.signature)
    x = np.float32([0])
    with two_step_adder(store.client, layout) as adder:
        adder.add_first(dm_env.restart(x))
        for t, step_type in enumerate((dm_env.StepType.MID, dm_env.StepType.LAST)):
            adder.add(x, dm_env.TimeStep(step_type, table["rewards"][t], table["discounts"][t], x))
        first, second = store.items(layout)
    np.testing.assert_array_equal(first.reward, table["reward"])
    np.testing.assert_array_equal(first.discount, table["discount"])
    np.testing.assert_array_equal(second.reward, np.broadcast_to(table["rewards"][1], table["reward"].shape))
    np.testing.assert_array_equal(second.discount, 0.5 * table["discounts"][1])


@pytest.mark.parametrize("rewards_are_a_nest", [True, False])
def test_where_one_of_reward_and_discount_is_a_nest_the_other_counts_for_each_leaf(
    make_memory_store, scalar_spec, rewards_are_a_nest
):
    scalar, x = specs.Array((), np.float32), np.float32([0])
    zero, one, two = np.float32(0), np.float32(1), np.float32(2)
    nest = {"a": scalar, "b": scalar}
    if rewards_are_a_nest:
        spec, values = scalar_spec._replace(rewards=nest), ({"a": one, "b": two}, one)
        expected = {"a": 1.5, "b": 3}, 0.25
    else:
        spec, values = scalar_spec._replace(discounts=nest), (one, {"a": one, "b": zero})
        expected = {"a": 1.5, "b": 1}, {"a": 0.25, "b": 0}
    layout = layouts.TransitionLayout(spec)
    store = make_memory_store(layout.signature)
    with two_step_adder(store.client, layout) as adder:
        adder.add_first(dm_env.restart(x))
        for _ in range(2):
            adder.add(x, dm_env.TimeStep(dm_env.StepType.MID, *values, x))
    first = store.items(layout)[0]
    assert (first.reward, first.discount) == expected


def test_integer_rewards_are_folded_to_floats(make_memory_store, scalar_spec):
    layout = layouts.TransitionLayout(scalar_spec._replace(rewards=specs.Array((), np.int32)))
    store = make_memory_store(layout.signature)
    x = np.float32([0])
    with two_step_adder(store.client, layout) as adder:
        adder.add_first(dm_env.restart(x))
        for reward in (1, 3):
            adder.add(x, dm_env.transition(np.int32(reward), x, discount=np.float32(1)))
    np.testing.assert_array_equal([item.reward for item in store.items(layout)], np.float32([2.5, 3]))


def test_an_image_is_stored_once_for_all_transitions(make_memory_store, rich_spec, rich_episode, extras_spec):
    layout = layouts.TransitionLayout(rich_spec, extras_spec)
    store = make_memory_store(layout.signature)
    adder = NStepTransitionAdder(client=store.client, table="table", layout=layout, n_step=2, discount=0.5)
    o, a, r, d, e = rich_episode(num_steps=3, final_discount=1.0)
    adder.add_first(dm_env.restart(o[0]))
    for t in range(3):
        adder.add(a[t], dm_env.TimeStep(dm_env.StepType.MID, r[t], d[t], o[t + 1]), e[t])
    (writer,) = store.client.writers
    assert len(writer.rows["observation/pixels"]) == 4
    assert len(writer.rows["float32"]) == 2
    adder.close()


def test_a_sum_of_rewards_beyond_float32_is_refused_and_changes_nothing(make_memory_store, scalar_spec):
    layout = layouts.TransitionLayout(scalar_spec)
    store = make_memory_store(layout.signature)
    x, one = np.float32([0]), np.float32(1)
    with NStepTransitionAdder(
        client=store.client, table="table", layout=layout, n_step=2, discount=1.0
    ) as adder:
        adder.add_first(dm_env.restart(x))
        adder.add(x, dm_env.transition(np.float32(9e14), x, discount=one))
        with pytest.raises(ValueError, match=r"sum to .* beyond 1e\+15. Clip them"):
            adder.add(x, dm_env.transition(np.float32(9e14), x, discount=one))
        adder.add(x, dm_env.transition(one, x, discount=one))
    np.testing.assert_array_equal([item.reward for item in store.items(layout)], np.float32([9e14, 1]))


@pytest.mark.parametrize("failing_item", range(4))
def test_no_item_at_acmes_start_is_lost_where_the_writer_runs_out_of_time(
    make_memory_store, scalar_spec, play, failing_item
):
    layout = layouts.TransitionLayout(scalar_spec)
    untouched, store = make_memory_store(layout.signature), make_memory_store(layout.signature)

    def make_adder(client):
        return NStepTransitionAdder(
            client=client, table="table", layout=layout, n_step=2, discount=0.5, shorter_at_start=True
        )

    with make_adder(untouched.client) as adder:
        play(adder, 0, [1, 2, 4], [1, 1, 0])
    adder = make_adder(store.client)
    adder.add_first(dm_env.restart(np.float32([0])))
    (writer,) = store.client.writers
    create_item = writer.create_item

    def create_item_late(*args):
        create_item(*args)  # It stays pending, as the contract says.
        if len(writer.items) == failing_item + 1:
            raise replay.ReplayTimeout("the table holds inserts back")

    writer.create_item = create_item_late
    timeouts = 0
    for t, (reward, discount) in enumerate([(1, 1), (2, 1), (4, 0)]):
        step_type = dm_env.StepType.LAST if t == 2 else dm_env.StepType.MID
        timestep = dm_env.TimeStep(step_type, np.float32(reward), np.float32(discount), np.float32([t + 1]))
        try:
            adder.add(np.float32([100 + t]), timestep)
        except replay.ReplayTimeout:
            timeouts += 1
            if t == 2:
                with pytest.raises(ValueError, match="The episode has ended. Call `reset`"):
                    adder.add(np.float32([100 + t]), timestep)
    adder.reset()
    assert timeouts == 1
    assert_same(store.items(layout), untouched.items(layout))


def reference(n_step: int, gamma: float, at_start: bool, episodes: list) -> list[types.Transition]:
    """The items by a plain loop over steps."""
    items = []
    for start, rewards, discounts, _ in episodes:
        num_steps = len(rewards)
        spans = [(first, min(first + n_step, num_steps)) for first in range(num_steps)]
        if at_start and spans:
            spans = [(0, end) for end in range(1, spans[0][1])] + spans
        for first, end in spans:
            reward = 0.0
            for k in range(first, end):
                factor = 1.0
                for j in range(first, k):
                    factor *= gamma * discounts[j]
                reward += factor * rewards[k]
            discount = 1.0
            for j in range(first, end):
                discount *= gamma * discounts[j]
            items.append(transition(start + first, start + 100 + first, reward, discount, start + end))
    return items


@settings(max_examples=50, deadline=None)
@given(
    n_step=st.integers(1, 6),
    gamma=st.floats(0, 1),
    at_start=st.booleans(),
    lists=LISTS,
)
def test_any_episodes_become_what_a_plain_loop_says(
    make_memory_store, scalar_spec, play, n_step, gamma, at_start, lists
):
    episodes = episodes_of(lists)
    layout = layouts.TransitionLayout(scalar_spec)
    store = make_memory_store(layout.signature)
    with NStepTransitionAdder(
        client=store.client,
        table="table",
        layout=layout,
        n_step=n_step,
        discount=gamma,
        shorter_at_start=at_start,
    ) as adder:
        for episode in episodes:
            play(adder, *episode)
    expected = reference(n_step, gamma, at_start, episodes)
    items = store.items(layout)
    assert len(items) == len(expected)
    for item, wanted in zip(items, expected, strict=True):
        tree.map_structure(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-6), item, wanted)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_step": 0}, "`n_step` must be >= 1, got 0."),
        ({"discount": 1.5}, r"`discount` must be in \[0, 1\], got 1.5."),
        ({"discount": -0.1}, r"`discount` must be in \[0, 1\], got -0.1."),
        ({"priority": -1.0}, "`priority` must be finite and >= 0, got -1.0."),
    ],
)
def test_a_number_out_of_range_is_refused(make_memory_store, scalar_spec, changes, message):
    layout = layouts.TransitionLayout(scalar_spec)
    client = make_memory_store(layout.signature).client
    arguments = {"client": client, "table": "table", "layout": layout, "n_step": 2, "discount": 0.9}
    with pytest.raises(ValueError, match=message):
        NStepTransitionAdder(**{**arguments, **changes})
