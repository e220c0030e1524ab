"""Conformance classes pass on parts that keep their contract, and say what is wrong with the others."""

import time

import numpy as np
import pytest
import torch

from minerva_acme import actors, core, specs, testing

ACTION_SPEC = specs.BoundedArray((2,), np.float32, -1.0, 1.0)


class Actor(actors.RandomActor):
    def __init__(self):
        super().__init__(ACTION_SPEC, seed=0)


class Adder(core.Adder):
    """Counts transitions, those of a table limit and of a reset alike, once their episode has ended."""

    def __init__(self):
        self._inserted, self._open = 0, None

    @property
    def num_inserted(self):
        return self._inserted

    def add_first(self, timestep):
        if not timestep.first() or self._open is not None:
            raise ValueError("Not now.")
        self._check(timestep.observation, 3)
        self._open = 0

    def add(self, action, next_timestep, extras=()):
        if self._open is None:
            raise ValueError("No episode is open.")
        self._check(action, 2)
        self._check(next_timestep.observation, 3)
        if not 0 <= next_timestep.discount <= 1:
            raise ValueError(f"Discount {next_timestep.discount}.")
        self._open += 1
        if next_timestep.last():
            self.reset()

    def reset(self):
        self._inserted += self._open or 0
        self._open = None

    def flush(self):
        pass

    def close(self):
        self.reset()

    def _check(self, array, size):
        if array.shape != (size,):
            raise ValueError(f"Shape {array.shape}.")


class ActorSuite(testing.ActorConformance):
    part = Actor

    def make_actor(self):
        return self.part()

    def make_environment(self):
        return testing.FakeEnvironment(action_spec=ACTION_SPEC)


class AdderSuite(testing.AdderConformance):
    part = Adder

    def make_adder(self):
        return self.part()

    def make_environment(self):
        return testing.FakeEnvironment(action_spec=ACTION_SPEC)

    def make_action(self):
        return np.zeros(2, np.float32)


class LearnerSuite(testing.LearnerConformance):
    part = testing.FakeLearner

    def make_learner(self):
        return self.part()


class TestActor(ActorSuite):
    pass


class TestAdder(AdderSuite):
    pass


class TestLearner(LearnerSuite):
    pass


class OutOfBounds(Actor):
    def select_action(self, observation):
        return np.full(2, 2.0, np.float32)


class ChangesObservations(Actor):
    def select_action(self, observation):
        observation += 1.0
        return super().select_action(observation)


class ReusesItsAction(Actor):
    buffer = np.zeros(2, np.float32)

    def select_action(self, observation):
        self.buffer[:] = super().select_action(observation)
        return self.buffer


class ForgetsItsRandomness(Actor):
    def restore(self, state):
        pass


class SavesAnArray(Actor):
    def save(self):
        return {**super().save(), "array": np.zeros(2)}


class Remembers(Actor):
    """Adds what the episode has shown to its actions."""

    def __init__(self):
        super().__init__()
        self.remembered = np.zeros(3, np.float32)

    def observe_first(self, timestep):
        self.remembered = np.zeros(3, np.float32)

    def select_action(self, observation):
        self.remembered = 0.9 * self.remembered + observation / 50
        return np.clip(super().select_action(observation) / 2 + self.remembered[:2], -1.0, 1.0)

    def save(self):
        return {**super().save(), "remembered": torch.from_numpy(self.remembered)}

    def restore(self, state):
        super().restore(state)
        self.remembered = state["remembered"].numpy()


class TestActorThatRemembersAnEpisode(ActorSuite):
    part = Remembers


class NeverForgets(Remembers):
    def observe_first(self, timestep):
        pass


class Following(Actor):
    """Asks a source for its variables, and acts at random all the same."""

    def __init__(self, source):
        super().__init__()
        self.source = source

    def update(self, wait=False):
        self.source.poll_variables(["policy"])


class FollowingSuite(ActorSuite):
    part = Following

    def make_source(self):
        return testing.FakeLearner()

    def make_actor_of(self, source):
        return self.part(source)

    def make_actor(self):
        return self.part(self.make_source())


class TestFollowing(FollowingSuite):
    pass


class IgnoresUpdate(Following):
    def update(self, wait=False):
        pass


class UpdatesOnce(Following):
    was_updated = False

    def update(self, wait=False):
        if not self.was_updated:
            self.was_updated = True
            super().update(wait)


class UpdatesWhileItActs(Following):
    def select_action(self, observation):
        self.update()
        return super().select_action(observation)


class LosesTheLastOfThree(Adder):
    """Of 3-step transitions: those of fewer steps, at the end of an episode, are not written."""

    def add(self, action, next_timestep, extras=()):
        super().add(action, next_timestep, extras)
        if next_timestep.last():
            self._inserted -= 2


class LosesTruncatedSteps(Adder):
    def add(self, action, next_timestep, extras=()):
        super().add(action, next_timestep, extras)
        if next_timestep.last() and next_timestep.discount:
            self._inserted -= 1


class ExactAdderSuite(AdderSuite):
    def num_items(self, num_steps):
        return num_steps


class TestExactAdder(ExactAdderSuite):
    pass


class LosesOneOfMany(Adder):
    """Writes all of a short episode."""

    def add(self, action, next_timestep, extras=()):
        num_steps = (self._open or 0) + 1
        super().add(action, next_timestep, extras)
        if next_timestep.last() and num_steps > 3:
            self._inserted -= 1


class CountsNothing(Adder):
    num_inserted = 0


class TakesAnyOrder(Adder):
    def add(self, action, next_timestep, extras=()):
        self._open = self._open or 0
        super().add(action, next_timestep, extras)


class TakesAnything(Adder):
    def _check(self, array, size):
        pass


class TakesAnyDiscount(Adder):
    def add(self, action, next_timestep, extras=()):
        super().add(action, next_timestep._replace(discount=1.0), extras)


class BreaksWhenRefusing(Adder):
    def _check(self, array, size):
        if array.shape != (size,):
            self._open = None
        super()._check(array, size)


class LosesTheOpenEpisode(Adder):
    def add(self, action, next_timestep, extras=()):
        super().add(action, next_timestep, extras)
        if next_timestep.last():
            self._inserted += 1

    def reset(self):
        self._open = None


class CountsResets(Adder):
    def reset(self):
        super().reset()
        self._inserted += 1


class ClosesWithoutTheRest(Adder):
    def close(self):
        pass


class SharesItsArrays(testing.FakeLearner):
    def __init__(self):
        super().__init__()
        self.array = np.zeros(2)

    def step(self):
        super().step()
        self.array += 1

    def get_variables(self, names):
        return [self.array if name == "policy" else super().get_variables([name]) for name in names]


class GivesTensors(testing.FakeLearner):
    def get_variables(self, names):
        return [torch.zeros(2) for _ in super().get_variables(names)]


class PollsLiveViews(testing.FakeLearner):
    """Copies for `get_variables` alone."""

    def __init__(self):
        super().__init__()
        self.array = np.zeros(2)

    def step(self):
        super().step()
        self.array += 1

    def _variables(self, names, num_steps):
        super()._variables(names, num_steps)
        return [self.array for _ in names]

    def get_variables(self, names):
        return [array.copy() for array in super().get_variables(names)]


class CountsDown(core.VariableSource):
    """A bare source that is asked by `newer_than` and always has something older."""

    version = 10

    def get_variables(self, names):
        if set(names) - {"policy"}:
            raise KeyError("There is only policy.")
        return [np.ones(2) for _ in names]

    def poll_variables(self, names, newer_than=None):
        self.version -= 1
        if newer_than is not None and newer_than >= self.version:
            return None
        return core.VersionedVariables(self.version, self.get_variables(names))


class ChangesUntold(CountsDown):
    """Changes with every call, and stays at its version."""

    value = 0

    def get_variables(self, names):
        self.value += 1
        return [np.full(2, self.value) for _ in names]

    def poll_variables(self, names, newer_than=None):
        return core.VersionedVariables(3, self.get_variables(names))


class SourceSuite(testing.VariableSourceConformance):
    part = CountsDown

    def make_source(self):
        return self.part()


class KnowsEveryName(testing.FakeLearner):
    def get_variables(self, names):
        return super().get_variables(["policy" for _ in names])


class SendsInVain(testing.FakeLearner):
    def poll_variables(self, names, newer_than=None):
        return super().poll_variables(names)


class StandsStill(testing.FakeLearner):
    def step(self):
        pass


class StepsTooOften(testing.FakeLearner):
    def run(self, num_steps=None):
        super().run(num_steps + 1)


class ForgetsItsSteps(testing.FakeLearner):
    def restore(self, state):
        pass


class ServesHalfSteps(testing.FakeLearner):
    def step(self):
        self._num_steps += 0.5
        time.sleep(0.01)
        self._num_steps += 0.5


class SharesItsState(testing.FakeLearner):
    def __init__(self):
        super().__init__()
        self.state = {"num_steps": 0}

    def step(self):
        super().step()
        self.state["num_steps"] += 1

    def save(self):
        return self.state


@pytest.mark.parametrize(
    ("suite", "part", "test", "message"),
    [
        (
            ActorSuite,
            OutOfBounds,
            "actions_conform_to_the_action_spec",
            "`select_action` must keep to the action spec: `action` must be BoundedArray(2,) "
            "float32 in [-1, 1], got array([2., 2.], dtype=float32): ",
        ),
        (
            ActorSuite,
            ChangesObservations,
            "what_the_environment_gives_is_left_as_it_is",
            "`select_action` must leave the observation that it is given as it is. Expected array(",
        ),
        (
            ActorSuite,
            ReusesItsAction,
            "an_action_given_out_is_not_changed_later",
            "`select_action` must return fresh arrays, but a later call changed the action of an "
            "earlier one. Expected array(",
        ),
        (
            ActorSuite,
            ForgetsItsRandomness,
            "a_state_that_can_be_saved_reproduces_the_actions",
            "`restore` must let an actor act as the saved one continues to act. Expected array(",
        ),
        (
            ActorSuite,
            NeverForgets,
            "what_an_episode_showed_is_forgotten_in_the_next",
            "`observe_first` must begin an episode in which nothing is remembered of the one before: the "
            "action differs where that had shown its observations in another order. Expected array(",
        ),
        (
            ActorSuite,
            SavesAnArray,
            "a_state_that_can_be_saved_reproduces_the_actions",
            "`save` must return dicts, lists, tuples, tensors, numbers, strings, booleans and None "
            "alone, got {",
        ),
        (
            FollowingSuite,
            IgnoresUpdate,
            "update_asks_the_variable_source",
            "`update(wait=True)` must ask the variable source for the newest variables, expected a call of "
            "`poll_variables` or `get_variables`, got none.",
        ),
        (
            FollowingSuite,
            UpdatesOnce,
            "update_asks_the_variable_source",
            "`update(wait=True)` must ask the variable source each time, got no call in step 1.",
        ),
        (
            FollowingSuite,
            UpdatesWhileItActs,
            "update_asks_the_variable_source",
            "`select_action` must leave the weights to `update`, got 1 calls of the variable source.",
        ),
        (
            AdderSuite,
            LosesTheLastOfThree,
            "the_end_of_an_episode_loses_no_transition",
            "`add` must write what is left of an episode at a true end (LAST, discount 0), expected items "
            "after 1 steps, got",
        ),
        (
            AdderSuite,
            LosesTruncatedSteps,
            "the_end_of_an_episode_loses_no_transition",
            "`add` must write what is left of an episode at a time limit (LAST, discount 1), expected items "
            "after 1 steps, got 0.",
        ),
        (
            AdderSuite,
            LosesTruncatedSteps,
            "reset_ends_the_open_episode_and_loses_no_transition",
            "`add` must write the transition of the open episode, expected > 0 items, got 0.",
        ),
        (
            ExactAdderSuite,
            LosesOneOfMany,
            "the_end_of_an_episode_loses_no_transition",
            "`add` must write what is left of an episode at a true end (LAST, discount 0), expected 4 items "
            "after 4 steps, got 3.",
        ),
        (
            AdderSuite,
            CountsNothing,
            "every_episode_adds_items_and_the_count_never_falls",
            "`num_inserted` must grow with every episode, expected > 0, got 0.",
        ),
        (
            AdderSuite,
            TakesAnyOrder,
            "calls_out_of_order_are_refused_and_change_nothing",
            "`add` where no episode is open must raise ValueError, got no error.",
        ),
        (
            AdderSuite,
            TakesAnything,
            "a_field_that_breaks_its_spec_is_refused_and_the_adder_stays_usable",
            "`add_first` with an observation that breaks its spec by an axis too many must raise "
            "ValueError, got no error.",
        ),
        (
            AdderSuite,
            TakesAnyDiscount,
            "a_field_that_breaks_its_spec_is_refused_and_the_adder_stays_usable",
            "`add` with a discount above its bound must raise ValueError, got no error.",
        ),
        (
            AdderSuite,
            BreaksWhenRefusing,
            "a_field_that_breaks_its_spec_is_refused_and_the_adder_stays_usable",
            "`add` must continue the episode after it refused a step: No episode is open.",
        ),
        (
            AdderSuite,
            LosesTheOpenEpisode,
            "reset_ends_the_open_episode_and_loses_no_transition",
            "`reset` must write as many items as a time limit would. Expected array(1), got array(0).",
        ),
        (
            AdderSuite,
            CountsResets,
            "reset_and_flush_may_come_at_any_time",
            "`reset` and `flush` must write nothing before the first episode. Expected array(0), got",
        ),
        (
            AdderSuite,
            ClosesWithoutTheRest,
            "close_ends_the_open_episode",
            "`close` must write the transition of the open episode, expected > 0 items, got 0.",
        ),
        (
            LearnerSuite,
            SharesItsArrays,
            "variables_given_out_are_copies",
            "`get_variables` must return copies. Expected array([0., 0.]) at ['policy'], got "
            "array([1., 1.]).",
        ),
        (
            LearnerSuite,
            PollsLiveViews,
            "variables_given_out_are_copies",
            "`poll_variables` must return copies. Expected array([0., 0.]) at ['policy'], got "
            "array([1., 1.]).",
        ),
        (
            SourceSuite,
            CountsDown,
            "versions_never_fall_and_tell_every_change",
            "`poll_variables` must never count versions down, got 8 after 9. A client ignores",
        ),
        (
            SourceSuite,
            ChangesUntold,
            "versions_never_fall_and_tell_every_change",
            "`poll_variables` must give changed variables a higher version, got 3 again.",
        ),
        (
            LearnerSuite,
            GivesTensors,
            "each_name_gives_one_nest_of_arrays",
            "`get_variables` must return numpy arrays, expected them in 'policy', got a torch.Tensor.",
        ),
        (
            LearnerSuite,
            KnowsEveryName,
            "an_unknown_name_is_refused_and_the_known_ones_are_listed",
            "`get_variables` of an unknown name must raise KeyError, got no error.",
        ),
        (
            LearnerSuite,
            SendsInVain,
            "versions_grow_and_nothing_is_sent_twice",
            "`poll_variables` with the newest version must return None, got version 0.",
        ),
        (
            LearnerSuite,
            StandsStill,
            "a_step_changes_some_variable",
            "`step` must change some variable, expected a difference in ['policy'] after 2 steps, got none.",
        ),
        (
            LearnerSuite,
            StepsTooOften,
            "run_makes_as_many_steps_as_it_is_told",
            "`run(num_steps=3)` must do what 3 calls of `step` do. Expected array([3., 3.], "
            "dtype=float32) at ['policy']['steps'], got array([5., 5.], dtype=float32).",
        ),
        (
            LearnerSuite,
            ForgetsItsSteps,
            "a_restored_learner_continues_as_the_saved_one",
            "`restore` must let a learner continue as the saved one, 0 steps later too. Expected "
            "array([2., 2.], dtype=float32) at ['policy']['steps'], got array([0., 0.], "
            "dtype=float32).",
        ),
        (
            LearnerSuite,
            ServesHalfSteps,
            "other_threads_get_what_a_completed_step_left",
            "`poll_variables` must give another thread what the last completed step left, got what none",
        ),
        (
            LearnerSuite,
            SharesItsState,
            "a_saved_state_is_a_copy",
            "`save` must return a copy, but later steps changed it. Expected array(1) at "
            "['num_steps'], got array(3).",
        ),
    ],
)
def test_a_broken_contract_is_found_and_named(suite, part, test, message):
    broken = type("Broken", (suite,), {"part": part})()
    with pytest.raises(AssertionError) as caught:
        getattr(broken, f"test_{test}")()
    assert str(caught.value).startswith(message)


class Unversioned(core.VariableSource):
    def get_variables(self, names):
        if set(names) - {"policy", "critic"}:
            raise KeyError("There are only policy and critic.")
        return [np.full(2, len(name)) for name in names]


class TestUnversionedSource(testing.VariableSourceConformance):
    names = ("policy", "critic")

    def make_source(self):
        return Unversioned()
