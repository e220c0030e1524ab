"""The contract of vector environments, as tests that your own can inherit.

class TestMyVectorEnvironment(testing.VectorEnvironmentConformance):
    def make_environment(self):
        return MyVectorEnvironment(...)
"""

import abc
import copy
import unittest
from collections.abc import Sequence
from typing import TypeAlias

import dm_env
import tree

from minerva_acme import actors, environments, specs, types
from minerva_acme.testing import checks


class SeveralConformance(abc.ABC):
    """Tests of several environments, as a vector or a batch, across the ends of episodes if short enough."""

    num_steps: int = 60
    """The number of steps of a test; each environment should end an episode within them."""

    @abc.abstractmethod
    def make_vector(self) -> environments.VectorEnvironment:
        """Makes a new vector environment, which stands for what is tested."""

    def test_reset_returns_a_first_timestep_of_every_environment(self) -> None:
        """`reset` must return one FIRST timestep for each environment."""
        with self.make_vector() as environment:
            for _ in range(2):
                arrived = [(timestep,) for timestep in environment.reset()]
                assert_step_types("reset", [None] * environment.num_environments, arrived)

    def test_a_step_hands_out_one_timestep_or_last_and_first(self) -> None:
        """`step` must return, for each environment, timesteps that may follow its newest one."""
        with self.make_vector() as environment:
            newest: list[dm_env.TimeStep | None] = [*environment.reset()]
            has_ended = [False] * environment.num_environments
            for _ in range(self.num_steps):
                arrived = environment.step(self._actions(environment))
                assert_step_types("step", newest, arrived)
                newest = [timesteps[-1] for timesteps in arrived]
                for index, timesteps in enumerate(arrived):
                    has_ended[index] |= timesteps[0].last()
            assert all(has_ended), (
                f"Every environment must end an episode within `num_steps` = {self.num_steps}, to test its "
                f"end; raise it or shorten the episodes. Ended: {has_ended}."
            )

    def test_timesteps_conform_to_the_specs_and_are_not_written_into_later(self) -> None:
        """Timesteps must conform to the specs, and no later call may write into their arrays."""
        with self.make_vector() as environment:
            spec = specs.make_environment_spec(environment)
            for leaf in tree.flatten(spec):
                assert isinstance(leaf, specs.Array), f"Specs must be nests of dm_env specs, got {leaf!r}."
            kept = [*environment.reset()]
            copies = copy.deepcopy(kept)
            for _ in range(self.num_steps):
                for timesteps in environment.step(self._actions(environment)):
                    kept += timesteps
                    copies += copy.deepcopy(timesteps)
        for timestep, copied in zip(kept, copies, strict=True):
            specs.check_timestep(timestep, spec)
            what = "`step` must return fresh arrays, but a later call changed a timestep."
            checks.assert_nests_equal(timestep[1:], copied[1:], what)

    def test_the_last_observation_is_that_of_the_episode_that_ends(self) -> None:
        """LAST must show the state in which the episode ended: learners bootstrap from it at a time limit."""
        with self.make_vector() as environment:
            assert environment.gives_last_observation, (
                f"{type(environment).__name__} must return the true observation at LAST, but says that it "
                "does not (`gives_last_observation` is False). Agents that bootstrap refuse it."
            )
            newest = environment.reset()
            firsts = [timestep.observation for timestep in newest]
            changes = []  # whether a step that ended no episode changed the observation
            are_next, are_repeated = [], []
            ended: dict[int, dm_env.TimeStep] = {}
            for _ in range(self.num_steps):
                arrived = environment.step(self._actions(environment))
                for index, timesteps in enumerate(arrived):
                    for timestep in timesteps:
                        before = newest[index]
                        if timestep.first() and index in ended:
                            last = ended.pop(index)
                            are_next.append(checks.are_equal(last.observation, timestep.observation))
                            firsts.append(timestep.observation)
                        elif timestep.last():
                            ended[index] = timestep
                            are_repeated.append(checks.are_equal(timestep.observation, before.observation))
                        elif not timestep.first():
                            changes.append(not checks.are_equal(timestep.observation, before.observation))
                        newest[index] = timestep
        begin_alike = all(checks.are_equal(first, firsts[0]) for first in firsts)
        assert not are_next or not all(are_next) or begin_alike, (
            "`step` must return with LAST the observation in which the episode ended, got the one that the "
            "next episode begins with. A simulator that resets in the same step must also return the "
            "observation before the reset, like Gymnasium's `final_obs`."
        )
        assert not are_repeated or not all(are_repeated) or not all(changes), (
            "`step` must return with LAST the observation in which the episode ended, got the previous one "
            "again, in every episode."
        )

    def test_each_action_reaches_its_own_environment(self) -> None:
        """Each environment must get its own action, whatever the others get."""
        with self.make_vector() as environment:
            number = environment.num_environments
        one, other = self._play([0] * number), self._play([1] * number)
        if number == 1 or not checks.are_equal(one, self._play([0] * number)):
            return  # There is nothing to swap, or each vector draws different numbers.
        if not (shown := _differences(one, other)):
            raise unittest.SkipTest(
                f"No action made a difference in {self.num_steps} steps, so this test cannot tell which one "
                "an environment got. Make environments that show it, or raise `num_steps`."
            )
        for bit in range((number - 1).bit_length()):  # any two indices differ in a bit
            kinds = [index >> bit & 1 for index in range(number)]
            plays = [one, other, self._play(kinds)]
            before_resets = _until_an_end(plays)  # which may share a generator
            if _differences(*before_resets[:2]) == shown:
                plays = before_resets
            for index in shown:
                assert checks.are_equal(plays[2][index], plays[kinds[index]][index]), (
                    f"`step` must give each environment its own action, but environment {index} did not "
                    f"behave as when all environments get that action: {[*kinds]} says which of two actions "
                    "each one got."
                )

    def _play(self, kinds: Sequence[int]) -> list[list[dm_env.TimeStep]]:
        """Makes steps in a new vector; each environment gets the stream of actions 0 or 1, as in `kinds`."""
        with self.make_vector() as environment:
            players = [actors.RandomActor(environment.action_spec(), seed=seed) for seed in (0, 1)]
            streams = [[timestep] for timestep in environment.reset()]
            for _ in range(self.num_steps):
                actions = [player.select_action(None) for player in players]
                arrived = environment.step([copy.deepcopy(actions[kind]) for kind in kinds])
                for stream, timesteps in zip(streams, arrived, strict=True):
                    stream += timesteps
        return streams

    def test_another_number_of_actions_is_refused(self) -> None:
        """`step` must refuse fewer or more actions than there are environments."""
        with self.make_vector() as environment:
            environment.reset()
            actions = self._actions(environment)
            for wrong in (actions[:-1], actions + actions[:1]):
                rule = f"`step` with {len(wrong)} actions"
                checks.assert_refused(rule, environment.step, wrong, mentions="actions")

    def test_it_can_be_closed_twice(self) -> None:
        """`close` must be safe to call again."""
        environment = self.make_vector()
        environment.close()
        assert environment.close() is None

    def _actions(self, environment: environments.VectorEnvironment) -> list[types.NestedArray]:
        actor = actors.RandomActor(environment.action_spec(), seed=0)
        return [actor.select_action(None) for _ in range(environment.num_environments)]


class VectorEnvironmentConformance(SeveralConformance):
    """Tests of a vector environment, across the ends of episodes if they are short enough."""

    @abc.abstractmethod
    def make_environment(self) -> environments.VectorEnvironment:
        """Makes a new vector environment, with short episodes if possible."""

    def make_vector(self) -> environments.VectorEnvironment:
        return self.make_environment()

    def test_a_step_before_the_first_reset_resets(self) -> None:
        """`step` must ignore its actions and return FIRST if no episode is open."""
        with self.make_environment() as environment:
            actions = self._actions(environment)
            assert_step_types("step", [None] * environment.num_environments, environment.step(actions))


_Streams: TypeAlias = list[list[dm_env.TimeStep]]


def _differences(one: _Streams, other: _Streams) -> list[int]:
    """Returns the indices of the environments whose timesteps differ."""
    return [index for index, stream in enumerate(one) if not checks.are_equal(stream, other[index])]


def _until_an_end(plays: list[_Streams]) -> list[_Streams]:
    """Returns plays until the first LAST of any environment in any of them."""
    streams = [stream for play in plays for stream in play]
    ends = [index for stream in streams for index, timestep in enumerate(stream) if timestep.last()]
    length = min(ends, default=max(map(len, streams))) + 1
    return [[stream[:length] for stream in play] for play in plays]


def assert_step_types(
    method: str, before: Sequence[dm_env.TimeStep | None], arrived: Sequence[tuple[dm_env.TimeStep, ...]]
) -> None:
    """Asserts that returned timesteps may follow the previous ones, which are None if no episode was open."""
    assert len(arrived) == len(before), f"`{method}` must return {len(before)} entries, got {len(arrived)}."
    for index, (newest, timesteps) in enumerate(zip(before, arrived, strict=True)):
        names = " ".join(timestep.step_type.name for timestep in timesteps)
        is_open = newest is not None and not newest.last()
        allowed = ["MID", "LAST", "LAST FIRST"] if is_open else ["FIRST"]
        assert names in allowed, (
            f"`{method}` must return one of {allowed} for environment {index}, whose newest timestep was "
            f"{'none' if newest is None else newest.step_type.name}, got '{names}'."
        )
