"""Runs an actor in several environments at once."""

import copy
import functools
from collections.abc import Sequence
from typing import Any

import dm_env

from minerva_acme import core, specs, types
from minerva_acme.environments import loop, vector
from minerva_acme.wrappers import calls, leafwise


class VectorEnvironmentLoop(loop.Loop[vector.VectorEnvironment, core.VectorActor]):
    """A loop that steps E environments together, with one call of the actor for all of them.

    A step calls, in this order:

        actor.select_action     once, with the newest observation of every environment
        environment.step        once
        actor.observe           for each environment that made a step, then its observers'
        actor.update            once
        actor.observe_first     for each environment whose next episode began, then its observers'

    With one environment the calls are the same as in `EnvironmentLoop`, in the same order.

    The result of an episode has the entries listed in `EnvironmentLoop`, and `environment`, the index of its
    environment. `steps_per_second` counts this environment's steps; `seconds/<phase>` is the time that the
    loop spent on all environments during the episode. `reset` is the time of resetting all environments
    together: a reset after the end of an episode counts as `environment_step`.

    An observer follows one episode at a time, so every environment gets copies of the observers
    (`copy.deepcopy`). They see a stand-in for the environment: its specs, and `get_info()` at the time of
    the timestep. The environment itself may be in another process, or already in its next episode.
    """

    _episodes: list[loop.Episode] | None = None
    _observations: Sequence[types.NestedArray] = ()

    def reset(self) -> None:
        self._episodes = None

    def _step(self) -> list[loop.EpisodeResult]:
        # Taken out until the step is complete: an exception leaves no half-observed episode behind.
        episodes, self._episodes = self._episodes or self._begin_all(), None
        clock = self._clock
        clock.start()
        actions = self._actor.select_action(self._observations)
        clock.lap("select_action", then="step")
        own_actions = [leafwise.copy(action) for action in actions]
        arrived: Any = self._environment.step(own_actions)
        clock.lap("environment_step")
        self._check("step", arrived)
        num_steps = 0
        ended = []
        try:
            for index, timesteps in enumerate(arrived):
                timestep = timesteps[0] if isinstance(timesteps, (tuple, list)) else timesteps
                if not isinstance(timestep, dm_env.TimeStep):
                    calls.check(timestep, self._environment, "step")
                if timestep.first():  # the action was ignored
                    continue
                episodes[index].add(timestep)
                self._actor.observe(index, actions[index], timestep)
                num_steps += 1
                if timestep.last():
                    ended.append(index)
                self._watch(index, timestep, actions[index])
        finally:  # even if something failed, every observed step is counted
            self._num_steps += num_steps
            counts = self._counter.increment(steps=num_steps, episodes=len(ended))
        clock.lap("observe")
        if self._should_update:
            self._actor.update()
            clock.lap("update")
        results = [
            self._finish({"environment": index} | episodes[index].result() | counts, self._copies[index][1])
            for index in ended
        ]
        clock.start()
        for index, timesteps in enumerate(arrived):
            if timesteps[-1].first():
                episodes[index] = loop.Episode(clock)
                self._observe_first(index, timesteps[-1])
                clock.lap("observe")
        self._observations = [timesteps[-1].observation for timesteps in arrived]
        self._episodes = episodes
        return results

    def _begin_all(self) -> list[loop.Episode]:
        episodes = [loop.Episode(self._clock) for _ in range(self._environment.num_environments)]
        self._clock.start("reset")
        timesteps: Any = self._environment.reset()
        self._clock.lap("reset")
        self._check("reset", timesteps)
        for index, timestep in enumerate(timesteps):
            calls.check(timestep, self._environment, "reset")
            self._observe_first(index, timestep)
        self._clock.lap("observe")
        self._observations = [timestep.observation for timestep in timesteps]
        return episodes

    def _check(self, method: str, arrived: Any) -> None:
        """Checks that a vector environment, possibly a user's own, returned an entry for each environment.

        Raises:
            SpecError: It did not.
        """
        expected = self._environment.num_environments
        if not isinstance(arrived, Sequence) or len(arrived) != expected:
            found = f"{len(arrived)}" if isinstance(arrived, Sequence) else f"a {type(arrived).__name__}"
            what = "timesteps" if method == "reset" else "tuples of timesteps"
            raise specs.SpecError(
                f"`{method}` of {type(self._environment).__name__} must return a list of {expected} {what}, "
                f"one for each environment, got {found}. See the docstring of `VectorEnvironment`."
            )

    @functools.cached_property
    def _copies(self) -> list[tuple["_StandIn", tuple[loop.Observer, ...]]]:
        """The stand-in of each environment, and the copies of the observers that see it."""
        stand_ins = [_StandIn(self._environment) for _ in range(self._environment.num_environments)]
        return [(stand_in, copy.deepcopy(self._observers)) for stand_in in stand_ins]

    def _observe_first(self, index: int, timestep: dm_env.TimeStep) -> None:
        self._actor.observe_first(index, timestep)
        if self._observers:
            stand_in, observers = self._copies[index]
            stand_in.info = self._environment.get_infos(index)[-1]
            for observer in observers:
                observer.observe_first(stand_in, timestep)

    def _watch(self, index: int, timestep: dm_env.TimeStep, action: types.NestedArray) -> None:
        if self._observers:
            stand_in, observers = self._copies[index]
            stand_in.info = self._environment.get_infos(index)[0]
            for observer in observers:
                observer.observe(stand_in, timestep, action)


class _StandIn(specs.SpecMethods, dm_env.Environment):
    """The observers' view of an environment that may be in another process."""

    def __init__(self, environment: vector.VectorEnvironment) -> None:
        self._specs = specs.make_environment_spec(environment)
        self.info: dict[str, Any] = {}

    def get_info(self) -> dict[str, Any]:
        return self.info

    def reset(self) -> dm_env.TimeStep:
        raise TypeError("`environment` may only be looked at by an observer, got a call of `reset`.")

    def step(self, action: types.NestedArray) -> dm_env.TimeStep:
        raise TypeError("`environment` may only be looked at by an observer, got a call of `step`.")
