"""The actor of a batched environment passes on tensors, and each choice's extras once."""

import torch

from minerva_acme import actors, testing


class CountingPolicy:
    def __init__(self):
        self.num_calls = 0

    def batch(self, observations):
        self.num_calls += 1
        actions = observations[:, :2] * 0.01 * self.num_calls
        return actors.PolicyOutput(actions, {"call": torch.full((len(observations),), self.num_calls)})


class Tape:
    def __init__(self):
        self.calls = []

    def add_first(self, timestep):
        self.calls.append(("first", timestep))

    def add(self, actions, next_timestep, extras=()):
        self.calls.append((actions, next_timestep, extras))

    def update(self, wait=False):
        self.calls.append(("update", wait))


def test_what_was_chosen_and_seen_reaches_the_adder_with_the_choices_extras():
    environment = testing.FakeBatchedEnvironment(3, generator=torch.Generator().manual_seed(0))
    tape = Tape()
    actor = actors.BatchedFeedForwardActor(policy=CountingPolicy(), adder=tape, variable_client=tape)
    first = environment.reset()
    actor.observe_first(first)
    expected = [("first", first)]
    newest = first.newest
    for number in range(1, 6):
        actions = actor.select_action(newest)
        testing.assert_nests_equal(actions, newest[:, :2] * 0.01 * number)
        timestep = environment.step(actions)
        actor.observe(actions, timestep)
        actor.update(wait=number == 2)
        extras = {"call": torch.full((3,), number)}
        expected += [(actions, timestep, extras), ("update", number == 2)]
        newest = timestep.newest
    actor.observe(actions, timestep)  # without a choice: no extras of an earlier one
    testing.assert_nests_equal(tape.calls, [*expected, (actions, timestep, ())])


def test_an_actor_needs_neither_adder_nor_weights():
    environment = testing.FakeBatchedEnvironment(3, generator=torch.Generator().manual_seed(0))
    actor = actors.BatchedFeedForwardActor(policy=CountingPolicy())
    timestep = environment.reset()
    actor.observe_first(timestep)
    actions = actor.select_action(timestep.newest)
    actor.observe(actions, environment.step(actions))
    actor.update()
    assert actions.shape == (3, 2)
