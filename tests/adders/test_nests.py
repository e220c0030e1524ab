"""Fields of any nest come back from every adder as a plain loop over the steps says."""

from typing import Any, NamedTuple

import dm_env
import numpy as np
import pytest
import tree
from hypothesis import given, settings
from hypothesis import strategies as st

from minerva_acme import adders, specs, types
from minerva_acme.replay import layouts

MAX_STEPS = 9


class Pair(NamedTuple):
    left: Any
    right: Any


def nests_of(leaves: st.SearchStrategy) -> st.SearchStrategy:
    """Nests with at least one leaf."""
    return st.recursive(
        leaves,
        lambda nests: (
            st.lists(nests, min_size=1, max_size=2)
            | st.tuples(nests, nests)
            | st.builds(Pair, nests, nests)
            | st.dictionaries(st.sampled_from("abc"), nests, min_size=1, max_size=2)
        ),
        max_leaves=4,
    )


SHAPES = st.sampled_from([(), (1,), (3,), (2, 2), (1, 2, 2)])
DTYPES = st.sampled_from([np.float32, np.float64, np.int32, np.uint8, np.bool_])
FIELDS = nests_of(st.builds(specs.Array, SHAPES, DTYPES))
FLOATS = nests_of(st.builds(specs.Array, st.sampled_from([(), (2,)]), st.just(np.float32)))
SCALAR = specs.Array((), np.float32)
SPECS = st.builds(
    specs.EnvironmentSpec, observations=FIELDS, actions=FIELDS, rewards=FLOATS, discounts=st.just(SCALAR)
)
EXTRAS = FIELDS | st.just(())


class Episode(NamedTuple):
    observations: list[Any]
    actions: list[Any]
    rewards: list[Any]
    discounts: list[Any]
    extras: list[Any]
    is_reset: bool

    def play(self, adder) -> None:
        adder.add_first(dm_env.restart(self.observations[0]))
        for t, action in enumerate(self.actions):
            is_last = t + 1 == len(self.actions) and not self.is_reset
            timestep = dm_env.TimeStep(
                dm_env.StepType.LAST if is_last else dm_env.StepType.MID,
                self.rewards[t],
                self.discounts[t],
                self.observations[t + 1],
            )
            adder.add(action, timestep, self.extras[t])
        if self.is_reset:
            adder.reset()


def make_episode(
    spec: specs.EnvironmentSpec, extras_spec: Any, num_steps: int, is_reset: bool, seed: int
) -> Episode:
    random = np.random.default_rng(seed)

    def draw(nest: Any, count: int) -> list[Any]:
        return [
            tree.map_structure(lambda s: np.asarray(10 * random.normal(size=s.shape)).astype(s.dtype), nest)
            for _ in range(count)
        ]

    return Episode(
        observations=draw(spec.observations, num_steps + 1),
        actions=draw(spec.actions, num_steps),
        rewards=draw(spec.rewards, num_steps),
        discounts=[np.float32(random.choice([0, 0.5, 1])) for _ in range(num_steps)],
        extras=draw(extras_spec, num_steps),
        is_reset=is_reset,
    )


def trajectory(episode: Episode, first: int, length: int) -> types.Trajectory:
    """The steps from `first` on, padded to `length`."""
    num_steps = len(episode.actions)

    def window(steps: list[Any]) -> Any:
        padding = tree.map_structure(np.zeros_like, steps[0])
        chosen = [steps[t] if t < num_steps else padding for t in range(first, first + length)]
        return tree.map_structure(lambda *leaves: np.stack(leaves), *chosen)

    observations = [episode.observations[min(t, num_steps)] for t in range(first, first + length + 1)]
    return types.Trajectory(
        observation=tree.map_structure(lambda *leaves: np.stack(leaves), *observations),
        action=window(episode.actions),
        reward=window(episode.rewards),
        discount=window(episode.discounts),
        mask=window([np.float32(1)] * num_steps),
        extras=window(episode.extras),
    )


def transition(episode: Episode, first: int, end: int, gamma: float) -> types.Transition:
    """The steps from `first` up to `end`, folded."""
    factor, discount = 1.0, 1.0
    reward = tree.map_structure(np.zeros_like, episode.rewards[0])
    for t in range(first, end):
        reward = tree.map_structure(lambda total, r, f=factor: total + f * r, reward, episode.rewards[t])
        discount *= gamma * float(episode.discounts[t])
        factor = discount
    return types.Transition(
        observation=episode.observations[first],
        action=episode.actions[first],
        reward=reward,
        discount=np.float32(discount),
        next_observation=episode.observations[end],
        extras=episode.extras[first],
    )


def rollout(steps: list[tuple[Episode, int]], gamma: float) -> types.Rollout:
    """The steps, each told by its episode and its place in it."""
    next_episodes = [episode for episode, _ in steps[1:]] + [None]
    is_last = [episode is not other for (episode, _), other in zip(steps, next_episodes, strict=True)]
    returns = [
        tree.map_structure(
            lambda *rewards, t=t: np.float32(sum(gamma ** (t - k) * r for k, r in enumerate(rewards))),
            *episode.rewards[: t + 1],
        )
        for episode, t in steps
    ]

    def stack(nests: list[Any]) -> Any:
        return tree.map_structure(lambda *leaves: np.stack(leaves), *nests)

    return types.Rollout(
        observation=stack([episode.observations[t] for episode, t in steps]),
        action=stack([episode.actions[t] for episode, t in steps]),
        reward=stack([episode.rewards[t] for episode, t in steps]),
        discount=stack([episode.discounts[t] for episode, t in steps]),
        next_observation=stack([episode.observations[t + 1] for episode, t in steps]),
        first=np.float32([t == 0 for _, t in steps]),
        last=np.float32(is_last),
        return_so_far=stack(returns),
        extras=stack([episode.extras[t] for episode, t in steps]),
    )


def assert_same(items: list[Any], expected: list[Any]) -> None:
    assert len(items) == len(expected)
    for item, wanted in zip(items, expected, strict=True):
        tree.assert_same_structure(item, wanted, check_types=True)
        for found, leaf in zip(tree.flatten(item), tree.flatten(wanted), strict=True):
            assert found.shape == np.shape(leaf)
            np.testing.assert_allclose(found, leaf, rtol=1e-5, atol=1e-5)


LENGTHS = st.lists(st.tuples(st.integers(1, MAX_STEPS), st.booleans()), min_size=1, max_size=3)
PERIODS = st.integers(1, 4).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n)))


@settings(max_examples=40, deadline=None)
@given(spec=SPECS, extras_spec=EXTRAS, lengths=LENGTHS, length_and_period=PERIODS, seed=st.integers(0, 99))
def test_sequences_and_whole_episodes(make_memory_store, spec, extras_spec, lengths, length_and_period, seed):
    (length, period) = length_and_period
    episodes = [make_episode(spec, extras_spec, *steps, seed + i) for i, steps in enumerate(lengths)]
    layout = layouts.TrajectoryLayout(spec, length, extras_spec)
    short_layout = layouts.TrajectoryLayout(spec, length, extras_spec, variable_length=True)
    whole_layout = layouts.TrajectoryLayout(spec, MAX_STEPS, extras_spec)
    store, short, whole = (
        make_memory_store(layout.signature) for layout in (layout, short_layout, whole_layout)
    )
    with adders.ForkingAdder(
        [
            adders.SequenceAdder(client=store.client, table="table", layout=layout, period=period),
            adders.SequenceAdder(client=short.client, table="table", layout=short_layout, period=period),
            adders.EpisodeAdder(client=whole.client, table="table", layout=whole_layout),
        ]
    ) as fork:
        for episode in episodes:
            episode.play(fork)
    expected = [
        trajectory(episode, first, length)
        for episode in episodes
        for first in range(0, len(episode.actions), period)
    ]
    assert_same(store.items(layout), expected)
    assert_same(short.items(short_layout), expected)
    assert_same(whole.items(whole_layout), [trajectory(episode, 0, MAX_STEPS) for episode in episodes])


@settings(max_examples=40, deadline=None)
@given(
    spec=SPECS,
    extras_spec=EXTRAS,
    lengths=LENGTHS,
    n_step=st.integers(1, 5),
    gamma=st.sampled_from([0.0, 0.5, 1.0]),
    seed=st.integers(0, 99),
)
def test_transitions(make_memory_store, spec, extras_spec, lengths, n_step, gamma, seed):
    episodes = [make_episode(spec, extras_spec, *steps, seed + i) for i, steps in enumerate(lengths)]
    layout = layouts.TransitionLayout(spec, extras_spec)
    store = make_memory_store(layout.signature)
    with adders.NStepTransitionAdder(
        client=store.client, table="table", layout=layout, n_step=n_step, discount=gamma
    ) as adder:
        for episode in episodes:
            episode.play(adder)
    assert_same(
        store.items(layout),
        [
            transition(episode, first, min(first + n_step, len(episode.actions)), gamma)
            for episode in episodes
            for first in range(len(episode.actions))
        ],
    )


@settings(max_examples=40, deadline=None)
@given(
    spec=st.builds(
        lambda spec, rewards: spec._replace(rewards=rewards),
        SPECS,
        st.sampled_from([SCALAR, {"speed": SCALAR, "energy": SCALAR}]),
    ),
    extras_spec=EXTRAS,
    lengths=LENGTHS,
    length=st.integers(1, 5),
    gamma=st.sampled_from([0.0, 0.5, 1.0]),
    seed=st.integers(0, 99),
)
def test_rollouts(make_memory_store, spec, extras_spec, lengths, length, gamma, seed):
    episodes = [make_episode(spec, extras_spec, *steps, seed + i) for i, steps in enumerate(lengths)]
    layout = layouts.RolloutLayout(spec, length, extras_spec)
    store = make_memory_store(layout.signature)
    with adders.RolloutAdder(client=store.client, table="table", layout=layout, discount=gamma) as adder:
        for episode in episodes:
            episode.play(adder)
    steps = [(episode, t) for episode in episodes for t in range(len(episode.actions))]
    assert_same(
        store.items(layout),
        [
            rollout(steps[first : first + length], gamma)
            for first in range(0, len(steps) - length + 1, length)
        ],
    )


def in_windows(episode: Episode, period: int) -> list[types.Trajectory]:
    return [trajectory(episode, first, 4) for first in range(0, 4, period)]


# Of an episode of 4 steps: how the adder is made, its layout, and the items.
ADDERS = {
    "sequence": (adders.SequenceAdder, {"period": 2}, lambda episode: in_windows(episode, 2)),
    "episode": (adders.EpisodeAdder, {}, lambda episode: in_windows(episode, 4)),
    "continuing": (adders.ContinuingSequenceAdder, {"period": 4}, lambda episode: in_windows(episode, 4)),
    "n_step": (
        adders.NStepTransitionAdder,
        {"n_step": 2, "discount": 0.5},
        lambda episode: [transition(episode, t, min(t + 2, 4), 0.5) for t in range(4)],
    ),
    "rollout": (
        adders.RolloutAdder,
        {"discount": 0.5},
        lambda episode: [rollout([(episode, t) for t in range(4)], 0.5)],
    ),
}


@pytest.mark.parametrize("final_discount", [0.0, 1.0], ids=["termination", "truncation"])
@pytest.mark.parametrize("name", ADDERS)
def test_every_kind_of_field_comes_back_from_buffers_that_are_used_again(
    make_store, rich_spec, rich_episode, extras_spec, name, final_discount
):
    make_adder, settings, expected = ADDERS[name]
    layout = layouts.TrajectoryLayout(rich_spec, 4, extras_spec)
    if name == "n_step":
        layout = layouts.TransitionLayout(rich_spec, extras_spec)
    if name == "rollout":
        layout = layouts.RolloutLayout(rich_spec, 4, extras_spec)
    store = make_store(layout.signature)
    episode = rich_episode(num_steps=4, final_discount=final_discount)
    with make_adder(client=store.client, table="table", layout=layout, **settings) as adder:
        episode.play(adder)
        assert adder.signature() == layout.signature
        adder.flush()
        items = store.items(layout)
    assert_same(items, expected(episode))
    for item in items:
        for found, spec in zip(
            tree.flatten((item.observation, item.action)),
            tree.flatten((rich_spec.observations, rich_spec.actions)),
            strict=True,
        ):
            assert found.dtype == spec.dtype
