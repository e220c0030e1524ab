"""Conformance classes pass on parts that keep their contract, and say what is wrong with the others."""

import time

import numpy as np
import pytest
import torch

from minerva_acme import actors, core, specs, testing, types

from . import wrong_parts

BROKEN = []
breaks = wrong_parts.noted_in(BROKEN)


ACTION_SPEC = specs.BoundedArray((2,), np.float32, -1.0, 1.0)


class Actor(actors.RandomActor):
    def __init__(self):
        super().__init__(ACTION_SPEC, seed=0)


class Adder(core.Adder):
    """Keeps transitions, those of a time limit and of a reset alike, once their episode has ended."""

    def __init__(self):
        self._inserted, self._open = 0, None
        self.items, self.pending, self.observation = [], [], None

    @property
    def num_inserted(self):
        return self._inserted

    def add_first(self, timestep):
        if not timestep.first() or self._open is not None:
            raise ValueError("Not now.")
        self._check(timestep.observation, 3)
        self.begin(timestep.observation)
        self._open = 0

    def add(self, action, next_timestep, extras=()):
        if self._open is None:
            raise ValueError("No episode is open.")
        self._check(action, 2)
        self._check(next_timestep.observation, 3)
        if not 0 <= next_timestep.discount <= 1:
            raise ValueError(f"Discount {next_timestep.discount}.")
        self._open += 1
        self.pending.append(
            types.Transition(
                self.observation,
                action,
                next_timestep.reward,
                self.discount(next_timestep),
                next_timestep.observation,
            )
        )
        self.observation = next_timestep.observation
        if next_timestep.last():
            self.reset()

    def begin(self, observation):
        self.observation = observation

    def discount(self, timestep):
        return timestep.discount

    def reset(self):
        self._inserted += self._open or 0
        self._open = None
        self.items += self.pending
        self.pending = []

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

    def read_items(self, adder):
        return adder.items


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


@breaks(
    ActorSuite, "actions_conform_to_the_action_spec", "`select_action` must keep to the action spec: `action`"
)
class OutOfBounds(Actor):
    def select_action(self, observation):
        return np.full(2, 2.0, np.float32)


@breaks(ActorSuite, "what_the_environment_gives_is_left_as_it_is", "`select_action` must not change its")
class ChangesObservations(Actor):
    def select_action(self, observation):
        observation += 1.0
        return super().select_action(observation)


@breaks(
    ActorSuite, "an_action_given_out_is_not_changed_later", "`select_action` must return fresh arrays, but a"
)
class ReusesItsAction(Actor):
    buffer = np.zeros(2, np.float32)

    def select_action(self, observation):
        self.buffer[:] = super().select_action(observation)
        return self.buffer


@breaks(
    ActorSuite, "a_state_that_can_be_saved_reproduces_the_actions", "`restore` must let an actor act as the"
)
class ForgetsItsRandomness(Actor):
    def restore(self, state):
        pass


@breaks(
    ActorSuite, "a_state_that_can_be_saved_reproduces_the_actions", "`save` must only return dicts, lists,"
)
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


@breaks(
    ActorSuite, "what_an_episode_showed_is_forgotten_in_the_next", "`observe_first` must begin an episode in"
)
class NeverForgets(Remembers):
    def observe_first(self, timestep):
        pass


class Following(Actor):
    """Scales its random actions by the variables of a source."""

    def __init__(self, source):
        super().__init__()
        self.source = source
        self.weights = np.zeros(2)

    def select_action(self, observation):
        return (super().select_action(observation) * np.tanh(self.weights)).astype(np.float32)

    def update(self, wait=False):
        (variables,) = self.source.poll_variables(["policy"]).values
        self.weights = variables["steps"]


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


@breaks(
    FollowingSuite, "update_asks_the_variable_source", "`update(wait=True)` must ask the variable source for"
)
class IgnoresUpdate(Following):
    def update(self, wait=False):
        pass


@breaks(
    FollowingSuite, "update_asks_the_variable_source", "`update(wait=True)` must ask the variable source each"
)
class UpdatesOnce(Following):
    was_updated = False

    def update(self, wait=False):
        if not self.was_updated:
            self.was_updated = True
            super().update(wait)


@breaks(
    FollowingSuite, "update_asks_the_variable_source", "`select_action` must leave the weights to `update`,"
)
class UpdatesWhileItActs(Following):
    def select_action(self, observation):
        self.update()
        return super().select_action(observation)


@breaks(
    FollowingSuite, "an_actor_acts_by_the_variables_that_it_takes", "`update(wait=True)` must let the actor"
)
class ActsByNoVariables(Following):
    def update(self, wait=False):
        self.source.poll_variables(["policy"])


@breaks(
    FollowingSuite, "an_actor_acts_by_the_variables_that_it_takes", "`update(wait=True)` must let the actor"
)
class ActsByItsFirstVariables(Following):
    was_updated = False

    def update(self, wait=False):
        if self.was_updated:
            self.source.poll_variables(["policy"])
        else:
            self.was_updated = True
            super().update(wait)


class Recording(Actor):
    """Records what it saw, and its action, as extras."""

    def __init__(self, adder):
        super().__init__()
        self.adder, self.extras = adder, ()

    def observe_first(self, timestep):
        self.adder.add_first(timestep)

    def select_action(self, observation):
        action = super().select_action(observation)
        self.extras = (observation.sum(), action)
        return action

    def observe(self, action, next_timestep):
        self.adder.add(action, next_timestep, self.extras)


class RecordsWhatItRemembers(Recording):
    """Its extras are what was remembered before the step, and the choice."""

    memory = np.zeros(3)

    def observe_first(self, timestep):
        super().observe_first(timestep)
        self.memory = np.zeros(3)

    def select_action(self, observation):
        before, self.memory = self.memory, 0.5 * self.memory + observation
        super().select_action(observation)
        self.extras = (before, self.memory.sum())
        return np.tanh(self.memory[:2]).astype(np.float32)

    def save(self):
        return {**super().save(), "memory": torch.from_numpy(self.memory)}

    def restore(self, state):
        super().restore(state)
        self.memory = state["memory"].numpy()


def late(recording, first, *, begins_anew=False):
    """A class whose extras are those of the step before, `first` at first, or at first in each episode."""

    class RecordsLate(recording):
        earlier = first

        def observe_first(self, timestep):
            super().observe_first(timestep)
            if begins_anew:
                self.earlier = first

        def observe(self, action, next_timestep):
            newest, self.extras = self.extras, self.earlier
            super().observe(action, next_timestep)
            self.earlier = newest

    return RecordsLate


ZERO, MEMORY = (0.0, np.zeros(2, np.float32)), (np.zeros(3), 0.0)
RecordsLate = late(Recording, ZERO)
RecordsLateWithinAnEpisode = late(Recording, ZERO, begins_anew=True)
RecordsNothingAtFirst = late(Recording, ())
RecordsItsMemoryLate = late(RecordsWhatItRemembers, MEMORY)
RecordsItsMemoryLateWithinAnEpisode = late(RecordsWhatItRemembers, MEMORY, begins_anew=True)


class RecordsAnotherAction(Recording):
    def observe(self, action, next_timestep):
        super().observe(np.zeros_like(action), next_timestep)


class RecordingSuite(ActorSuite):
    part = Recording

    def make_actor(self):
        return self.part(Adder())

    def make_actor_with(self, adder):
        return self.part(adder)


breaks(
    RecordingSuite,
    "extras_are_recorded_with_the_action_that_they_belong_to",
    "`observe` must add the extras of an action with that action, got leaf 0 of them later: the "
    "observation of step 5 of an episode changed the extras of the next one.",
)(RecordsLate)
breaks(
    RecordingSuite,
    "extras_are_recorded_with_the_action_that_they_belong_to",
    "`observe` must add the extras of an action with that action, got leaf 0 of them later: the obs",
)(RecordsItsMemoryLate)
breaks(
    RecordingSuite,
    "extras_are_recorded_with_the_action_that_they_belong_to",
    "`observe` must add the extras of an action with that action, got leaf 0 of them later: the "
    "observation of step 1 first changed the extras of step 3.",
)(RecordsItsMemoryLateWithinAnEpisode)
breaks(
    RecordingSuite,
    "extras_are_recorded_with_the_action_that_they_belong_to",
    "`observe` must add the extras of an action with that action; got them a step late: the obs",
)(RecordsLateWithinAnEpisode)
breaks(
    RecordingSuite, "extras_are_recorded_with_the_action_that_they_belong_to", "`observe` must add extras of"
)(RecordsNothingAtFirst)
breaks(
    RecordingSuite,
    "extras_are_recorded_with_the_action_that_they_belong_to",
    "`observe` must add each action as it was selected, and the timestep that it led to. Expected",
)(RecordsAnotherAction)


class TestRecording(RecordingSuite):
    pass


class TestRecordingOfAMemory(RecordingSuite):
    part = RecordsWhatItRemembers


@breaks(
    AdderSuite,
    "no_item_holds_steps_of_two_episodes",
    "Each episode must be written as if it were the only one, but after an episode that `reset` or LAST"
    " ended there was an item that no single episode has: Transition(observation=array(",
)
class MixesEpisodes(Adder):
    """Takes the last observation of an episode for the first one of the next."""

    def begin(self, observation):
        if self.observation is None:
            super().begin(observation)


@breaks(
    AdderSuite,
    "no_item_holds_steps_of_two_episodes",
    "Each episode must be written as if it were the only one, but after an episode that `reset` or LAST"
    " ended this item was lost: Transition(observation=array(",
)
class LosesTheFirstStepAfterReset(Adder):
    """Its count is right."""

    def reset(self):
        if self.items:
            del self.pending[:1]
        super().reset()


@breaks(
    AdderSuite,
    "a_true_end_a_time_limit_and_a_reset_are_written_as_what_they_are",
    "A true end (LAST, discount 0) must be written as such, got the items of a time limit (LAST, discount",
)
class WritesTerminalsAsTimeLimits(Adder):
    def discount(self, timestep):
        return np.ones_like(timestep.discount)


@breaks(
    AdderSuite,
    "a_true_end_a_time_limit_and_a_reset_are_written_as_what_they_are",
    "A true end (LAST, discount 0) must be written as such, got the items of a time limit (LAST, discount",
)
class WritesTimeLimitsAsTerminals(Adder):
    def reset(self):
        self.pending[-1:] = [item._replace(discount=np.float32(0.0)) for item in self.pending[-1:]]
        super().reset()


@breaks(
    AdderSuite,
    "a_true_end_a_time_limit_and_a_reset_are_written_as_what_they_are",
    "`reset` must write what a time limit (LAST, discount 1) would, which is not true for Transition(",
)
class WritesResetsAsTerminals(Adder):
    def reset(self):
        if self._open is not None and self.pending and not self.has_ended:
            self.pending[-1] = self.pending[-1]._replace(discount=np.float32(0.0))
        super().reset()

    def add(self, action, next_timestep, extras=()):
        self.has_ended = next_timestep.last()
        super().add(action, next_timestep, extras)


@breaks(
    AdderSuite,
    "the_end_of_an_episode_loses_no_transition",
    "`add` must write the rest of an episode at a true end (LAST, discount 0), expected items after 1",
)
class LosesTheLastOfThree(Adder):
    """Of 3-step transitions: those of fewer steps, at the end of an episode, are not written."""

    def add(self, action, next_timestep, extras=()):
        super().add(action, next_timestep, extras)
        if next_timestep.last():
            self._inserted -= 2


@breaks(
    AdderSuite,
    "the_end_of_an_episode_loses_no_transition",
    "`add` must write the rest of an episode at a time limit (LAST, discount 1), expected items after 1",
)
@breaks(
    AdderSuite, "reset_ends_the_open_episode_and_loses_no_transition", "`add` must write the transition of"
)
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


@breaks(
    ExactAdderSuite,
    "the_end_of_an_episode_loses_no_transition",
    "`add` must write the rest of an episode at a true end (LAST, discount 0), expected 4 items after 4",
)
class LosesOneOfMany(Adder):
    """Writes all of a short episode."""

    def add(self, action, next_timestep, extras=()):
        num_steps = (self._open or 0) + 1
        super().add(action, next_timestep, extras)
        if next_timestep.last() and num_steps > 3:
            self._inserted -= 1


@breaks(
    AdderSuite, "every_episode_adds_items_and_the_count_never_falls", "`num_inserted` must grow with every"
)
class CountsNothing(Adder):
    num_inserted = 0


@breaks(AdderSuite, "calls_out_of_order_are_refused_and_change_nothing", "`add` when no episode is open must")
class TakesAnyOrder(Adder):
    def add(self, action, next_timestep, extras=()):
        self._open = self._open or 0
        super().add(action, next_timestep, extras)


@breaks(
    AdderSuite,
    "a_field_that_breaks_its_spec_is_refused_and_the_adder_stays_usable",
    "`add_first` with an observation that violates its spec with an extra axis must raise ValueError, got",
)
class TakesAnything(Adder):
    def _check(self, array, size):
        pass


@breaks(
    AdderSuite,
    "a_field_that_breaks_its_spec_is_refused_and_the_adder_stays_usable",
    "`add` with a discount above its bound must raise ValueError, got no error.",
)
class TakesAnyDiscount(Adder):
    def add(self, action, next_timestep, extras=()):
        super().add(action, next_timestep._replace(discount=1.0), extras)


@breaks(
    AdderSuite,
    "a_field_that_breaks_its_spec_is_refused_and_the_adder_stays_usable",
    "`add` must continue the episode after it refused a step: No episode is open.",
)
class BreaksWhenRefusing(Adder):
    def _check(self, array, size):
        if array.shape != (size,):
            self._open = None
        super()._check(array, size)


@breaks(
    AdderSuite, "reset_ends_the_open_episode_and_loses_no_transition", "`reset` must write as many items as a"
)
class LosesTheOpenEpisode(Adder):
    def add(self, action, next_timestep, extras=()):
        super().add(action, next_timestep, extras)
        if next_timestep.last():
            self._inserted += 1

    def reset(self):
        self._open = None


@breaks(
    AdderSuite, "reset_and_flush_may_come_at_any_time", "`reset` and `flush` must write nothing before the"
)
class CountsResets(Adder):
    def reset(self):
        super().reset()
        self._inserted += 1


@breaks(AdderSuite, "close_ends_the_open_episode", "`close` must write the transition of the open episode,")
class ClosesWithoutTheRest(Adder):
    def close(self):
        pass


@breaks(
    LearnerSuite, "variables_given_out_are_copies", "`get_variables` must return copies. Expected array([0.,"
)
class SharesItsArrays(testing.FakeLearner):
    def __init__(self):
        super().__init__()
        self.array = np.zeros(2)

    def step(self):
        super().step()
        self.array += 1

    def get_variables(self, names):
        return [self.array if name == "policy" else super().get_variables([name]) for name in names]


@breaks(
    LearnerSuite, "each_name_gives_one_nest_of_arrays", "`get_variables` must return numpy arrays, expected"
)
class GivesTensors(testing.FakeLearner):
    def get_variables(self, names):
        return [torch.zeros(2) for _ in super().get_variables(names)]


@breaks(
    LearnerSuite, "variables_given_out_are_copies", "`poll_variables` must return copies. Expected array([0.,"
)
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


breaks(
    SourceSuite, "versions_never_fall_and_tell_every_change", "`poll_variables` must never decrease versions,"
)(CountsDown)
breaks(
    SourceSuite, "versions_never_fall_and_tell_every_change", "`poll_variables` must give changed variables a"
)(ChangesUntold)


@breaks(
    LearnerSuite, "variables_given_out_are_copies", "`get_variables` must return copies. A caller wrote into"
)
class SharesOneCache(testing.FakeLearner):
    """Copies once for each version, for all who ask."""

    cached = None, None

    def _variables(self, names, num_steps):
        if self.cached[0] != num_steps:
            self.cached = num_steps, super()._variables(["policy"], num_steps)[0]
        super()._variables(names, num_steps)
        return [self.cached[1] for _ in names]


class SharesAReadOnlyCache(SharesOneCache):
    """Is right: nobody can write to what is shared."""

    def _variables(self, names, num_steps):
        values = super()._variables(names, num_steps)
        for value in values:
            value["steps"].flags.writeable = False
        return values


class TestReadOnlyCache(LearnerSuite):
    part = SharesAReadOnlyCache


class ReversesTheOrder(core.VariableSource):
    """Its variables never change."""

    def get_variables(self, names):
        if set(names) - {"policy", "critic"}:
            raise KeyError("There are only policy and critic.")
        return [np.full(2, ord(name[0])) for name in names][::-1]


class AlikeAtFirst(ReversesTheOrder):
    num_changes = 0

    def get_variables(self, names):
        return [self.num_changes * array for array in super().get_variables(names)]


class TwoNamesSuite(SourceSuite):
    names = ("policy", "critic")

    def change(self, source):
        source.num_changes = 1


breaks(TwoNamesSuite, "variables_come_in_the_order_that_is_asked_for", "`get_variables` must return the")(
    ReversesTheOrder
)
breaks(TwoNamesSuite, "variables_come_in_the_order_that_is_asked_for", "`get_variables` must return the")(
    AlikeAtFirst
)


class Targets(core.Learner):
    """Gradient descent on a square, with a target that follows every 100 steps."""

    def __init__(self):
        self.weights, self.target, self.num_steps = torch.ones(2), torch.full((2,), 2.0), 0

    def step(self):
        self.learn()
        self.num_steps += 1
        if self.num_steps % 100 == 0:
            self.target = self.weights.clone()

    def learn(self):
        self.weights = self.weights - 0.1 * (self.weights - self.target)

    def get_variables(self, names):
        if set(names) - {"policy"}:
            raise KeyError("There is only policy.")
        return [self.weights.numpy().copy() for _ in names]

    def save(self):
        return {"weights": self.weights, "target": self.target.clone(), "num_steps": self.num_steps}

    def restore(self, state):
        self.weights, self.target, self.num_steps = state["weights"], state["target"], state["num_steps"]


class TestTargets(LearnerSuite):
    part = Targets


@breaks(
    LearnerSuite,
    "restore_brings_back_all_that_was_saved",
    "`restore` must bring a new learner to the given state, whatever its numbers. Expected array([1.,",
)
class ForgetsItsTarget(Targets):
    def restore(self, state):
        super().restore({**state, "target": self.target})


@breaks(
    LearnerSuite,
    "restore_brings_back_all_that_was_saved",
    "`restore` must bring a new learner to the given state, whatever its numbers. Expected array(4) at",
)
class ForgetsItsCount(Targets):
    def restore(self, state):
        super().restore({**state, "num_steps": self.num_steps})


@breaks(
    LearnerSuite, "every_step_learns_from_its_batch", "`step` must learn from its batch, but call 2 changed"
)
class DropsEverySecondBatch(Targets):
    def learn(self):
        if self.num_steps % 2 == 0:
            super().learn()


class TestEverySecondStep(LearnerSuite):
    part = DropsEverySecondBatch
    steps_per_update = 2


@breaks(
    LearnerSuite, "an_unknown_name_is_refused_and_the_known_ones_are_listed", "`get_variables` of an unknown"
)
class KnowsEveryName(testing.FakeLearner):
    def get_variables(self, names):
        return super().get_variables(["policy" for _ in names])


@breaks(
    LearnerSuite, "versions_grow_and_nothing_is_sent_twice", "`poll_variables` with the newest version must"
)
class SendsInVain(testing.FakeLearner):
    def poll_variables(self, names, newer_than=None):
        return super().poll_variables(names)


@breaks(
    LearnerSuite, "a_step_changes_some_variable", "`step` must change some variable, expected a difference in"
)
class StandsStill(testing.FakeLearner):
    def step(self):
        pass


@breaks(
    LearnerSuite, "run_makes_as_many_steps_as_it_is_told", "`run(num_steps=3)` must do the same as 3 calls of"
)
class StepsTooOften(testing.FakeLearner):
    def run(self, num_steps=None):
        super().run(num_steps + 1)


@breaks(
    LearnerSuite, "a_restored_learner_continues_as_the_saved_one", "`restore` must let a learner continue as"
)
class ForgetsItsSteps(testing.FakeLearner):
    def restore(self, state):
        pass


@breaks(
    LearnerSuite, "other_threads_get_what_a_completed_step_left", "`poll_variables` must give another thread"
)
class ServesHalfSteps(testing.FakeLearner):
    def step(self):
        self._num_steps += 0.5
        time.sleep(0.01)
        self._num_steps += 0.5


@breaks(
    LearnerSuite, "a_saved_state_is_a_copy", "`save` must return a copy, but later steps changed it. Expected"
)
class SharesItsState(testing.FakeLearner):
    def __init__(self):
        super().__init__()
        self.state = {"num_steps": 0}

    def step(self):
        super().step()
        self.state["num_steps"] += 1

    def save(self):
        return self.state


@breaks(
    LearnerSuite, "an_unknown_name_is_refused_and_the_known_ones_are_listed", "`poll_variables` of an unknown"
)
class PollsEveryName(testing.FakeLearner):
    def poll_variables(self, names, newer_than=None):
        return super().poll_variables(["policy" for _ in names], newer_than)


@breaks(
    LearnerSuite, "versions_grow_and_nothing_is_sent_twice", "`poll_variables` must count versions by whole"
)
class TellsTheTime(testing.FakeLearner):
    """Its versions are times, of which other machines have others."""

    def poll_variables(self, names, newer_than=None):
        answer = super().poll_variables(names, None if newer_than is None else int(newer_than * 10))
        return answer and answer._replace(version=answer.version / 10)


@breaks(
    LearnerSuite, "restore_leaves_the_given_state_as_it_is", "`restore` must copy what it is given, but later"
)
class KeepsTheGivenState(Targets):
    """Restores without a copy, and learns in place."""

    def learn(self):
        self.weights -= 0.1 * (self.weights - self.target)

    def save(self):
        return super().save() | {"weights": self.weights.clone()}


@breaks(
    LearnerSuite, "saving_and_serving_leave_learning_as_it_is", "`save` must leave learning as it is, but"
)
class LearnsLessWhenItIsSaved(testing.FakeLearner):
    """Saves itself in evaluation mode, and stays in it."""

    is_training = True

    def step(self):
        self._num_steps += 1 + self.is_training

    def save(self):
        self.is_training = False
        return super().save() | {"is_training": self.is_training}

    def restore(self, state):
        super().restore(state)
        self.is_training = state["is_training"]


@breaks(
    LearnerSuite, "saving_and_serving_leave_learning_as_it_is", "`get_variables` must leave learning as it"
)
class LearnsLessWhenItIsRead(testing.FakeLearner):
    """Serves its variables in evaluation mode, and stays in it."""

    is_training = True

    def step(self):
        self._num_steps += 1 + self.is_training

    def _variables(self, names, num_steps):
        self.is_training = False
        return super()._variables(names, num_steps)


@breaks(
    LearnerSuite,
    "a_step_leaves_the_settings_of_the_process_as_they_are",
    "`step` must leave torch's settings as they are, expected {'is_grad_enabled': True, ",
)
class LeavesGradientsOff(testing.FakeLearner):
    def step(self):
        super().step()
        torch.set_grad_enabled(False)


@breaks(
    LearnerSuite,
    "a_step_leaves_the_settings_of_the_process_as_they_are",
    "`step` must not seed the global generator of torch, got the same state after two different ones",
)
class SeedsItsNoise(testing.FakeLearner):
    def step(self):
        super().step()
        torch.manual_seed(self._num_steps // 100)
        torch.rand(3)


@breaks(
    LearnerSuite,
    "a_step_leaves_the_settings_of_the_process_as_they_are",
    "`step` must not seed the global generator of numpy, got the same state after two different ones",
)
class SeedsNumpysNoise(testing.FakeLearner):
    def step(self):
        super().step()
        np.random.seed(0)


@pytest.mark.parametrize(("part", "suite", "test", "message"), BROKEN)
@pytest.mark.promise("A subtly wrong part fails its conformance class")
def test_a_broken_contract_is_found_and_named(suite, part, test, message):
    broken = type("Broken", (suite,), {"part": part})()
    with pytest.raises(AssertionError) as caught:
        getattr(broken, f"test_{test}")()
    assert str(caught.value).startswith(message)


class Unversioned(core.VariableSource):
    def get_variables(self, names):
        if set(names) - {"policy", "critic"}:
            raise KeyError("There are only policy and critic.")
        return [np.full(2, ord(name[0])) for name in names]


class TestUnversionedSource(testing.VariableSourceConformance):
    names = ("policy", "critic")

    def make_source(self):
        return Unversioned()


def test_an_adder_whose_items_are_not_read_back_is_told_what_to_define():
    class Unread(AdderSuite):
        read_items = testing.AdderConformance.read_items

    with pytest.raises(NotImplementedError, match=r"Unread must define `read_items\(self, adder\)`, which"):
        Unread().test_no_item_holds_steps_of_two_episodes()
