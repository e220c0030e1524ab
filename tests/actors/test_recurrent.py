"""Actors that remember the episode, and forget it where the next one begins."""

import dm_env
import numpy as np
import pytest

from minerva_acme import actors, specs, testing

ACTION_SPEC = specs.BoundedArray((3,), np.float64, -1e9, 1e9)


class Sums:
    """Acts by the sum of the episode's observations; records what it was before."""

    def initial_state(self, num_environments):
        return {"sum": np.zeros((num_environments, 3)), "steps": np.zeros(num_environments, np.int64)}

    def step(self, observations, state):
        after = {"sum": state["sum"] + observations, "steps": state["steps"] + 1}
        return actors.PolicyOutput(after["sum"].copy(), state), after


class Extras:
    """An adder that keeps the extras that it is given, not copies of them."""

    def __init__(self):
        self.extras = []

    def add_first(self, timestep):
        pass

    def add(self, action, next_timestep, extras):
        self.extras.append(extras)


def first(number):
    return dm_env.restart(np.full(3, float(number)))


def step(number):
    return dm_env.transition(1.0, np.full(3, float(number)))


def act(actor, *numbers):
    """The actions at observations of one number each, as one number each."""
    actions = actor.select_action([np.full(3, float(number)) for number in numbers])
    return [float(action[0]) for action in actions]


def test_a_single_actor_remembers_an_episode_and_no_more():
    adder = Extras()
    actor = actors.RecurrentActor(policy=Sums(), adder=adder)
    recorded = []
    for episode in ([1, 2, 4], [10, 20]):
        actor.observe_first(first(episode[0]))
        for number in episode:
            action = actor.select_action(np.full(3, float(number)))
            recorded.append(action[0])
            actor.observe(action, step(number))
    assert recorded == [1, 3, 7, 10, 30]
    assert [int(each["steps"]) for each in adder.extras] == [0, 1, 2, 0, 1]
    assert [each["sum"].tolist() for each in adder.extras] == [[before] * 3 for before in (0, 1, 3, 0, 10)]


def test_each_environment_forgets_its_own_episode_alone():
    adders = [Extras() for _ in range(3)]
    actor = actors.RecurrentVectorActor(policy=Sums(), adders=adders)
    for index in range(3):
        actor.observe_first(index, first(0))
    assert act(actor, 1, 2, 3) == [1, 2, 3]
    assert act(actor, 10, 20, 30) == [11, 22, 33]
    for index in range(3):
        actor.observe(index, np.zeros(3), step(0))
    actor.observe_first(1, first(0))
    assert act(actor, 100, 200, 300) == [111, 200, 333]
    for index in range(3):
        actor.observe(index, np.zeros(3), step(0))
    # What was recorded before the episode began stays as it was.
    assert [[float(each["sum"][0]) for each in adder.extras] for adder in adders] == [
        [1, 11],
        [2, 0],
        [3, 33],
    ]


def test_a_beginning_before_the_first_choice_changes_nothing():
    actor = actors.RecurrentVectorActor(policy=Sums())
    for _ in range(2):
        for index in range(2):
            actor.observe_first(index, first(0))
    assert act(actor, 1, 2) == [1, 2]


def test_weights_are_taken_in_update_alone():
    got = []

    class Client:
        def update(self, wait):
            got.append(wait)

    actor = actors.RecurrentActor(policy=Sums(), variable_client=Client())
    actor.observe_first(first(0))
    actor.select_action(np.ones(3))
    assert got == []
    actor.update()
    actor.update(wait=True)
    assert got == [False, True]


def test_there_is_an_adder_for_each_environment():
    actor = actors.RecurrentVectorActor(policy=Sums(), adders=[Extras()])
    with pytest.raises(ValueError, match="`adders` must be empty or hold one adder for each environment"):
        act(actor, 1, 2)


class TestRecurrentActor(testing.ActorConformance):
    def make_environment(self):
        return testing.FakeEnvironment(
            observation_spec=specs.Array((3,), np.float64), action_spec=ACTION_SPEC
        )

    def make_actor(self):
        return actors.RecurrentActor(policy=Sums())
