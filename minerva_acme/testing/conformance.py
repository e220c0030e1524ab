"""What each contract of `core` promises, as tests that your own part can inherit.

    class TestMyLearner(testing.LearnerConformance):
        def make_learner(self):
            return MyLearner(...)

pytest collects the subclass; the classes here stand for no part and are not collected.
"""

import abc
import copy
import pickle
import threading
from collections.abc import Sequence
from concurrent import futures
from typing import Any

import dm_env
import numpy as np
import tree

from minerva_acme import core, environments, specs, types
from minerva_acme.testing import checks

_MOST_STEPS = 8
"""Of episodes whose items are counted: more than the n of usual n-step returns."""


class ActorConformance(abc.ABC):
    """Plays an actor in an environment that it was made for."""

    @abc.abstractmethod
    def make_actor(self) -> core.Actor:
        """Makes a new actor; two of them may share nothing that changes."""

    @abc.abstractmethod
    def make_environment(self) -> dm_env.Environment:
        """Makes the environment, with short episodes."""

    def make_source(self) -> core.VariableSource | None:
        """Makes a source of the actor's variables; override it, and `make_actor_of`, if it follows one."""
        return None

    def make_actor_of(self, source: core.VariableSource) -> core.Actor:
        """Makes a new actor that takes its variables from this source."""
        raise NotImplementedError(f"{type(self).__name__} must define `make_actor_of` beside `make_source`.")

    def test_actions_conform_to_the_action_spec(self) -> None:
        environment, actor = self.make_environment(), self.make_actor()
        for _ in range(3):
            timestep = environment.reset()
            actor.observe_first(timestep)
            while not timestep.last():
                action = actor.select_action(timestep.observation)
                with checks.no_value_error("`select_action` must keep to the action spec"):
                    specs.check_conforms("action", action, environment.action_spec())
                timestep = environment.step(action)
                actor.observe(action, next_timestep=timestep)
                actor.update()

    def test_update_may_come_before_the_first_timestep_and_between_episodes(self) -> None:
        actor = self.make_actor()
        loop = environments.EnvironmentLoop(environment=self.make_environment(), actor=actor)
        for episode in range(1, 3):
            actor.update(wait=True)
            played = loop.run_episode()["episodes"]
            checks.assert_nests_equal(played, episode, "`update` must let the loop continue.")

    def test_update_asks_the_variable_source(self) -> None:
        source = self.make_source()
        if source is None:
            return
        spy = _Spy(source)
        actor = self.make_actor_of(spy)
        actor.update(wait=True)
        assert spy.num_calls > 0, (
            "`update(wait=True)` must ask the variable source for the newest variables, expected a call of "
            "`poll_variables` or `get_variables`, got none."
        )
        environment = self.make_environment()
        timestep = environment.reset()
        actor.observe_first(timestep)
        for call in range(2):
            before = spy.num_calls
            action = actor.select_action(timestep.observation)
            assert spy.num_calls == before, (
                "`select_action` must leave the weights to `update`, got "
                f"{spy.num_calls - before} calls of the variable source."
            )
            timestep = environment.step(action)
            actor.observe(action, next_timestep=timestep)
            actor.update(wait=True)
            assert spy.num_calls > before, (
                f"`update(wait=True)` must ask the variable source each time, got no call in step {call + 1}."
            )

    def test_what_the_environment_gives_is_left_as_it_is(self) -> None:
        environment, actor = self.make_environment(), self.make_actor()
        timestep = environment.reset()
        before = tree.map_structure(np.copy, timestep.observation)
        actor.observe_first(timestep)
        actor.select_action(timestep.observation)
        what = "`select_action` must leave the observation that it is given as it is."
        checks.assert_nests_equal(timestep.observation, before, what)

    def test_an_action_given_out_is_not_changed_later(self) -> None:
        environment, actor = self.make_environment(), self.make_actor()
        timestep = environment.reset()
        actor.observe_first(timestep)
        action = actor.select_action(timestep.observation)
        before = tree.map_structure(np.copy, action)
        timestep = environment.step(action)
        actor.observe(action, next_timestep=timestep)
        actor.select_action(timestep.observation)
        what = (
            "`select_action` must return fresh arrays, but a later call changed the action of an earlier one."
        )
        checks.assert_nests_equal(action, before, what)

    def test_what_an_episode_showed_is_forgotten_in_the_next(self) -> None:
        """Override it for an actor that is meant to remember more than one episode."""
        environment, player = self.make_environment(), self.make_actor()
        episodes = [_play_episode(environment, player) for _ in range(2)]
        again, reference, other = (
            _replay(self.make_actor(), episodes, is_reversed) for is_reversed in (False, False, True)
        )
        if not checks.are_equal(again, reference):
            return  # Each new actor draws in a way of its own: there is nothing to compare.
        what = (
            "`observe_first` must begin an episode in which nothing is remembered of the one before: the "
            "action differs where that had shown its observations in another order."
        )
        checks.assert_nests_equal(other, reference, what)

    def test_a_state_that_can_be_saved_reproduces_the_actions(self) -> None:
        first, second = self.make_actor(), self.make_actor()
        if not isinstance(first, core.Saveable) or not isinstance(second, core.Saveable):
            return
        observation = self.make_environment().reset().observation
        first.select_action(observation)
        second.restore(_through_a_file(first))
        for _ in range(3):
            expected = first.select_action(observation)
            what = "`restore` must let an actor act as the saved one continues to act."
            checks.assert_nests_equal(second.select_action(observation), expected, what)


class AdderConformance(abc.ABC):
    """Adds episodes, in order and out of it."""

    @abc.abstractmethod
    def make_adder(self) -> core.Adder:
        """Makes a new adder, whose store takes a few hundred steps without a sample being taken."""

    @abc.abstractmethod
    def make_environment(self) -> dm_env.Environment:
        """Makes an environment whose specs are the adder's, with short episodes."""

    @abc.abstractmethod
    def make_action(self) -> types.NestedArray:
        """Makes an action that the environment and the adder take."""

    def make_extras(self) -> types.NestedArray:
        """Makes extras that the adder takes; override it if there are any."""
        return ()

    def num_items(self, num_steps: int) -> int | None:
        """Items that an episode of so many steps gives in all; None: that is not tested."""
        del num_steps
        return None

    def test_every_episode_adds_items_and_the_count_never_falls(self) -> None:
        environment = self.make_environment()
        with self.make_adder() as adder:
            counts = [adder.num_inserted]
            checks.assert_nests_equal(counts, [0], "`num_inserted` of a new adder must be 0.")
            for _ in range(3):
                before = counts[-1]
                for _ in self._play(adder, environment):
                    counts.append(adder.num_inserted)
                assert counts[-1] > before, (
                    f"`num_inserted` must grow with every episode, expected > {before}, got {counts[-1]}."
                )
            assert counts == sorted(counts), f"`num_inserted` must never fall, got {counts} step by step."

    def test_calls_out_of_order_are_refused_and_change_nothing(self) -> None:
        first, step = self._begin(self.make_environment())
        second = step[1]
        with self.make_adder() as adder:
            checks.assert_refused("`add` where no episode is open", adder.add, *step)
            checks.assert_refused("`add_first` with a MID timestep", adder.add_first, second)
            adder.add_first(first)
            checks.assert_refused("`add_first` while an episode is open", adder.add_first, first)
            adder.add(*step)
            adder.reset()
            assert_nothing_lost("reset", adder)

    def test_a_field_that_breaks_its_spec_is_refused_and_the_adder_stays_usable(self) -> None:
        environment = self.make_environment()
        first, (action, second, extras) = self._begin(environment)
        with self.make_adder() as adder:
            broken = first._replace(observation=_break(first.observation))
            wrong = "that breaks its spec by an axis too many"
            checks.assert_refused(f"`add_first` with an observation {wrong}", adder.add_first, broken)
            adder.add_first(first)
            before = adder.num_inserted
            steps = {
                f"an action {wrong}": (_break(action), second, extras),
                f"an observation {wrong}": (action, second._replace(observation=broken.observation), extras),
            }
            bounds = environment.discount_spec()
            if isinstance(bounds, specs.BoundedArray):
                too_large = np.asarray(specs.bounds(bounds)[1] + 1, bounds.dtype)[()]
                steps["a discount above its bound"] = (action, second._replace(discount=too_large), extras)
            for what, step in steps.items():
                checks.assert_refused(f"`add` with {what}", adder.add, *step)
            what = "`add` must write nothing when it refuses."
            checks.assert_nests_equal(adder.num_inserted, before, what)
            with checks.no_value_error("`add` must continue the episode after it refused a step"):
                adder.add(action, second, extras)
            adder.reset()
            assert_nothing_lost("reset", adder, before)

    def test_the_end_of_an_episode_loses_no_transition(self) -> None:
        first, (action, second, extras) = self._begin(self.make_environment())
        for discount, end in ((0, "a true end (LAST, discount 0)"), (1, "a time limit (LAST, discount 1)")):
            last = _last(second, discount)
            for num_steps in range(1, _MOST_STEPS + 1):
                with self.make_adder() as adder:
                    adder.add_first(first)
                    for _ in range(num_steps - 1):
                        adder.add(action, second, extras)
                    adder.add(action, last, extras)
                    expected, found = self.num_items(num_steps), adder.num_inserted
                assert found > 0, (
                    f"`add` must write what is left of an episode at {end}, expected items after {num_steps} "
                    "steps, got 0."
                )
                assert expected is None or found == expected, (
                    f"`add` must write what is left of an episode at {end}, expected {expected} items after "
                    f"{num_steps} steps, got {found}."
                )

    def test_reset_ends_the_open_episode_and_loses_no_transition(self) -> None:
        with self.make_adder() as cut, self.make_adder() as truncated:
            first, (action, second, extras) = self._begin(self.make_environment())
            truncated.add_first(first)
            truncated.add(action, second._replace(step_type=dm_env.StepType.LAST), extras)
            assert_nothing_lost("add", truncated)
            cut.add_first(first)
            cut.add(action, second, extras)
            cut.reset()
            what = "`reset` must write as many items as a time limit would."
            checks.assert_nests_equal(cut.num_inserted, truncated.num_inserted, what)
            assert_nothing_lost("reset", cut)
            cut.add_first(first)

    def test_reset_and_flush_may_come_at_any_time(self) -> None:
        environment = self.make_environment()
        with self.make_adder() as adder:
            adder.reset()
            adder.flush()
            what = "`reset` and `flush` must write nothing before the first episode."
            checks.assert_nests_equal(adder.num_inserted, 0, what)
            for _ in self._play(adder, environment):
                adder.flush()
            count = adder.num_inserted
            adder.reset()
            adder.flush()
            what = "`reset` must write nothing where no episode is open."
            checks.assert_nests_equal(adder.num_inserted, count, what)

    def test_close_ends_the_open_episode(self) -> None:
        first, step = self._begin(self.make_environment())
        adder = self.make_adder()
        adder.add_first(first)
        adder.add(*step)
        adder.close()
        assert_nothing_lost("close", adder)

    def _begin(self, environment: dm_env.Environment) -> tuple[dm_env.TimeStep, tuple[Any, ...]]:
        """Makes the first step of an episode; returns the FIRST timestep and the arguments of `add`."""
        first = environment.reset()
        return first, (self.make_action(), environment.step(self.make_action()), self.make_extras())

    def _play(self, adder: core.Adder, environment: dm_env.Environment) -> Any:
        """Adds one episode; yields after each step."""
        timestep = environment.reset()
        adder.add_first(timestep)
        while not timestep.last():
            timestep = environment.step(self.make_action())
            adder.add(self.make_action(), timestep, self.make_extras())
            yield timestep


class VariableSourceConformance(abc.ABC):
    """Asks a source for its variables."""

    names: Sequence[str] = ("policy",)
    """Variables that the source has."""

    @abc.abstractmethod
    def make_source(self) -> core.VariableSource:
        """Makes a new source."""

    def change(self, source: core.VariableSource) -> None:
        """Makes the source's variables change; override it if you can."""
        del source

    def test_each_name_gives_one_nest_of_arrays(self) -> None:
        values = self.make_source().get_variables(self.names)
        what = "`get_variables` must return one nest a name."
        checks.assert_nests_equal(len(values), len(self.names), what)
        for name, value in zip(self.names, values, strict=True):
            leaves = tree.flatten(value)
            assert leaves, f"`get_variables` must return arrays, expected some in '{name}', got none."
            for leaf in leaves:
                assert isinstance(leaf, np.ndarray | np.generic), (
                    f"`get_variables` must return numpy arrays, expected them in '{name}', got a "
                    f"{type(leaf).__module__}.{type(leaf).__name__}."
                )

    def test_variables_come_in_the_order_that_is_asked_for(self) -> None:
        source = self.make_source()
        forwards = source.get_variables(self.names)
        backwards = source.get_variables(self.names[::-1])
        what = "`get_variables` must return the variables in the order of the names."
        checks.assert_nests_equal(backwards[::-1], forwards, what)
        checks.assert_nests_equal(source.get_variables([]), [], "`get_variables` of no names must return [].")

    def test_variables_given_out_are_copies(self) -> None:
        for method in ("get_variables", "poll_variables"):
            source = self.make_source()
            values = self._variables(source, method)
            before = copy.deepcopy(values)
            self.change(source)
            what = f"`{method}` must return copies."
            checks.assert_nests_equal(values, before, what)
            again = copy.deepcopy(self._variables(source, method))
            for leaf in tree.flatten(values):
                if isinstance(leaf, np.ndarray):
                    leaf.fill(0)
            checks.assert_nests_equal(self._variables(source, method), again, what)

    def test_an_unknown_name_is_refused_and_the_known_ones_are_listed(self) -> None:
        source = self.make_source()
        try:
            source.get_variables(["no such variable"])
        except KeyError as error:
            message = str(error)
        else:
            raise AssertionError("`get_variables` of an unknown name must raise KeyError, got no error.")
        for name in self.names:
            assert name in message, (
                f"`get_variables` must list the names there are when it refuses one, expected '{name}' in: "
                f"{message}"
            )

    def test_versions_grow_and_nothing_is_sent_twice(self) -> None:
        source = self.make_source()
        first = source.poll_variables(self.names)
        assert first is not None, "`poll_variables` without `newer_than` must return variables, got None."
        what = "`poll_variables` must return what `get_variables` does."
        checks.assert_nests_equal(first.values, source.get_variables(self.names), what)
        if first.version is None:
            return
        again = source.poll_variables(self.names, newer_than=first.version)
        assert again is None, (
            f"`poll_variables` with the newest version must return None, got version {again.version}."
        )
        self.change(source)
        second = source.poll_variables(self.names, newer_than=first.version)
        if second is not None:
            assert second.version is not None and second.version > first.version, (
                f"`poll_variables` must count versions up, expected > {first.version}, got {second.version}."
            )

    def test_versions_never_fall_and_tell_every_change(self) -> None:
        source = self.make_source()
        before = source.poll_variables(self.names)
        for number in range(5):
            if number % 2:
                self.change(source)
            after = source.poll_variables(self.names)
            assert before is not None and after is not None, (
                "`poll_variables` without `newer_than` must return variables, got None."
            )
            if before.version is None or after.version is None:
                assert before.version == after.version, (
                    "`poll_variables` must count versions always or never, got one and None."
                )
                return
            assert after.version >= before.version, (
                f"`poll_variables` must never count versions down, got {after.version} after "
                f"{before.version}. A client ignores what is older than it has."
            )
            assert after.version > before.version or checks.are_equal(after.values, before.values), (
                f"`poll_variables` must give changed variables a higher version, got {after.version} again."
            )
            before = after

    def _variables(
        self, source: core.VariableSource, method: str = "get_variables"
    ) -> dict[str, types.NestedArray]:
        """The variables by name, for messages."""
        if method == "get_variables":
            values = source.get_variables(self.names)
        else:
            answer = source.poll_variables(self.names)
            assert answer is not None, (
                "`poll_variables` without `newer_than` must return variables, got None."
            )
            values = answer.values
        return dict(zip(self.names, values, strict=True))


class LearnerConformance(VariableSourceConformance):
    """Lets a learner learn, and saves and restores it."""

    @abc.abstractmethod
    def make_learner(self) -> core.Learner:
        """Makes a new learner, equal to every other that this makes, on a dataset that repeats one batch."""

    def make_source(self) -> core.VariableSource:
        return self.make_learner()

    def change(self, source: core.VariableSource) -> None:
        assert isinstance(source, core.Learner)
        source.step()

    def test_a_step_changes_some_variable(self) -> None:
        learner = self.make_learner()
        before = tree.flatten(learner.get_variables(self.names))
        learner.run(num_steps=2)
        after = tree.flatten(learner.get_variables(self.names))
        assert any((old != new).any() for old, new in zip(before, after, strict=True)), (
            f"`step` must change some variable, expected a difference in {list(self.names)} after 2 steps, "
            "got none."
        )

    def test_run_makes_as_many_steps_as_it_is_told(self) -> None:
        stepped, run = self.make_learner(), self.make_learner()
        for _ in range(3):
            stepped.step()
        run.run(num_steps=0)
        run.run(num_steps=3)
        what = "`run(num_steps=3)` must do what 3 calls of `step` do."
        checks.assert_nests_equal(self._variables(run), self._variables(stepped), what)

    def test_a_restored_learner_continues_as_the_saved_one(self) -> None:
        saved, restored = self.make_learner(), self.make_learner()
        saved.run(num_steps=2)
        restored.restore(_through_a_file(saved))
        for num_steps in range(3):
            what = f"`restore` must let a learner continue as the saved one, {num_steps} steps later too."
            checks.assert_nests_equal(self._variables(restored), self._variables(saved), what)
            saved.step()
            restored.step()

    def test_other_threads_get_what_a_completed_step_left(self) -> None:
        learner, is_done = self.make_learner(), threading.Event()
        completed = [learner.get_variables(self.names)]
        answers: list[list[types.NestedArray]] = []

        def ask() -> None:
            while not is_done.is_set():
                answer = learner.poll_variables(self.names)
                assert answer is not None
                answers.append(answer.values)

        with futures.ThreadPoolExecutor(1) as threads:
            asking = threads.submit(ask)
            try:
                for _ in range(20):
                    learner.step()
                    completed.append(learner.get_variables(self.names))
            finally:
                is_done.set()
            asking.result()
        last = 0
        for answer in answers:
            while last < len(completed) and not checks.are_equal(answer, completed[last]):
                last += 1
            assert last < len(completed), (
                "`poll_variables` must give another thread what the last completed step left, got what none "
                "of 20 steps left, or what an earlier one did. `learners.ModuleLearner` says how."
            )

    def test_a_saved_state_is_a_copy(self) -> None:
        learner = self.make_learner()
        learner.step()
        state = learner.save()
        before = copy.deepcopy(state)
        learner.run(num_steps=2)
        checks.assert_nests_equal(state, before, "`save` must return a copy, but later steps changed it.")


def _play_episode(environment: dm_env.Environment, actor: core.Actor) -> list[dm_env.TimeStep]:
    """Plays an episode; returns its timesteps."""
    timesteps = [environment.reset()]
    actor.observe_first(timesteps[0])
    while not timesteps[-1].last():
        action = actor.select_action(timesteps[-1].observation)
        timesteps.append(environment.step(action))
        actor.observe(action, next_timestep=timesteps[-1])
    return timesteps


def _replay(
    actor: core.Actor, episodes: Sequence[Sequence[dm_env.TimeStep]], is_reversed: bool
) -> list[types.NestedArray]:
    """Lets an actor live through recorded episodes; returns its actions in the last one.

    Args:
        actor: a new one; its actions have no consequences.
        episodes: the timesteps of each.
        is_reversed: whether it selects its actions in the others as if their observations came from the end
            to the beginning.
    """
    for timesteps in episodes:
        shown = [timestep.observation for timestep in timesteps[:-1]]
        if is_reversed and timesteps is not episodes[-1]:
            shown.reverse()
        actor.observe_first(timesteps[0])
        actions = []
        for observation, timestep in zip(shown, timesteps[1:], strict=True):
            actions.append(actor.select_action(observation))
            actor.observe(actions[-1], next_timestep=timestep)
    return actions


class _Spy(core.VariableSource):
    """Counts how often a source is asked."""

    def __init__(self, source: core.VariableSource) -> None:
        self.num_calls = 0
        self._source = source

    def get_variables(self, names: Sequence[str]) -> list[types.NestedArray]:
        self.num_calls += 1
        return self._source.get_variables(names)

    def poll_variables(
        self, names: Sequence[str], newer_than: int | None = None
    ) -> core.VersionedVariables | None:
        self.num_calls += 1
        return self._source.poll_variables(names, newer_than)


def _last(timestep: dm_env.TimeStep, discount: float) -> dm_env.TimeStep:
    """The timestep as the last one of its episode."""
    discounts = tree.map_structure(lambda leaf: np.full_like(leaf, discount)[()], timestep.discount)
    return timestep._replace(step_type=dm_env.StepType.LAST, discount=discounts)


def _through_a_file(part: core.Saveable) -> core.State:
    state = part.save()
    try:
        return checks.through_a_file(state)
    except pickle.UnpicklingError as error:
        raise AssertionError(
            "`save` must return dicts, lists, tuples, tensors, numbers, strings, booleans and None alone, "
            f"got {state!r}. Turn numpy's arrays into tensors or lists."
        ) from error


def assert_nothing_lost(method: str, adder: core.Adder, before: int = 0) -> None:
    found = adder.num_inserted
    assert found > before, (
        f"`{method}` must write the transition of the open episode, expected > {before} items, got {found}."
    )


def _break(nest: types.NestedArray) -> types.NestedArray:
    """The nest with an axis too many in its first leaf."""
    first, *others = tree.flatten(nest)
    return tree.unflatten_as(nest, [np.asarray(first)[None], *others])
