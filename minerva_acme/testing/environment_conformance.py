"""The contracts of environments and wrappers, as tests that your own environment or wrapper can inherit.

class TestMyEnvironment(testing.EnvironmentConformance):
    def make_environment(self):
        return MyEnvironment(...)

class TestMyWrapper(testing.WrapperConformance):
    def wrap(self, environment):
        return MyWrapper(environment)
"""

import abc
import contextlib
import copy
import functools
import itertools
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import dm_env
import numpy as np
import tree

from minerva_acme import actors, core, specs, types, wrappers
from minerva_acme.testing import checks, fakes

_MANY_EPISODES = 10
_MOST_REWARDS = 16
"""The number of steps whose rewards are traced through a wrapper: more than usual frame skips."""


class EnvironmentConformance(abc.ABC):
    """Tests of an environment, in complete and interrupted episodes."""

    max_steps: int = 10_000
    """The maximum number of steps of an episode; a longer one counts as endless."""

    must_end: bool = True
    """Whether an episode must end within `max_steps`."""
    num_kept: int = 200
    """The number of timesteps that are kept to check that later calls do not change them."""
    depends_on_seed: bool = True
    """Whether episodes with different seeds differ."""
    episodes_differ: bool = True
    """Whether the episodes of one environment differ; set it to False if the seed determines them all."""

    @abc.abstractmethod
    def make_environment(self) -> dm_env.Environment:
        """Makes a new environment, with short episodes if possible."""

    def make_seeded_environment(self, seed: int) -> dm_env.Environment | None:
        """Makes a new environment from a seed, or None to skip its test; override it if there are seeds."""
        del seed
        return None

    def make_actor(self, action_spec: types.NestedSpec) -> core.Actor:
        """Makes the actor; override it if random actions do not reach the end of an episode."""
        return actors.RandomActor(tree.map_structure(_bounded, action_spec), seed=0)

    def test_the_four_specs_are_nests_of_specs_and_stay_the_same(self) -> None:
        """Specs must be nests of dm_env specs, and not change after an episode."""
        environment = self.make_environment()
        before = specs.make_environment_spec(environment)
        for name, nest in before._asdict().items():
            leaves = tree.flatten(nest)
            for leaf in leaves:
                assert isinstance(leaf, specs.Array), (
                    f"`{name.removesuffix('s')}_spec` must return a nest of dm_env specs, got {leaf!r}."
                )
        self._play(environment)
        after = specs.make_environment_spec(environment)
        for name, old, new in zip(before._fields, before, after, strict=True):
            assert tree.flatten_with_path(old) == tree.flatten_with_path(new), (
                f"`{name.removesuffix('s')}_spec` must return the same spec after an episode as before, "
                f"expected {old!r}, got {new!r}."
            )

    def test_reset_returns_first_before_within_and_after_an_episode(self) -> None:
        """`reset` must return FIRST without reward and discount at any time."""
        environment = self.make_environment()
        for when in ("before the first episode", "twice in a row"):
            assert_is_first("reset", when, environment.reset())
        environment.step(self._act(environment, environment.reset()))
        assert_is_first("reset", "within an episode", environment.reset())
        self._play(environment)
        assert_is_first("reset", "after LAST", environment.reset())

    def test_a_step_before_the_first_reset_and_after_last_begins_an_episode(self) -> None:
        """`step` must ignore its action and return FIRST if no episode is open."""
        environment = self.make_environment()
        action = self._act(environment, self.make_environment().reset())
        assert_is_first("step", "before the first reset", environment.step(action))
        last = self._play(environment)[-1]
        if not last.last():
            return  # it is endless, which another test says
        action = self._act(environment, last)
        assert_is_first("step", "after LAST", environment.step(action))
        second = environment.step(self._act(environment, last))
        assert not second.first(), "`step` must continue the episode that it began, got FIRST twice in a row."

    def test_every_timestep_conforms_to_the_specs(self) -> None:
        """Observations, rewards and discounts must have the shapes, dtypes and bounds of their specs."""
        environment = self.make_environment()
        for _ in range(2):
            for number, timestep in enumerate(self._play(environment)):
                method = f"`step` number {number}" if number else "`reset`"
                with checks.no_value_error(f"{method} must conform to the specs"):
                    specs.check_timestep(timestep, specs.make_environment_spec(environment))

    def test_discounts_lie_between_0_and_1(self) -> None:
        """A discount must be in [0, 1]: with more, values would grow without bound."""
        for number, timestep in enumerate(self._play(self.make_environment())[1:], start=1):
            for leaf in tree.flatten(timestep.discount):
                assert np.all(np.asarray(leaf) >= 0) and np.all(np.asarray(leaf) <= 1), (
                    f"`step` number {number} must return a discount in [0, 1], got {leaf!r}."
                )

    def test_an_episode_is_first_then_mid_then_last(self) -> None:
        """Every step must return MID until one returns LAST."""
        episode = self._play(self.make_environment())
        for number, timestep in enumerate(episode[1:-1], start=1):
            assert timestep.mid(), (
                f"`step` number {number} must return MID before the end, got {timestep.step_type!r}."
            )
        assert episode[-1].last() or not self.must_end, (
            f"`step` must return LAST at some time, got {len(episode) - 1} steps without it. If the "
            "episodes are longer, raise `max_steps`; if they are endless, add a step limit."
        )

    def test_what_was_given_out_is_not_changed_later(self) -> None:
        """No call may write into arrays of any earlier timestep."""
        environment = self.make_environment()
        actor = self.make_actor(environment.action_spec())
        timestep = environment.reset()
        kept = [(timestep, copy.deepcopy(timestep))]
        for number in range(1, self.num_kept + 1):
            if timestep.last():
                timestep, method = environment.reset(), "`reset`"
            else:
                timestep = environment.step(actor.select_action(timestep.observation))
                method = f"`step` number {number}"
            assert_unchanged(method, kept[-1:])
            kept.append((timestep, copy.deepcopy(timestep)))
        environment.reset()
        assert_unchanged("`reset`", kept[-1:])
        assert_unchanged("A later call", kept)

    def test_the_last_observation_is_that_of_the_episode_that_ends(self) -> None:
        """LAST must show the state in which the episode ended: learners bootstrap from it at a time limit."""
        environment = self.make_environment()
        ended = self._play(environment)
        firsts = [ended[0].observation]
        for _ in range(_MANY_EPISODES):  # with few states, an episode may end where the next begins
            following = self._play(environment)
            firsts.append(following[0].observation)
            if not ended[-1].last() or not checks.are_equal(ended[-1].observation, firsts[-1]):
                return
            ended = following
        assert all(checks.are_equal(first, firsts[0]) for first in firsts), (
            "`step` must return with LAST the observation in which the episode ended, got the one that the "
            "next episode begins with. Return the last observation before the reset."
        )

    def test_a_seed_determines_what_happens(self) -> None:
        """A seed must reproduce all episodes, another seed must give others, and episodes must differ."""
        first, second, other = (self.make_seeded_environment(seed) for seed in (7, 7, 8))
        if first is None or second is None or other is None:
            return
        episodes, same, another = (
            [self._play(environment, self.num_kept) for _ in range(2)]
            for environment in (first, second, other)
        )
        pairs = itertools.zip_longest(itertools.chain(*episodes), itertools.chain(*same), fillvalue=())
        for number, (expected, found) in enumerate(pairs):
            what = f"Two environments with the same seed must be equal, but timestep {number} differs."
            checks.assert_nests_equal(tuple(found), tuple(expected), what)
        if not self.depends_on_seed:
            return
        assert not checks.are_equal(episodes, another), (
            "Environments with different seeds must differ, got the same two episodes for seeds 7 and 8. Use "
            "a generator made from the seed; if nothing is random, set `depends_on_seed = False`."
        )
        later = (self._play(first, self.num_kept) for _ in range(_MANY_EPISODES))
        alike = (checks.are_equal(episode, episodes[0]) for episode in itertools.chain(episodes[1:], later))
        assert not self.episodes_differ or not all(alike), (
            f"Episodes of an environment must differ, got the same one {_MANY_EPISODES + 2} times. Make the "
            "generator with the environment and not in `reset`; if the seed determines the episode, set "
            "`episodes_differ = False`."
        )

    def test_an_action_is_left_as_it_is(self) -> None:
        """`step` must not write into its action, not even to clip it to the bounds."""
        environment = self.make_environment()
        action = self._act(environment, environment.reset())
        rule = "`step` must not change its action."
        before = copy.deepcopy(action)
        environment.step(action)
        checks.assert_nests_equal(action, before, rule)
        for sign in (1, -1):  # clipping in place only changes actions beyond the bounds
            environment = self.make_environment()
            environment.reset()
            action = tree.map_structure(functools.partial(_beyond, sign), environment.action_spec(), before)
            beyond = copy.deepcopy(action)
            with contextlib.suppress(Exception):  # it may be refused
                environment.step(action)
            checks.assert_nests_equal(action, beyond, f"{rule} To clip it, make a copy.")

    def _act(self, environment: dm_env.Environment, timestep: dm_env.TimeStep) -> types.NestedArray:
        return self.make_actor(environment.action_spec()).select_action(timestep.observation)

    def _play(
        self,
        environment: dm_env.Environment,
        max_steps: int | None = None,
        actor: core.Actor | None = None,
    ) -> list[dm_env.TimeStep]:
        """Plays an episode of at most `max_steps` steps and returns its timesteps."""
        actor = actor or self.make_actor(environment.action_spec())
        episode = [environment.reset()]
        while len(episode) <= (max_steps or self.max_steps) and not episode[-1].last():
            episode.append(environment.step(actor.select_action(episode[-1].observation)))
        return episode


class WrapperConformance(EnvironmentConformance):
    """Tests of a wrapper: as an environment, its copies, and access to the wrapped environment."""

    max_reward_delay: int | None = 0
    """The number of steps by which a reward may be late, or None if the wrapper makes its own rewards."""

    @abc.abstractmethod
    def wrap(self, environment: dm_env.Environment) -> dm_env.Environment:
        """Wraps an environment that `make_wrapped` made."""

    def make_wrapped(self) -> dm_env.Environment:
        """Makes the environment to wrap, always an equal one."""
        return fakes.FakeEnvironment()

    def make_environment(self) -> dm_env.Environment:
        return self.wrap(self.make_wrapped())

    def test_public_attributes_reach_through(self) -> None:
        """Public attributes of the environment must be accessible through the wrapper."""
        inner = self.make_wrapped()
        wrapper = self.wrap(inner)
        # Set after the wrapper was made, so that copied attributes are not enough.
        inner.conformance_marker = marker = object()  # type: ignore[attr-defined]
        assert getattr(wrapper, "conformance_marker", None) is marker, (
            f"{type(wrapper).__name__} must forward public attributes: expected `conformance_marker` of the "
            "wrapped environment, got none. Inherit from wrappers.EnvironmentWrapper."
        )

    def test_private_and_unknown_attributes_do_not(self) -> None:
        """Private and unknown attributes must raise AttributeError, as copying and pickling expect."""
        inner = self.make_wrapped()
        wrapper = self.wrap(inner)
        inner._conformance_marker = object()  # type: ignore[attr-defined]
        for name in ("_conformance_marker", "no_such_attribute"):
            assert not hasattr(wrapper, name), (
                f"{type(wrapper).__name__} must raise AttributeError for `{name}`, got a value. "
                "Copying and unpickling ask for private names before there is anything to forward to."
            )

    def test_a_discount_of_0_stays_0_and_one_that_is_not_does_not_become_0(self) -> None:
        """The discount of LAST must be passed on unchanged, 0, 1 or between: learners bootstrap by it."""
        found: dict[float, Any] = {}
        for ends_with, what in (
            (0.0, "true end (discount 0)"),
            (1.0, "time limit (discount 1)"),
            (0.625, "discount of 0.625"),
            (0.640625, "discount of 0.640625"),
        ):
            inner = _Scripted(self.make_wrapped(), last_discount=ends_with)
            wrapper = self.wrap(inner)
            timestep = self._play(wrapper)[-1]
            if not (timestep.last() and inner.newest.last()):
                continue  # the wrapper ends episodes by itself
            if [*map(float, _flat(inner.newest.discount))] != [ends_with] * len(_flat(inner.newest.discount)):
                continue  # the environment counts discounts in integers
            name, discounts = type(wrapper).__name__, _flat(timestep.discount)
            assert all((not np.any(leaf)) == (ends_with == 0) for leaf in discounts), (
                f"`step` of {name} must pass on a {what} unchanged, got a discount of "
                f"{timestep.discount!r}. Learners bootstrap if it is not 0."
            )
            for other, given in found.items():
                assert not any(map(checks.are_equal, discounts, given)), (
                    f"`step` of {name} must pass on a {what} unchanged, got {timestep.discount!r} as for "
                    f"{other:g}. Do not round it."
                )
            found[ends_with] = discounts

    def test_every_reward_arrives_with_the_step_that_it_is_of(self) -> None:
        """The reward of every step of the environment must be passed on, at most `max_reward_delay` late."""
        expected, again = self._rewards(), self._rewards()
        if self.max_reward_delay is None or expected != again:
            return  # The wrapper makes its own rewards, or each wrapper draws different numbers.
        made = [number for numbers, _ in expected for number in numbers]
        for number in made[:_MOST_REWARDS]:
            due = next(index for index, (numbers, _) in enumerate(expected) if number in numbers)
            changed = [
                index
                for index, (one, other) in enumerate(zip(expected, self._rewards(number), strict=False))
                if one != other
            ]
            name = type(self.make_environment()).__name__
            promise = f"`step` of {name} must pass on the reward of each step that it makes"
            assert changed, (
                f"{promise}, got none for step {number} of the environment, which it made in its step "
                f"{due + 1}. If it makes its own rewards, set `max_reward_delay = None`."
            )
            assert due <= changed[0] <= due + self.max_reward_delay, (
                f"{promise}, expected the one of step {number} of the environment in its step {due + 1}, got "
                f"it in its step {changed[0] + 1}. If it is late on purpose, set `max_reward_delay`."
            )

    def _rewards(self, rewarded: int | None = None) -> list[tuple[range, list[Any]]]:
        """Plays an episode in which step `rewarded` has a reward, or no step if it is None.

        Returns:
            For each step of the wrapper, the numbers of the steps of the environment that it made, and its
            rewards.
        """
        inner = _Scripted(self.make_wrapped(), rewarded=lambda number: number == rewarded)
        wrapper = self.wrap(inner)
        actor, timestep = self.make_actor(wrapper.action_spec()), wrapper.reset()
        steps: list[tuple[range, list[Any]]] = []
        while len(steps) < self.max_steps and not timestep.last():
            begin = inner.num_steps
            timestep = wrapper.step(actor.select_action(timestep.observation))
            rewards = [np.asarray(leaf).tolist() for leaf in _flat(timestep.reward)]
            steps.append((range(begin + 1, inner.num_steps + 1), rewards))
        return steps

    def test_close_closes_what_is_wrapped(self) -> None:
        """`close` must close the wrapped environment."""
        inner = self.make_wrapped()
        closed: list[bool] = []
        inner.close = lambda: closed.append(True)  # type: ignore[method-assign]
        self.wrap(inner).close()
        assert closed, "`close` must close the wrapped environment, expected one call of its `close`, got 0."

    def test_a_deep_copy_goes_on_alike_and_on_its_own(self) -> None:
        """A deep copy must continue as the original and share nothing with it."""
        self.check_copy("copy.deepcopy", copy.deepcopy)

    def test_a_pickled_copy_goes_on_alike_and_on_its_own(self) -> None:
        """A pickled copy must continue as the original and share nothing with it."""
        self.check_copy("pickle", lambda wrapper: pickle.loads(pickle.dumps(wrapper)))

    def check_copy(self, how: str, make_copy: Callable[[Any], Any]) -> None:
        """Checks that two copies continue as the original, and that neither depends on it."""
        wrapper = self.make_environment()
        first = wrapper.reset()
        action = self._act(wrapper, first)
        wrapper.step(action)
        name = type(wrapper).__name__
        try:
            copied = make_copy(wrapper)
            undisturbed = make_copy(wrapper)
        except Exception as error:
            raise AssertionError(
                f"{how} must copy {name}, got {type(error).__name__}: {error}. Do not keep anything in an "
                "attribute that cannot be copied, such as a lambda or an open file."
            ) from error
        expected = wrapper.step(action)
        for other, what in (
            (copied, "continue as the original"),
            (undisturbed, "not depend on the original"),
        ):
            found = other.step(action)
            message = f"A {how} copy of {name} must {what}."
            checks.assert_nests_equal(tuple(found), tuple(expected), message)


class _Scripted(wrappers.EnvironmentWrapper):
    """Ends episodes with a given discount, or only rewards some steps, and counts its steps."""

    newest: dm_env.TimeStep

    def __init__(
        self,
        environment: dm_env.Environment,
        last_discount: float | None = None,
        rewarded: Callable[[int], bool] | None = None,
    ) -> None:
        super().__init__(environment)
        self.num_steps = 0
        self._last_discount = last_discount
        self._rewarded = rewarded

    def _convert(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        self.num_steps += not timestep.first()
        if timestep.last() and self._last_discount is not None:
            timestep = timestep._replace(discount=_filled(timestep.discount, self._last_discount))
        if not timestep.first() and self._rewarded is not None:
            reward = 1.0 if self._rewarded(self.num_steps) else 0.0
            bounded = tree.map_structure(functools.partial(_within, reward), self.reward_spec())
            timestep = timestep._replace(reward=bounded)
        self.newest = timestep
        return timestep


def assert_unchanged(method: str, kept: Sequence[tuple[dm_env.TimeStep, dm_env.TimeStep]]) -> None:
    """Asserts that timesteps still equal their earlier copies."""
    for timestep, before in kept:
        for name in ("observation", "reward", "discount"):
            found, expected = getattr(timestep, name), getattr(before, name)
            what = f"Timesteps must have fresh arrays. {method} changed the {name} of an earlier one."
            checks.assert_nests_equal(found, expected, what)


def _bounded(spec: specs.Array) -> specs.Array:
    """Returns the spec with bounds for the random actor if it has none."""
    if isinstance(spec, specs.DiscreteArray):
        return spec
    low, high = specs.bounds(spec) if isinstance(spec, specs.BoundedArray) else (-np.inf, np.inf)
    if np.issubdtype(spec.dtype, np.floating):
        low, high = np.where(np.isinf(low), -1.0, low), np.where(np.isinf(high), 1.0, high)
        return specs.BoundedArray(spec.shape, spec.dtype, np.minimum(low, high), np.maximum(low, high))
    return spec


def _beyond(sign: int, spec: specs.Array, action: types.NestedArray) -> types.NestedArray:
    """Returns an action above its bounds, or below for a sign of -1; or the action if it has none."""
    if not np.issubdtype(spec.dtype, np.floating):
        return action
    low, high = specs.bounds(spec) if isinstance(spec, specs.BoundedArray) else (-np.inf, np.inf)
    low, high = (np.where(np.isfinite(bound), bound, side * 100.0) for side, bound in ((-1, low), (1, high)))
    with np.errstate(all="ignore"):
        beyond = ((high if sign > 0 else low) + sign * (high - low + 1)).astype(spec.dtype)
    return np.where(np.isfinite(beyond), beyond, action).astype(spec.dtype)


def _within(value: float, spec: specs.Array) -> np.ndarray:
    """Returns a reward of the spec that is as close to a value as its bounds allow."""
    low, high = specs.bounds(spec) if isinstance(spec, specs.BoundedArray) else (-np.inf, np.inf)
    return np.full(spec.shape, np.clip(value, low, high)).astype(spec.dtype)[()]


def _filled(nest: types.NestedArray, value: float) -> types.NestedArray:
    return tree.map_structure(lambda leaf: np.full_like(leaf, value)[()], nest)


def _flat(nest: types.NestedArray) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in tree.flatten(nest)]


def assert_is_first(method: str, when: str, timestep: dm_env.TimeStep) -> None:
    assert isinstance(timestep, dm_env.TimeStep), (
        f"`{method}` {when} must return a dm_env.TimeStep, got {timestep!r}."
    )
    assert timestep.first(), f"`{method}` {when} must return FIRST, got {timestep.step_type.name}."
    for name in ("reward", "discount"):
        value = getattr(timestep, name)
        assert value is None, f"`{method}` {when} must return FIRST with {name} None, got {value!r}."
