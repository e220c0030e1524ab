"""Our observers pass their contract, and broken ones do not."""

import numpy as np
import pytest

from minerva_acme import environments, observers, testing

from . import wrong_parts

BROKEN = []
breaks = wrong_parts.noted_in(BROKEN)


class Suite(testing.ObserverConformance):
    def make_environment(self):
        return testing.FakeEnvironment(episode_length=5)


class TestActionNorm(Suite):
    def make_observer(self):
        return observers.ActionNorm()


class TestObservationNorm(Suite):
    def make_observer(self):
        return observers.ObservationNorm()


class TestActionStatistics(Suite):
    def make_observer(self):
        return observers.ActionStatistics()


class TestObservationStatistics(Suite):
    def make_observer(self):
        return observers.ObservationStatistics()


class TestMeasurement(Suite):
    def make_observer(self):
        return observers.Measurement(
            "first", lambda environment, timestep, action: float(action.flat[0]), percentiles=[50]
        )


class TestEnvironmentInfo(testing.ObserverConformance):
    def make_environment(self):
        return environments.make("MountainCarContinuous-v0", seed=0, max_episode_steps=6)

    def make_observer(self):
        return observers.EnvironmentInfo()


class Sum:
    """Adds up the first numbers of the actions of an episode."""

    def __init__(self):
        self.sum = 0.0

    def observe_first(self, environment, timestep):
        self.sum = 0.0

    def observe(self, environment, timestep, action):
        self.sum += float(action.flat[0])

    def get_metrics(self):
        return {"action/sum": self.sum}


class SumSuite(Suite):
    part = Sum

    def make_observer(self):
        return self.part()


class TestSum(SumSuite):
    pass


@breaks(
    "metrics_are_values_by_name_that_a_logger_takes", "`get_metrics` must return values that a logger takes:"
)
class GivesArrays(Sum):
    def get_metrics(self):
        return {"action/sum": np.full(2, self.sum)}


@breaks("metrics_are_values_by_name_that_a_logger_takes", "`get_metrics` must return a dict, got [")
class GivesAList(Sum):
    def get_metrics(self):
        return [self.sum]


@breaks(
    "metrics_are_values_by_name_that_a_logger_takes", "`get_metrics` must name its metrics with text, got"
)
class NamesByNumber(Sum):
    def get_metrics(self):
        return {0: self.sum}


@breaks(
    "the_names_are_none_of_the_loops", "`get_metrics` must not name a metric like one of the loop, which it"
)
class ReplacesTheReturn(Sum):
    def get_metrics(self):
        return {"episode_return": self.sum}


@breaks("an_episode_is_measured_by_itself", "`observe_first` must begin anew, but the metrics of an episode")
class NeverForgets(Sum):
    def observe_first(self, environment, timestep):
        pass


@breaks(
    "an_episode_that_was_cut_leaves_nothing_behind", "`observe_first` must begin anew, but an episode that"
)
class BeginsAfterItWasRead(Sum):
    """Begins anew when its metrics were read, not when an episode begins."""

    def observe_first(self, environment, timestep):
        pass

    def get_metrics(self):
        metrics, self.sum = super().get_metrics(), 0.0
        return metrics


@breaks("what_is_watched_is_left_as_it_is", "`observe` must not write into the timestep or the action.")
class ScalesTheAction(Sum):
    def observe(self, environment, timestep, action):
        action *= 2.0
        super().observe(environment, timestep, action)


@breaks("what_is_watched_is_left_as_it_is", "`observe_first` must not write into the timestep or the action.")
class NormalisesTheObservation(Sum):
    def observe_first(self, environment, timestep):
        super().observe_first(environment, timestep)
        timestep.observation[...] -= 1.0


@breaks("what_is_watched_is_left_as_it_is", "`observe` must not play, got 1 calls of")
class LooksAhead(Sum):
    def observe(self, environment, timestep, action):
        super().observe(environment, timestep, action)
        if not timestep.last():
            environment.step(action)


@breaks("what_is_watched_is_left_as_it_is", "`get_metrics` must not play, got a call")
class ShowsTheBeginning(Sum):
    def get_metrics(self):
        self.environment.reset()
        return super().get_metrics()

    def observe_first(self, environment, timestep):
        super().observe_first(environment, timestep)
        self.environment = environment

    def __deepcopy__(self, memo):
        return type(self)()


@breaks(
    "copies_watch_on_their_own", "A deep copy must watch on its own, but another copy changed its metrics."
)
class SharesItsSum(Sum):
    """Keeps its numbers in a place that copies have too."""

    sums = {}

    def observe_first(self, environment, timestep):
        self.sums["sum"] = 0.0

    def observe(self, environment, timestep, action):
        self.sums["sum"] += float(action.flat[0])

    def get_metrics(self):
        return {"action/sum": self.sums["sum"]}


@breaks("an_episode_may_have_one_step", "An episode may have one step, got ValueError(")
class NeedsTwoSteps(Sum):
    """Measures how actions change."""

    def observe_first(self, environment, timestep):
        self.changes, self.last = [], None

    def observe(self, environment, timestep, action):
        if self.last is not None:
            self.changes.append(float(np.abs(action - self.last).max()))
        self.last = action.copy()

    def get_metrics(self):
        return {"change/max": max(self.changes)}


@pytest.mark.parametrize(("part", "test", "message"), BROKEN)
def test_a_broken_observer_is_found_and_named(part, test, message):
    broken = type("Broken", (SumSuite,), {"part": part})()
    with pytest.raises(AssertionError) as caught:
        getattr(broken, f"test_{test}")()
    assert str(caught.value).startswith(message)
