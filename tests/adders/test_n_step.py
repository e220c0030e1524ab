"""These timesteps in, exactly these transitions out."""

import dm_env
import numpy as np
import pytest
import tree
from hypothesis import given, settings
from hypothesis import strategies as st

from minerva_acme import specs, types
from minerva_acme.adders import NStepTransitionAdder
from minerva_acme.replay import layouts

# An episode is (start, rewards, discounts[, end]): its observations are start, start + 1, ..., its
# actions start + 100, ...; an item is (observation, action, reward, discount, next_observation).
TABLES = {
    "1 step, a terminated episode": dict(
        n_step=1,
        gamma=0.5,
        episodes=[(0, [1, 2, 4], [1, 1, 0])],
        items=[(0, 100, 1, 0.5, 1), (1, 101, 2, 0.5, 2), (2, 102, 4, 0, 3)],
    ),
    "1 step, a truncated episode": dict(
        n_step=1,
        gamma=0.5,
        episodes=[(0, [1, 2, 4], [1, 1, 1])],
        items=[(0, 100, 1, 0.5, 1), (1, 101, 2, 0.5, 2), (2, 102, 4, 0.5, 3)],
    ),
    "3 steps, a terminated episode": dict(
        n_step=3,
        gamma=0.5,
        episodes=[(0, [1, 2, 4, 8], [1, 1, 1, 0])],
        items=[
            (0, 100, 1 + 1 + 1, 0.125, 3),
            (1, 101, 2 + 2 + 2, 0, 4),
            (2, 102, 4 + 4, 0, 4),
            (3, 103, 8, 0, 4),
        ],
    ),
    "3 steps, a truncated episode": dict(
        n_step=3,
        gamma=0.5,
        episodes=[(0, [1, 2, 4, 8], [1, 1, 1, 1])],
        items=[
            (0, 100, 1 + 1 + 1, 0.125, 3),
            (1, 101, 2 + 2 + 2, 0.125, 4),
            (2, 102, 4 + 4, 0.25, 4),
            (3, 103, 8, 0.5, 4),
        ],
    ),
    "3 steps, an episode of 3": dict(
        n_step=3,
        gamma=0.5,
        episodes=[(0, [1, 2, 4], [1, 1, 1])],
        items=[(0, 100, 3, 0.125, 3), (1, 101, 4, 0.25, 3), (2, 102, 4, 0.5, 3)],
    ),
    "3 steps, a terminated episode of 2": dict(
        n_step=3,
        gamma=0.5,
        episodes=[(0, [1, 2], [1, 0])],
        items=[(0, 100, 2, 0, 2), (1, 101, 2, 0, 2)],
    ),
    "3 steps, a truncated episode of 2": dict(
        n_step=3,
        gamma=0.5,
        episodes=[(0, [1, 2], [1, 1])],
        items=[(0, 100, 2, 0.25, 2), (1, 101, 2, 0.5, 2)],
    ),
    "3 steps, an episode of 1": dict(
        n_step=3, gamma=0.5, episodes=[(0, [1], [1])], items=[(0, 100, 1, 0.5, 1)]
    ),
    "the environment's discount scales what comes after it": dict(
        n_step=2,
        gamma=0.5,
        episodes=[(0, [1, 4, 8], [0.5, 0.25, 1])],
        items=[
            (0, 100, 1 + 0.5 * 0.5 * 4, 0.5 * 0.5 * 0.5 * 0.25, 2),
            (1, 101, 4 + 0.5 * 0.25 * 8, 0.5 * 0.25 * 0.5, 3),
            (2, 102, 8, 0.5, 3),
        ],
    ),
    "a discount of 0 within an episode cuts the sum there": dict(
        n_step=3,
        gamma=1.0,
        episodes=[(0, [1, 2, 4], [1, 0, 1])],
        items=[(0, 100, 3, 0, 3), (1, 101, 2, 0, 3), (2, 102, 4, 1, 3)],
    ),
    "gamma 0": dict(
        n_step=2, gamma=0.0, episodes=[(0, [1, 2], [1, 1])], items=[(0, 100, 1, 0, 2), (1, 101, 2, 0, 2)]
    ),
    "two episodes, neither reaching into the other": dict(
        n_step=2,
        gamma=0.5,
        episodes=[(0, [1, 2], [1, 0]), (50, [4, 8], [1, 1])],
        items=[(0, 100, 2, 0, 2), (1, 101, 2, 0, 2), (50, 150, 8, 0.25, 52), (51, 151, 8, 0.5, 52)],
    ),
    "a reset in the middle is a truncation": dict(
        n_step=3,
        gamma=0.5,
        episodes=[(0, [1, 2], [1, 1], "reset"), (50, [4], [0])],
        items=[(0, 100, 2, 0.25, 2), (1, 101, 2, 0.5, 2), (50, 150, 4, 0, 51)],
    ),
    "a reset before the first step writes nothing": dict(
        n_step=2,
        gamma=0.5,
        episodes=[(0, [], [], "reset"), (50, [4], [0])],
        items=[(50, 150, 4, 0, 51)],
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


def assert_same(items: list[types.Transition], expected: list[types.Transition]) -> None:
    assert len(items) == len(expected)
    for item, wanted in zip(items, expected, strict=True):
        tree.map_structure(np.testing.assert_array_equal, item, wanted)
        assert [leaf.dtype for leaf in tree.flatten(item)] == [leaf.dtype for leaf in tree.flatten(wanted)]


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_timesteps_become_exactly_these_transitions(make_store, scalar_spec, play, table):
    layout = layouts.TransitionLayout(scalar_spec)
    store = make_store(layout.signature)
    with NStepTransitionAdder(
        client=store.client, table="table", layout=layout, n_step=table["n_step"], discount=table["gamma"]
    ) as adder:
        for episode in table["episodes"]:
            play(adder, *episode)
        assert_same(store.items(layout), [transition(*item) for item in table["items"]])
        assert adder.num_inserted == len(table["items"])


@pytest.mark.parametrize("final_discount", [0.0, 1.0], ids=["termination", "truncation"])
def test_every_kind_of_field_comes_back_as_it_went_in(
    make_store, rich_spec, rich_episode, extras_spec, final_discount
):
    o, a, r, d, e = episode = rich_episode(num_steps=3, final_discount=final_discount)
    layout = layouts.TransitionLayout(rich_spec, extras_spec)
    store = make_store(layout.signature)
    with NStepTransitionAdder(
        client=store.client, table="table", layout=layout, n_step=2, discount=0.5
    ) as adder:
        episode.play(adder)
        items = store.items(layout)

    def over_two(first, second):
        return np.float32(float(first) + 0.5 * float(second))

    assert_same(
        items,
        [
            types.Transition(
                o[0], a[0], tree.map_structure(over_two, r[0], r[1]), np.float32(0.25), o[2], e[0]
            ),
            types.Transition(
                o[1], a[1], tree.map_structure(over_two, r[1], r[2]), np.float32(0.25 * d[2]), o[3], e[1]
            ),
            types.Transition(o[2], a[2], r[2], np.float32(0.5 * d[2]), o[3], e[2]),
        ],
    )


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
        adder.add(x, dm_env.transition(np.float32(3e38), x, discount=one))
        with pytest.raises(ValueError, match="sum to .* too large for float32. Scale them down"):
            adder.add(x, dm_env.transition(np.float32(3e38), x, discount=one))
        adder.add(x, dm_env.transition(one, x, discount=one))
    np.testing.assert_array_equal([item.reward for item in store.items(layout)], np.float32([3e38, 1]))


def reference(n_step: int, gamma: float, episodes: list) -> list[types.Transition]:
    """The items by a plain loop over steps."""
    items = []
    for start, rewards, discounts in episodes:
        num_steps = len(rewards)
        for first in range(num_steps):
            end = min(first + n_step, num_steps)
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


STEPS = st.lists(
    st.tuples(st.floats(-10, 10, width=32), st.sampled_from([0.0, 0.5, 1.0])), min_size=1, max_size=12
)


@settings(max_examples=50, deadline=None)
@given(n_step=st.integers(1, 6), gamma=st.floats(0, 1), lists=st.lists(STEPS, max_size=4))
def test_any_episodes_become_what_a_plain_loop_says(
    make_memory_store, scalar_spec, play, n_step, gamma, lists
):
    episodes = [(50 * i, *zip(*steps, strict=True)) for i, steps in enumerate(lists)]
    layout = layouts.TransitionLayout(scalar_spec)
    store = make_memory_store(layout.signature)
    with NStepTransitionAdder(
        client=store.client, table="table", layout=layout, n_step=n_step, discount=gamma
    ) as adder:
        for episode in episodes:
            play(adder, *episode)
    expected = reference(n_step, gamma, episodes)
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
