"""The contracts of `core` as tests that your own part can inherit.

    class TestMyLearner(testing.LearnerConformance):
        def make_learner(self):
            return MyLearner(...)

pytest collects the subclass; the abstract classes here are not collected.
"""

import abc
import contextlib
import copy
import numbers
import pickle
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from typing import Any

import dm_env
import numpy as np
import torch
import tree

from minerva_acme import core, environments, specs, types
from minerva_acme.testing import checks

_MOST_STEPS = 8
"""The maximum length of episodes whose items are counted: more than the n of usual n-step returns."""
_MOST_NOISE = 5
"""How often an actor's variables are changed to get a different action."""


class ActorConformance(abc.ABC):
    """Tests of an actor, in an environment that it was made for."""

    @abc.abstractmethod
    def make_actor(self) -> core.Actor:
        """Makes a new actor; actors must not share anything that changes."""

    @abc.abstractmethod
    def make_environment(self) -> dm_env.Environment:
        """Makes the environment, with short episodes."""

    def make_source(self) -> core.VariableSource | None:
        """Makes a source of the actor's variables; override it, and `make_actor_of`, if the actor has one."""
        return None

    def make_actor_of(self, source: core.VariableSource) -> core.Actor:
        """Makes a new actor that takes its variables from this source."""
        raise NotImplementedError(f"{type(self).__name__} must define `make_actor_of` with `make_source`.")

    def vary(self, variables: types.NestedArray, random: np.random.Generator) -> types.NestedArray:
        """Returns other values of a variable, which change some action; adds noise unless overridden."""
        return tree.map_structure(lambda leaf: _add_noise(np.asarray(leaf), random), variables)

    def make_actor_with(self, adder: core.Adder) -> core.Actor | None:
        """Makes a new actor with this adder, or None to skip its test; override it for actors with extras."""
        del adder
        return None

    def test_actions_conform_to_the_action_spec(self) -> None:
        """Every action must have the structure, shape, dtype and bounds of the action spec."""
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
        """`update` must be safe at any time: loops call it before the first episode and between episodes."""
        actor = self.make_actor()
        loop = environments.EnvironmentLoop(environment=self.make_environment(), actor=actor)
        for episode in range(1, 3):
            actor.update(wait=True)
            played = loop.run_episode()["episodes"]
            checks.assert_nests_equal(played, episode, "`update` must let the loop continue.")

    def test_update_asks_the_variable_source(self) -> None:
        """`update(wait=True)` must query the source every time, and `select_action` never."""
        source = self.make_source()
        if source is None:
            return
        spy = _Spy(source)
        actor = self.make_actor_of(spy)
        actor.update(wait=True)
        assert spy.num_calls > 0, (
            "`update(wait=True)` must ask the variable source for the newest variables, expected a call to "
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

    def test_an_actor_acts_by_the_variables_that_it_takes(self) -> None:
        """After `update(wait=True)`, other variables must lead to other actions."""
        source = self.make_source()
        if source is None:
            return
        environment, player = self.make_environment(), self.make_actor_of(source)
        episodes = [_play_episode(environment, player) for _ in range(2)]

        def act(seed: int | None) -> list[types.NestedArray]:
            """Returns the actions of the second episode, before which the variables change."""
            newer = self.make_source()
            assert newer is not None
            spy = _Spy(newer)
            actor = self.make_actor_of(spy)
            actor.update(wait=True)
            _replay(actor, episodes[:1])
            if seed is not None:
                spy.change = lambda variables: self.vary(variables, np.random.default_rng(seed))
            actor.update(wait=True)
            return _replay(actor, episodes[1:])[-1]

        expected = act(None)
        if not checks.are_equal(act(None), expected):
            return  # Each new actor draws different numbers, so there is nothing to compare.
        assert not all(checks.are_equal(act(seed), expected) for seed in range(_MOST_NOISE)), (
            "`update(wait=True)` must let the actor act by the variables that it takes, got the same actions "
            f"after each of {_MOST_NOISE} changes of them. Select actions by them; if noise cannot change an "
            "action, override `vary`."
        )

    def test_extras_are_recorded_with_the_action_that_they_belong_to(self) -> None:
        """The adder must get actions and timesteps in order, each action with its own extras."""
        player = self.make_actor_with(_Tape())
        if player is None:
            return
        environment = self.make_environment()
        first, second = (_play_episode(environment, player) for _ in range(2))
        expected = self._record(first, second)
        if expected != self._record(first, second):
            return  # Each new actor draws different numbers, so there is nothing to compare.
        num_steps = len(first) - 1
        others = [timestep.observation for timestep in first + second]
        is_late, is_in_time = False, False
        for k in {*range(min(num_steps, _MOST_STEPS)), num_steps - 1}:
            different = (other for other in others if not checks.are_equal(other, first[k].observation))
            changed = first[k]._replace(observation=next(different, first[k].observation))
            found = self._record([*first[:k], changed, *first[k + 1 :]], second)
            for leaf, (one, other) in enumerate(zip(expected, found, strict=True)):
                steps = [t for t, (a, b) in enumerate(zip(one, other, strict=True)) if a != b]
                promise = (
                    f"`observe` must add the extras of an action with that action, got leaf {leaf} of them"
                )
                assert not steps or steps[-1] < num_steps, (
                    f"{promise} later: the observation of step {k + 1} of an episode changed the extras of "
                    "the next one."
                )
                assert not steps or steps[0] <= k + 1, (  # one later: extras may be from before the step
                    f"{promise} later: the observation of step {k + 1} first changed the extras of step "
                    f"{steps[0] + 1}."
                )
                is_in_time |= k in steps
                is_late |= steps == [k + 1] and k + 2 < num_steps
        assert is_in_time or not is_late, (
            "`observe` must add the extras of an action with that action; got them a step late: the "
            "observation of a step only changed the extras of the next one."
        )

    def _record(self, *episodes: Sequence[dm_env.TimeStep]) -> list[list[Any]]:
        """Replays episodes with a new actor; returns, for each leaf of its extras, the values by step."""
        tape = _Tape()
        actor = self.make_actor_with(tape)
        assert actor is not None
        actions = [action for those in _replay(actor, episodes) for action in those]
        timesteps = [timestep for episode in episodes for timestep in episode[1:]]
        what = "`observe` must add each action as it was selected, and the timestep that it led to."
        found = [(action, *timestep) for action, timestep, _ in tape.steps]
        wanted = [(action, *timestep) for action, timestep in zip(actions, timesteps, strict=True)]
        checks.assert_nests_equal(found, wanted, what)
        extras = [[np.asarray(leaf).tolist() for leaf in tree.flatten(step[2])] for step in tape.steps]
        sizes = [len(leaves) for leaves in extras]
        assert len(set(sizes)) == 1, (
            f"`observe` must add extras of the same structure at every step, got {sizes} leaves step by step."
        )
        return [*map(list, zip(*extras, strict=True))]

    def test_what_the_environment_gives_is_left_as_it_is(self) -> None:
        """An actor must not write into observations: adders and observers read them later."""
        environment, actor = self.make_environment(), self.make_actor()
        timestep = environment.reset()
        before = tree.map_structure(np.copy, timestep.observation)
        actor.observe_first(timestep)
        actor.select_action(timestep.observation)
        what = "`select_action` must not change its observation."
        checks.assert_nests_equal(timestep.observation, before, what)

    def test_an_action_given_out_is_not_changed_later(self) -> None:
        """Each action must have its own arrays, since the caller may keep it."""
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
        """An episode must not affect the next; override it for an actor that remembers more than one."""
        environment, player = self.make_environment(), self.make_actor()
        episodes = [_play_episode(environment, player) for _ in range(2)]
        again, reference, other = (
            _replay(self.make_actor(), episodes, is_reversed)[-1] for is_reversed in (False, False, True)
        )
        if not checks.are_equal(again, reference):
            return  # Each new actor draws different numbers, so there is nothing to compare.
        what = (
            "`observe_first` must begin an episode in which the previous one is forgotten: the action "
            "changes if the previous episode shows its observations in another order."
        )
        checks.assert_nests_equal(other, reference, what)

    def test_a_state_that_can_be_saved_reproduces_the_actions(self) -> None:
        """An actor that can be saved must act after `restore` as the saved one would."""
        first, second = self.make_actor(), self.make_actor()
        if not isinstance(first, core.Saveable) or not isinstance(second, core.Saveable):
            return
        observation = self.make_environment().reset().observation
        first.select_action(observation)
        second.restore(_through_a_file(first))
        for _ in range(3):
            expected = first.select_action(observation)
            what = "`restore` must let an actor act as the saved one does."
            checks.assert_nests_equal(second.select_action(observation), expected, what)


class AdderConformance(abc.ABC):
    """Tests of an adder, with calls in order and out of order."""

    @abc.abstractmethod
    def make_adder(self) -> core.Adder:
        """Makes a new adder, whose store accepts a few hundred steps without any sampling."""

    @abc.abstractmethod
    def make_environment(self) -> dm_env.Environment:
        """Makes an environment with the adder's specs and short episodes."""

    @abc.abstractmethod
    def make_action(self) -> types.NestedArray:
        """Makes an action that the environment and the adder accept."""

    def make_extras(self) -> types.NestedArray:
        """Makes extras that the adder accepts; override it if the adder has extras."""
        return ()

    def num_items(self, num_steps: int) -> int | None:
        """Returns the number of items of an episode with `num_steps` steps, or None to skip this test."""
        del num_steps
        return None

    def read_items(self, adder: core.Adder) -> Sequence[types.NestedArray] | None:
        """Reads all items of an adder, the newest one from `make_adder`, which is closed.

        Returns:
            The items in any order, each as a learner gets it but as arrays without a batch axis: a
            `types.Transition`, a `types.Trajectory` or another nest. `testing.read_items` reads them from a
            table. None skips the tests of the items.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define `read_items(self, adder)`, which returns the items that the "
            "adder wrote: `testing.read_items(client, table, layout.unpack)` reads them from a table. Return "
            "None if they cannot be read; then their contents are not tested."
        )

    def test_every_episode_adds_items_and_the_count_never_falls(self) -> None:
        """`num_inserted` must start at 0 and grow with every episode: the pace of learning depends on it."""
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
        """A call out of order must raise ValueError and leave the episode unchanged."""
        first, step = self._begin(self.make_environment())
        second = step[1]
        with self.make_adder() as adder:
            checks.assert_refused("`add` when no episode is open", adder.add, *step)
            checks.assert_refused("`add_first` with a MID timestep", adder.add_first, second)
            adder.add_first(first)
            checks.assert_refused("`add_first` while an episode is open", adder.add_first, first)
            adder.add(*step)
            adder.reset()
            assert_nothing_lost("reset", adder)

    def test_a_field_that_breaks_its_spec_is_refused_and_the_adder_stays_usable(self) -> None:
        """A violated spec must raise ValueError before anything is written; the episode continues."""
        environment = self.make_environment()
        first, (action, second, extras) = self._begin(environment)
        with self.make_adder() as adder:
            broken = first._replace(observation=_break(first.observation))
            wrong = "that violates its spec with an extra axis"
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
        """LAST must write the rest of an episode, however short, at a true end and at a time limit."""
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
                    f"`add` must write the rest of an episode at {end}, expected items after {num_steps} "
                    "steps, got 0."
                )
                assert expected is None or found == expected, (
                    f"`add` must write the rest of an episode at {end}, expected {expected} items after "
                    f"{num_steps} steps, got {found}."
                )

    def test_reset_ends_the_open_episode_and_loses_no_transition(self) -> None:
        """`reset` must write as many items as a time limit would, and allow a new episode to begin."""
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

    def test_no_item_holds_steps_of_two_episodes(self) -> None:
        """Each episode must be written as if it were the only one; override it if items span several."""
        environment = self.make_environment()
        cut, whole = self._episode(environment, is_cut=True), self._episode(environment)
        alone = [self._written(episode) for episode in (cut, whole)]
        together = self._written(cut, whole, cut)
        if together is None or alone[0] is None or alone[1] is None:
            return
        expected = [*alone[0], *alone[1], *alone[0]]
        for item in together:
            assert any(checks.are_equal(item, one) for one in expected), (
                "Each episode must be written as if it were the only one, but after an episode that `reset` "
                f"or LAST ended there was an item that no single episode has: {item!r}."
            )
        for item in expected:
            assert any(checks.are_equal(item, one) for one in together), (
                "Each episode must be written as if it were the only one, but after an episode that `reset` "
                f"or LAST ended this item was lost: {item!r}."
            )

    def test_a_true_end_a_time_limit_and_a_reset_are_written_as_what_they_are(self) -> None:
        """Items must end with discount 0 only at a true end; `reset` must write what a time limit would."""
        episode = self._episode(self.make_environment(), is_cut=True)
        *steps, (action, timestep, extras) = episode[1:]
        open_end = _last(timestep, 1)._replace(step_type=dm_env.StepType.MID)
        ended, limited, cut = (
            self._written([episode[0], *steps, (action, end, extras)])
            for end in (_last(timestep, 0), _last(timestep, 1), open_end)
        )
        if ended is None or limited is None or cut is None:
            return
        for items, other, what in (
            (cut, limited, "`reset` must write what a time limit (LAST, discount 1) would"),
            (limited, cut, "A time limit (LAST, discount 1) must write what `reset` would"),
        ):
            for item in items:
                assert any(checks.are_equal(item, one) for one in other), (
                    f"{what}, which is not true for {item!r}."
                )
        assert not all(any(checks.are_equal(item, one) for one in limited) for item in ended), (
            "A true end (LAST, discount 0) must be written as such, got the items of a time limit (LAST, "
            f"discount 1): {ended!r}."
        )
        assert all(not _has_zero(item) for item in limited), (
            "A time limit (LAST, discount 1) must be written as such: learners do not bootstrap if the "
            f"discount is 0, got {limited!r}."
        )

    def test_reset_and_flush_may_come_at_any_time(self) -> None:
        """`reset` and `flush` must write nothing if no episode is open."""
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
            what = "`reset` must write nothing if no episode is open."
            checks.assert_nests_equal(adder.num_inserted, count, what)

    def test_close_ends_the_open_episode(self) -> None:
        """`close` must write the transitions of an open episode."""
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

    def _episode(self, environment: dm_env.Environment, is_cut: bool = False) -> list[Any]:
        """Returns an episode's FIRST timestep and the arguments of `add`; if cut, up to 3 steps, no LAST."""
        timestep = environment.reset()
        episode: list[Any] = [copy.deepcopy(timestep)]
        while not timestep.last() and not (is_cut and len(episode) > 3):
            timestep = environment.step(self.make_action())
            episode.append(copy.deepcopy((self.make_action(), timestep, self.make_extras())))
        if is_cut and timestep.last():
            action, timestep, extras = episode[-1]
            episode[-1] = (action, timestep._replace(step_type=dm_env.StepType.MID), extras)
        return episode

    def _written(self, *episodes: Sequence[Any]) -> Sequence[types.NestedArray] | None:
        """Returns the items that a new adder writes for episodes; `reset` ends those without LAST."""
        with self.make_adder() as adder:
            for first, *steps in episodes:
                adder.add_first(first)
                for step in steps:
                    adder.add(*step)
                adder.reset()
        items = self.read_items(adder)
        assert items is None or items, "`read_items` must return the adder's items, got none."
        return items

    def _play(self, adder: core.Adder, environment: dm_env.Environment) -> Any:
        """Adds one episode; yields after each step."""
        timestep = environment.reset()
        adder.add_first(timestep)
        while not timestep.last():
            timestep = environment.step(self.make_action())
            adder.add(self.make_action(), timestep, self.make_extras())
            yield timestep


class VariableSourceConformance(abc.ABC):
    """Tests of a variable source."""

    names: Sequence[str] = ("policy",)
    """The names of the source's variables."""

    @abc.abstractmethod
    def make_source(self) -> core.VariableSource:
        """Makes a new source."""

    def change(self, source: core.VariableSource) -> None:
        """Makes the source's variables change; override it if you can."""
        del source

    def test_each_name_gives_one_nest_of_arrays(self) -> None:
        """`get_variables` must return one nest of numpy arrays for each name."""
        values = self.make_source().get_variables(self.names)
        what = "`get_variables` must return one nest per name."
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
        """Variables must be the same as when requested one by one, in the order of the given names."""
        source = self.make_source()
        for _ in range(2):
            alone = {name: source.get_variables([name])[0] for name in self.names}
            for method in ("get_variables", "poll_variables"):
                for names in (self.names, self.names[::-1]):
                    what = f"`{method}` must return the variables in the order of the names {[*names]}."
                    checks.assert_nests_equal(self._variables(source, method, names), alone, what)
            self.change(source)  # initially all variables may be equal
        checks.assert_nests_equal(source.get_variables([]), [], "`get_variables` of no names must return [].")

    def test_variables_given_out_are_copies(self) -> None:
        """Writing into a caller's arrays, and later changes of the source, must not affect other arrays."""
        for method in ("get_variables", "poll_variables"):
            source = self.make_source()
            values = self._variables(source, method)
            before = copy.deepcopy(values)
            self.change(source)
            what = f"`{method}` must return copies."
            checks.assert_nests_equal(values, before, what)
            one, other = self._variables(source, method), self._variables(source, method)
            kept = copy.deepcopy(other)
            for leaf in tree.flatten([values, one]):
                if isinstance(leaf, np.ndarray) and leaf.flags.writeable:
                    leaf[...] = np.equal(leaf, 0)  # changes every number
            what += " A caller wrote into its own, and another caller's changed."
            for found in (other, self._variables(source), self._variables(source, "poll_variables")):
                checks.assert_nests_equal(found, kept, what)

    def test_an_unknown_name_is_refused_and_the_known_ones_are_listed(self) -> None:
        """Asking for an unknown name must raise KeyError; `get_variables` must list the known ones."""
        for method in ("get_variables", "poll_variables"):
            try:
                getattr(self.make_source(), method)(["no such variable"])
            except KeyError as error:
                message = str(error)
            else:
                raise AssertionError(f"`{method}` of an unknown name must raise KeyError, got no error.")
            for name in self.names:
                assert name in message or method != "get_variables", (
                    f"`get_variables` must list the known names when it refuses one, expected '{name}' in: "
                    f"{message}"
                )

    def test_versions_grow_and_nothing_is_sent_twice(self) -> None:
        """`poll_variables` must return None if the caller already has the newest version."""
        source = self.make_source()
        first = source.poll_variables(self.names)
        assert first is not None, "`poll_variables` without `newer_than` must return variables, got None."
        what = "`poll_variables` must return what `get_variables` does."
        checks.assert_nests_equal(first.values, source.get_variables(self.names), what)
        if first.version is None:
            return
        assert isinstance(first.version, numbers.Integral) and not isinstance(first.version, bool), (
            "`poll_variables` must count versions by whole numbers, which are compared and sent to other "
            f"processes, got {first.version!r}."
        )
        again = source.poll_variables(self.names, newer_than=first.version)
        assert again is None, (
            f"`poll_variables` with the newest version must return None, got version {again.version}."
        )
        self.change(source)
        second = source.poll_variables(self.names, newer_than=first.version)
        if second is not None:
            assert second.version is not None and second.version > first.version, (
                f"`poll_variables` must increase versions, expected > {first.version}, got {second.version}."
            )

    def test_versions_never_fall_and_tell_every_change(self) -> None:
        """Changed variables must have a higher version: a client ignores all others."""
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
                    "`poll_variables` must return versions always or never, got one and None."
                )
                return
            assert after.version >= before.version, (
                f"`poll_variables` must never decrease versions, got {after.version} after "
                f"{before.version}. A client ignores variables older than its own."
            )
            assert after.version > before.version or checks.are_equal(after.values, before.values), (
                f"`poll_variables` must give changed variables a higher version, got {after.version} again."
            )
            before = after

    def _variables(
        self,
        source: core.VariableSource,
        method: str = "get_variables",
        names: Sequence[str] | None = None,
    ) -> dict[str, types.NestedArray]:
        """Returns the variables by name, for messages."""
        names = self.names if names is None else names
        if method == "get_variables":
            values = source.get_variables(names)
        else:
            answer = source.poll_variables(names)
            assert answer is not None, (
                "`poll_variables` without `newer_than` must return variables, got None."
            )
            values = answer.values
        return dict(zip(names, values, strict=True))


class LearnerConformance(VariableSourceConformance):
    """Tests of a learner: its steps, and saving and restoring it."""

    steps_per_update: int = 1
    """The number of steps per update, for a learner that accumulates gradients over several steps."""

    @abc.abstractmethod
    def make_learner(self) -> core.Learner:
        """Makes a new learner, always an equal one, on a dataset that repeats one batch."""

    def make_source(self) -> core.VariableSource:
        return self.make_learner()

    def change(self, source: core.VariableSource) -> None:
        assert isinstance(source, core.Learner)
        source.step()

    def test_a_step_changes_some_variable(self) -> None:
        """A learner must change its variables."""
        learner = self.make_learner()
        before = tree.flatten(learner.get_variables(self.names))
        learner.run(num_steps=2)
        after = tree.flatten(learner.get_variables(self.names))
        assert any((old != new).any() for old, new in zip(before, after, strict=True)), (
            f"`step` must change some variable, expected a difference in {list(self.names)} after 2 steps, "
            "got none."
        )

    def test_every_step_learns_from_its_batch(self) -> None:
        """Every counted step must change a variable or a tensor of the state: no batch may be dropped."""
        learner = self.make_learner()
        before = self._learned(learner)
        for number in range(1, _MOST_STEPS + 1):
            learner.run(num_steps=self.steps_per_update)
            after = self._learned(learner)
            assert len(after) != len(before) or any(map(checks.differ, before, after)), (
                f"`step` must learn from its batch, but call {number * self.steps_per_update} changed no "
                f"number of the variables {list(self.names)} and no float tensor in `save`. If several steps "
                "make one update, set `steps_per_update`."
            )
            before = after

    def test_run_makes_as_many_steps_as_it_is_told(self) -> None:
        """`run(num_steps)` must do the same as `num_steps` calls of `step`."""
        stepped, run = self.make_learner(), self.make_learner()
        for _ in range(3):
            stepped.step()
        run.run(num_steps=0)
        run.run(num_steps=3)
        what = "`run(num_steps=3)` must do the same as 3 calls of `step`."
        checks.assert_nests_equal(self._variables(run), self._variables(stepped), what)

    def test_a_restored_learner_continues_as_the_saved_one(self) -> None:
        """A new learner that restores a state must learn in the same way as the saved learner."""
        saved, restored = self.make_learner(), self.make_learner()
        saved.run(num_steps=2)
        restored.restore(_through_a_file(saved))
        for num_steps in range(3):
            what = f"`restore` must let a learner continue as the saved one, also {num_steps} steps later."
            checks.assert_nests_equal(self._variables(restored), self._variables(saved), what)
            saved.step()
            restored.step()

    def test_restore_brings_back_all_that_was_saved(self) -> None:
        """`save` after `restore` must return the restored state, including target networks and counts."""
        saved, used = self.make_learner(), self.make_learner()
        saved.run(num_steps=4)
        used.run(num_steps=1)
        # The numbers are halved, because target networks may still equal those of a new learner.
        state = tree.map_structure(_halve, _through_a_file(saved))
        for learner, which in ((self.make_learner(), "new"), (used, "used")):
            learner.restore(copy.deepcopy(state))
            what = f"`restore` must bring a {which} learner to the given state, whatever its numbers."
            checks.assert_nests_equal(_through_a_file(learner), state, what)

    def test_other_threads_get_what_a_completed_step_left(self) -> None:
        """Variables that another thread requests must be those after a completed step, never during one."""
        learner, is_done = self.make_learner(), threading.Event()
        completed = [learner.get_variables(self.names)]
        answers: list[list[types.NestedArray]] = []

        def ask() -> None:
            while not is_done.wait(0.0005):  # many times during a step, but not all the time
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
                "`poll_variables` must give another thread the variables after the last completed step, got "
                "those of an earlier step, or of none of 20 steps. See `learners.ModuleLearner`."
            )

    def test_a_saved_state_is_a_copy(self) -> None:
        """`save` must return a copy, which later steps do not change."""
        learner = self.make_learner()
        learner.step()
        state = learner.save()
        before = copy.deepcopy(state)
        learner.run(num_steps=2)
        checks.assert_nests_equal(state, before, "`save` must return a copy, but later steps changed it.")

    def test_restore_leaves_the_given_state_as_it_is(self) -> None:
        """Several learners may restore one state: later steps must not write into it."""
        saved, restored = self.make_learner(), self.make_learner()
        saved.run(num_steps=2)
        state = _through_a_file(saved)
        before = copy.deepcopy(state)
        restored.restore(state)
        restored.run(num_steps=2)
        what = "`restore` must copy what it is given, but later steps changed it."
        checks.assert_nests_equal(state, before, what)

    def test_saving_and_serving_leave_learning_as_it_is(self) -> None:
        """A learner must learn the same however often it is saved and its variables are fetched."""
        alone = self.make_learner()
        alone.run(num_steps=4)
        calls: dict[str, Callable[[core.Learner], Any]] = {
            "save": lambda learner: learner.save(),
            "get_variables": lambda learner: learner.get_variables(self.names),
            "poll_variables": lambda learner: learner.poll_variables(self.names),
        }
        for name, call in calls.items():
            learner = self.make_learner()
            for _ in range(4):
                call(learner)
                learner.step()
                call(learner)
            what = f"`{name}` must leave learning as it is, but with it 4 steps led elsewhere."
            checks.assert_nests_equal(self._variables(learner), self._variables(alone), what)

    def test_a_step_leaves_the_settings_of_the_process_as_they_are(self) -> None:
        """A step must neither leave torch's settings changed nor seed global generators, for all else."""
        learner = self.make_learner()
        with _global_state_kept():
            before = _torch_settings()
            learner.step()
            found = _torch_settings()
            assert found == before, (
                f"`step` must leave torch's settings as they are, expected {before}, got {found}."
            )
            states = []
            for seed in (1, 2):
                random.seed(seed)
                np.random.seed(seed)
                torch.manual_seed(seed)
                learner.step()
                states.append((random.getstate(), np.random.get_state(), torch.get_rng_state()))
        for name, one, other in zip(("random", "numpy", "torch"), *states, strict=True):
            assert not checks.are_equal(one, other), (
                f"`step` must not seed the global generator of {name}, got the same state after two "
                "different ones. Draw from the generator of `LearnerParts`."
            )

    def _learned(self, learner: core.Learner) -> list[Any]:
        """Returns the numbers that learning changes, without scalars of the state, which may be counts."""
        tensors = (leaf for leaf in tree.flatten(learner.save()) if isinstance(leaf, torch.Tensor))
        weights = [tensor for tensor in tensors if tensor.is_floating_point() and tensor.numel() > 1]
        return [*tree.flatten(learner.get_variables(self.names)), *weights]


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
    actor: core.Actor, episodes: Sequence[Sequence[dm_env.TimeStep]], is_reversed: bool = False
) -> list[list[types.NestedArray]]:
    """Replays recorded episodes with an actor; returns its actions in each.

    Args:
        actor: A new actor; its actions have no consequences.
        episodes: The timesteps of each episode.
        is_reversed: Whether the actor selects its actions from observations in reverse order, in all
            episodes but the last.
    """
    actions: list[list[types.NestedArray]] = []
    for timesteps in episodes:
        shown = [timestep.observation for timestep in timesteps[:-1]]
        if is_reversed and timesteps is not episodes[-1]:
            shown.reverse()
        actor.observe_first(timesteps[0])
        actions.append([])
        for observation, timestep in zip(shown, timesteps[1:], strict=True):
            action = actor.select_action(observation)
            actions[-1].append(copy.deepcopy(action))
            actor.observe(action, next_timestep=timestep)
    return actions


class _Spy(core.VariableSource):
    """Counts how often a source is queried, and applies `change`, if set, to its variables."""

    change: Callable[[types.NestedArray], types.NestedArray] | None = None

    def __init__(self, source: core.VariableSource) -> None:
        self.num_calls = 0
        self._source = source

    def get_variables(self, names: Sequence[str]) -> list[types.NestedArray]:
        self.num_calls += 1
        values = self._source.get_variables(names)
        return values if self.change is None else [*map(self.change, values)]

    def poll_variables(
        self, names: Sequence[str], newer_than: int | None = None
    ) -> core.VersionedVariables | None:
        if self.change is None:
            self.num_calls += 1
            return self._source.poll_variables(names, newer_than)
        answer = self._source.poll_variables(names)
        assert answer is not None, "`poll_variables` without `newer_than` must return variables, got None."
        version = None if answer.version is None else answer.version + 1
        if version is not None and newer_than is not None and newer_than >= version:
            return None
        return core.VersionedVariables(version, self.get_variables(names))


class _Tape(core.Adder):
    """Keeps copies of all added steps."""

    num_inserted = 0

    def __init__(self) -> None:
        self.steps: list[tuple[types.NestedArray, dm_env.TimeStep, types.NestedArray]] = []

    def add_first(self, timestep: dm_env.TimeStep) -> None:
        pass

    def add(
        self,
        action: types.NestedArray,
        next_timestep: dm_env.TimeStep,
        extras: types.NestedArray = (),
    ) -> None:
        self.steps.append(copy.deepcopy((action, next_timestep, extras)))

    def flush(self) -> None:
        pass

    def reset(self) -> None:
        pass

    def close(self) -> None:
        pass


def _add_noise(leaf: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Adds noise of scale 1 to an array; an array without negative numbers, such as variances, gets none."""
    if leaf.dtype.kind != "f":
        return leaf
    noise = random.normal(size=leaf.shape)
    return np.asarray((leaf + 0.1) * np.exp(noise) if np.all(leaf >= 0) else leaf + noise, leaf.dtype)


def _last(timestep: dm_env.TimeStep, discount: float) -> dm_env.TimeStep:
    """Returns the timestep as the last one of its episode."""
    discounts = tree.map_structure(lambda leaf: np.full_like(leaf, discount)[()], timestep.discount)
    return timestep._replace(step_type=dm_env.StepType.LAST, discount=discounts)


@contextlib.contextmanager
def _global_state_kept() -> Iterator[None]:
    """Restores torch's settings and the states of the global generators."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    is_enabled, dtype = torch.is_grad_enabled(), torch.get_default_dtype()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        torch.set_grad_enabled(is_enabled)
        torch.set_default_dtype(dtype)


def _torch_settings() -> dict[str, Any]:
    return {
        "is_grad_enabled": torch.is_grad_enabled(),
        "default_dtype": torch.get_default_dtype(),
        "num_threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def _through_a_file(part: core.Saveable) -> core.State:
    state = part.save()
    try:
        return checks.through_a_file(state)
    except pickle.UnpicklingError as error:
        raise AssertionError(
            "`save` must only return dicts, lists, tuples, tensors, numbers, strings, booleans and None, "
            f"got {state!r}. Convert numpy arrays to tensors or lists."
        ) from error


def _halve(leaf: Any) -> Any:
    return leaf * 0.5 if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf


def assert_nothing_lost(method: str, adder: core.Adder, before: int = 0) -> None:
    found = adder.num_inserted
    assert found > before, (
        f"`{method}` must write the transition of the open episode, expected > {before} items, got {found}."
    )


def _has_zero(item: types.NestedArray) -> bool:
    """Returns whether the item's field `discount` is 0 at any step that is not padding."""
    fields = item._asdict() if hasattr(item, "_asdict") else item if isinstance(item, Mapping) else {}
    is_real = np.asarray(fields.get("mask", 1)) > 0
    zeros = (np.asarray(leaf) == 0 for leaf in tree.flatten(fields.get("discount", ())))
    return any(np.any(zero[is_real]) for zero in zeros)


def _break(nest: types.NestedArray) -> types.NestedArray:
    """Returns the nest with an extra axis in its first leaf."""
    first, *others = tree.flatten(nest)
    return tree.unflatten_as(nest, [np.asarray(first)[None], *others])
