from typing import Any, NamedTuple

import dm_env
import numpy as np
import pytest
import tree

from minerva_acme import actors, core, specs, testing

NEST = {
    "arm": specs.BoundedArray((2,), np.float32, [-1.0, 0.0], [1.0, 5.0], name="arm"),
    "grip": specs.DiscreteArray(3, name="grip"),
    "lights": (specs.BoundedArray((4,), np.int8, 0, 1),),
}
BOUNDED = specs.BoundedArray((2,), np.float32, -1.0, 1.0)


class Adder(core.Adder):
    """Writes the calls it gets on a tape."""

    num_inserted = 0

    def __init__(self):
        self.tape = []

    def add_first(self, timestep):
        self.tape.append(("add_first", timestep))

    def add(self, action, next_timestep, extras=()):
        self.tape.append(("add", action, next_timestep, extras))

    def flush(self):
        pass

    def reset(self):
        pass

    def close(self):
        pass


def repeat_and_number():
    """A policy that answers with what it saw, and numbers its answers."""
    number = 0

    def policy(observation):
        nonlocal number
        number += 1
        return actors.PolicyOutput(action=observation[:2] * 0.0, extras={"number": number})

    return policy


def test_what_happened_goes_to_the_adder_with_the_extras_of_its_choice():
    adder = Adder()
    actor = actors.FeedForwardActor(policy=repeat_and_number(), adder=adder)
    first, second, third = (
        dm_env.restart(np.ones(3)),
        dm_env.transition(1.0, np.ones(3)),
        dm_env.termination(1.0, 0),
    )
    actor.observe_first(first)
    one = actor.select_action(first.observation)
    actor.observe(one, next_timestep=second)
    two = actor.select_action(second.observation)
    actor.observe(two, next_timestep=third)
    expected = [("add_first", first), ("add", one, second, {"number": 1}), ("add", two, third, {"number": 2})]
    assert [entry[0] for entry in adder.tape] == [entry[0] for entry in expected]
    assert all(
        a is b for x, y in zip(adder.tape, expected, strict=True) for a, b in zip(x[1:3], y[1:3], strict=True)
    )
    assert [entry[3] for entry in adder.tape[1:]] == [{"number": 1}, {"number": 2}]


def test_extras_never_go_with_an_action_that_the_policy_did_not_select():
    adder = Adder()
    actor = actors.FeedForwardActor(policy=repeat_and_number(), adder=adder)
    actor.select_action(np.ones(3))
    for _ in range(2):
        actor.observe(np.zeros(2), dm_env.transition(1.0, np.ones(3)))
    assert [entry[3] for entry in adder.tape] == [{"number": 1}, ()]


def test_update_is_handed_to_the_variable_client():
    learner, got = testing.FakeLearner(), []
    client = actors.VariableClient(learner, ["policy"], got.append, update_period=3)
    actor = actors.FeedForwardActor(policy=repeat_and_number(), variable_client=client)
    learner.step()
    actor.update(wait=True)
    learner.step()
    for _ in range(2):
        actor.update()
    assert [values[0]["steps"][0] for values in got] == [1.0]
    actor.update()
    assert [values[0]["steps"][0] for values in got] == [1.0, 2.0]


def test_without_adder_and_client_an_actor_only_acts():
    actor = actors.FeedForwardActor(policy=repeat_and_number())
    actor.observe_first(dm_env.restart(np.ones(3)))
    actor.update(wait=True)
    np.testing.assert_array_equal(actor.select_action(np.ones(3)), np.zeros(2))


class TestFeedForwardActor(testing.ActorConformance):
    def make_environment(self):
        return testing.FakeEnvironment()

    def make_actor(self):
        return actors.FeedForwardActor(policy=repeat_and_number())


class TestRandomActor(testing.ActorConformance):
    def make_environment(self):
        return testing.FakeEnvironment(action_spec=NEST)

    def make_actor(self):
        return actors.RandomActor(NEST, seed=0)


def draw(spec, number, seed=0):
    actor = actors.RandomActor(spec, seed=seed)
    return tree.map_structure(
        lambda *leaves: np.stack(leaves), *(actor.select_action(None) for _ in range(number))
    )


def test_random_actions_spread_evenly_to_both_bounds():
    actions = draw(NEST, 3000)
    np.testing.assert_allclose(actions["arm"].mean(axis=0), [0.0, 2.5], atol=0.1)
    np.testing.assert_allclose(actions["arm"].std(axis=0), np.array([2.0, 5.0]) / np.sqrt(12.0), rtol=0.05)
    np.testing.assert_allclose(np.bincount(actions["grip"]) / 3000, [1 / 3] * 3, atol=0.04)
    np.testing.assert_allclose(actions["lights"][0].mean(axis=0), [0.5] * 4, atol=0.04)


def test_a_seed_reproduces_the_actions_and_another_does_not():
    testing.assert_nests_equal(draw(NEST, 5, seed=3), draw(NEST, 5, seed=3))
    assert (draw(BOUNDED, 5, seed=3) != draw(BOUNDED, 5, seed=4)).any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_widest_finite_bounds_do_not_overflow(dtype):
    largest = np.finfo(dtype).max
    spec = specs.BoundedArray((100,), dtype, -largest, largest)
    for action in draw(spec, 10):
        spec.validate(action)
        assert np.isfinite(action).all()


def test_whole_ranges_of_integers_can_be_drawn():
    spec = specs.BoundedArray((100,), np.int64, np.iinfo(np.int64).min, np.iinfo(np.int64).max)
    actions = draw(spec, 10)
    assert actions.dtype == np.int64
    assert (actions < 0).any() and (actions > 0).any()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (specs.Array((2,), np.float32), r"RandomActor needs `action_spec` to be discrete .* got Array\(2,\)"),
        (specs.BoundedArray((1,), np.float32, 0.0, np.inf), r"finite bounds, got BoundedArray\(1,\) .*inf"),
        (
            {"arm": BOUNDED, "word": specs.StringArray(())},
            r"needs `action_spec\['word'\]` to be .* StringArray",
        ),
    ],
)
def test_an_action_without_bounds_is_refused_by_name(spec, message):
    with pytest.raises(ValueError, match=message):
        actors.RandomActor(spec, seed=0)


class NestedPolicy:
    """Answers with nests, of which row i holds what belongs to observation i."""

    def batch(self, observations):
        number = len(observations["speed"])
        rows = np.arange(number)
        return actors.PolicyOutput(
            action={"arm": observations["speed"] * 2.0, "grip": rows},
            extras=Extras(rows * 10, (rows * 20, [rows * 30]), (), {"mean": np.stack([rows, rows], axis=1)}),
        )


class Extras(NamedTuple):
    log_prob: Any
    pair: Any
    nothing: Any
    parameters: Any


def test_a_vector_actor_stacks_the_observations_and_splits_actions_and_extras():
    adders = [Adder(), Adder(), Adder()]
    actor = actors.FeedForwardVectorActor(policy=NestedPolicy(), adders=adders)
    observations = [{"speed": np.full(2, k, np.float32)} for k in range(3)]
    selected = actor.select_action(observations)
    expected = [{"arm": np.full(2, 2 * k, np.float32), "grip": np.int64(k)} for k in range(3)]
    testing.assert_nests_equal(selected, expected)
    for index in (2, 0, 1):
        actor.observe(index, selected[index], dm_env.transition(1.0, observations[index]))
    for index, adder in enumerate(adders):
        ((name, action, _, extras),) = adder.tape
        assert (name, action) == ("add", selected[index])
        assert isinstance(extras, Extras)
        rows = Extras(index * 10, (index * 20, [index * 30]), (), {"mean": np.array([index, index])})
        testing.assert_nests_equal(extras, rows)


def test_an_environment_has_an_adder_of_its_own_or_none_has():
    observations = [{"speed": np.zeros(2)} for _ in range(3)]
    silent = actors.FeedForwardVectorActor(policy=NestedPolicy())
    selected = silent.select_action(observations)
    silent.observe_first(2, dm_env.restart(observations[2]))
    silent.observe(2, selected[2], dm_env.transition(1.0, observations[2]))
    silent.update(wait=True)
    adders = [Adder(), Adder()]
    actor = actors.FeedForwardVectorActor(policy=NestedPolicy(), adders=adders)
    actor.observe_first(1, dm_env.restart(observations[1]))
    assert [len(adder.tape) for adder in adders] == [0, 1]
    with pytest.raises(
        ValueError, match="`adders` must be empty or hold one adder for each environment, got 2 for 3"
    ):
        actor.select_action(observations)


@pytest.mark.parametrize("extras", [(), {"number": np.zeros(2)}])
def test_a_policy_that_answers_with_another_number_of_rows_is_refused(extras):
    class Wrong:
        def batch(self, observations):
            return actors.PolicyOutput(np.zeros((2 if extras == () else 3, 4)), extras)

    actor = actors.FeedForwardVectorActor(policy=Wrong())
    message = r"`policy.batch` must return a row for each of the 3 observations, got \(2"
    with pytest.raises(ValueError, match=message):
        actor.select_action([np.zeros(1)] * 3)


def test_extras_of_a_vector_actor_go_with_one_action_only():
    adder = Adder()
    actor = actors.FeedForwardVectorActor(policy=NestedPolicy(), adders=[adder])
    (action,) = actor.select_action([{"speed": np.zeros(2)}])
    for _ in range(2):
        actor.observe(0, action, dm_env.transition(1.0, np.ones(3)))
    assert [type(entry[3]) for entry in adder.tape] == [Extras, tuple]


def test_a_vector_actor_hands_update_to_the_variable_client():
    learner, got = testing.FakeLearner(), []
    client = actors.VariableClient(learner, ["policy"], got.append, update_period=2)
    actor = actors.FeedForwardVectorActor(policy=NestedPolicy(), variable_client=client)
    actor.update(wait=True)
    learner.step()
    actor.update()
    actor.update()
    assert [values[0]["steps"][0] for values in got] == [0.0, 1.0]
