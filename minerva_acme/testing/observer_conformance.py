"""The contract of an observer as tests that your own observer can inherit.

class TestMyObserver(testing.ObserverConformance):
    def make_observer(self):
        return MyObserver(...)

    def make_environment(self):
        return MyEnvironment(...)
"""

import abc
import copy
from collections.abc import Mapping, Sequence
from typing import Any

import dm_env
import numpy as np
import tree

from minerva_acme import actors, environments, types, wrappers
from minerva_acme.environments import loop
from minerva_acme.loggers import base as loggers
from minerva_acme.testing import checks


class ObserverConformance(abc.ABC):
    """Tests of an observer, which watches episodes with random actions."""

    seed: int = 0
    """The seed of the actions."""

    @abc.abstractmethod
    def make_observer(self) -> environments.Observer:
        """Makes a new observer, always an equal one."""

    @abc.abstractmethod
    def make_environment(self) -> dm_env.Environment:
        """Makes a new environment, always an equal one, with short episodes and bounded actions."""

    def test_metrics_are_values_by_name_that_a_logger_takes(self) -> None:
        """`get_metrics` must return a dict from names to numbers or text."""
        for metrics in self._watch(self.make_observer(), 2):
            assert isinstance(metrics, Mapping), f"`get_metrics` must return a dict, got {metrics!r}."
            wrong = [name for name in metrics if not isinstance(name, str)]
            assert not wrong, f"`get_metrics` must name its metrics with text, got {wrong}."
            with checks.no_value_error("`get_metrics` must return values that a logger takes"):
                loggers.to_plain(metrics)

    def test_the_names_are_none_of_the_loops(self) -> None:
        """A metric must not replace what the loop itself reports, such as `episode_return`."""
        for metrics in self._watch(self.make_observer(), 1):
            taken = [name for name in metrics if loop.is_of_loops(str(name))]
            assert not taken, (
                f"`get_metrics` must not name a metric like one of the loop, which it would replace, got "
                f"{taken}. Put a name of your own before it: my/{taken[0]}."
            )

    def test_an_episode_is_measured_by_itself(self) -> None:
        """Episodes before must not matter; override it for an observer that measures across episodes."""
        (_, second), (alone,) = self._watch(self.make_observer(), 2), self._watch(self.make_observer(), 1, 1)
        what = "`observe_first` must begin anew, but the metrics of an episode depend on the one before."
        checks.assert_nests_equal(second, alone, what)

    def test_an_episode_that_was_cut_leaves_nothing_behind(self) -> None:
        """After an error the loop begins anew without asking for metrics: the cut episode must not matter."""
        environment, actor, observer = *self._make_scene(), self.make_observer()
        timestep = environment.reset()
        observer.observe_first(environment, timestep)
        if not timestep.last():
            self._step(environment, actor, observer, timestep)
        cut = self._play(environment, actor, observer)
        environment, actor = self._make_scene()
        timestep = environment.reset()
        if not timestep.last():
            environment.step(actor.select_action(timestep.observation))
        what = "`observe_first` must begin anew, but an episode that was cut off changed the metrics."
        checks.assert_nests_equal(cut, self._play(environment, actor, self.make_observer()), what)

    def test_what_is_watched_is_left_as_it_is(self) -> None:
        """An observer must neither write into what it sees nor play: replay and the loop use it too."""
        environment, actor, observer = *self._make_scene(), self.make_observer()
        spy = _Spy(environment)
        timestep = spy.reset()
        self._check_left(spy, observer.observe_first, timestep)
        while not timestep.last():
            action = actor.select_action(timestep.observation)
            timestep = spy.step(copy.deepcopy(action))
            self._check_left(spy, observer.observe, timestep, action)
        num_calls = spy.num_calls
        observer.get_metrics()
        assert spy.num_calls == num_calls, "`get_metrics` must not play, got a call of the environment."

    def test_copies_watch_on_their_own(self) -> None:
        """Each environment of a vector has a deep copy: one must not see what the others watch."""
        observer = self.make_observer()
        alone = self._watch(self.make_observer(), 1)[0]
        one, other = copy.deepcopy(observer), copy.deepcopy(observer)
        (environment, actor), (second, second_actor) = self._make_scene(), self._make_scene()
        timestep, ahead = environment.reset(), second.reset()
        one.observe_first(environment, timestep)
        while not timestep.last():
            other.observe_first(second, ahead)
            while not ahead.last():
                ahead = self._step(second, second_actor, other, ahead)
            other.get_metrics()
            ahead = second.reset()
            timestep = self._step(environment, actor, one, timestep)
        what = "A deep copy must watch on its own, but another copy changed its metrics."
        checks.assert_nests_equal(one.get_metrics(), alone, what)

    def test_an_episode_may_have_one_step(self) -> None:
        """An episode may end in its first step, which must leave metrics that a logger takes."""
        environment, actor, observer = *self._make_scene(), self.make_observer()
        timestep = environment.reset()
        observer.observe_first(environment, timestep)
        action = actor.select_action(timestep.observation)
        timestep = environment.step(action)._replace(step_type=dm_env.StepType.LAST)
        failed: Exception | None = None
        try:
            observer.observe(environment, timestep, action)
            loggers.to_plain(observer.get_metrics())
        except Exception as error:
            failed = error
        assert failed is None, f"An episode may have one step, got {failed!r}."

    def _watch(
        self, observer: environments.Observer, num_episodes: int, num_unseen: int = 0
    ) -> list[Mapping[str, Any]]:
        """Returns the metrics of episodes that an observer watches, after some that it does not see."""
        environment, actor = self._make_scene()
        for _ in range(num_unseen):
            timestep = environment.reset()
            while not timestep.last():
                timestep = environment.step(actor.select_action(timestep.observation))
        return [self._play(environment, actor, observer) for _ in range(num_episodes)]

    def _make_scene(self) -> tuple[dm_env.Environment, actors.RandomActor]:
        environment = self.make_environment()
        return environment, actors.RandomActor(environment.action_spec(), seed=self.seed)

    def _play(
        self, environment: dm_env.Environment, actor: actors.RandomActor, observer: environments.Observer
    ) -> Mapping[str, Any]:
        timestep = environment.reset()
        observer.observe_first(environment, timestep)
        while not timestep.last():
            timestep = self._step(environment, actor, observer, timestep)
        return observer.get_metrics()

    def _step(
        self,
        environment: dm_env.Environment,
        actor: actors.RandomActor,
        observer: environments.Observer,
        timestep: dm_env.TimeStep,
    ) -> dm_env.TimeStep:
        action = actor.select_action(timestep.observation)
        timestep = environment.step(action)
        observer.observe(environment, timestep, action)
        return timestep

    def _check_left(self, spy: "_Spy", watch: Any, timestep: dm_env.TimeStep, *action: Any) -> None:
        """Checks that a call of the observer changes neither its arguments nor the environment."""
        num_calls, before = spy.num_calls, copy.deepcopy((timestep, *action))
        watch(spy, timestep, *action)
        name = watch.__name__
        what = f"`{name}` must not write into the timestep or the action."
        checks.assert_nests_equal(_leaves((timestep, *action)), _leaves(before), what)
        assert spy.num_calls == num_calls, (
            f"`{name}` must not play, got {spy.num_calls - num_calls} calls of `reset` or `step`."
        )


class _Spy(wrappers.EnvironmentWrapper):
    """Counts the calls of an environment."""

    num_calls = 0

    def reset(self) -> dm_env.TimeStep:
        self.num_calls += 1
        return super().reset()

    def step(self, action: types.NestedArray) -> dm_env.TimeStep:
        self.num_calls += 1
        return super().step(action)


def _leaves(nest: Any) -> Sequence[Any]:
    return [np.nan if leaf is None else leaf for leaf in tree.flatten(nest)]
