"""Lets an actor play in several environments at once."""

import copy
from collections.abc import Sequence
from typing import Any

import dm_env

from minerva_acme import core, counting, loggers, types
from minerva_acme.environments import loop, vector


class VectorEnvironmentLoop:
    """Plays, one step of each of E environments at a time, with one call of the actor for all of them.

    A step calls, in this order:

        actor.select_action     once, with the newest observation of every environment
        environment.step        once
        actor.observe           for each environment that made a step, then its observers'
        actor.update            once
        actor.observe_first     for each environment whose next episode began, then its observers'

    With one environment an actor is asked and told the same, in the same order, as by `EnvironmentLoop`.

    The result of an episode holds what `EnvironmentLoop` says, and `environment`, the index of the one
    that it was played in. Its `steps_per_second` are those of this one environment; its seconds are those
    that the loop spent on all of them meanwhile. `reset` counts the resets of all environments together:
    one that follows the end of an episode happens within `environment_step`.

    An observer follows one episode at a time, so every environment gets copies of the observers. They are
    handed a stand-in for the environment: its specs, and `get_info()` as it was at the timestep that they
    look at. The environment itself may be in another process, or in its next episode already.

    Episodes go on from one call to the next. After an exception the next step begins a new episode in
    every environment; the adders of all environments must be `reset` before.
    """

    def __init__(
        self,
        *,
        environment: vector.VectorEnvironment,
        actor: core.VectorActor,
        counter: counting.Counter | None = None,
        logger: loggers.Logger | None = None,
        observers: Sequence[loop.Observer] = (),
        should_update: bool = True,
    ) -> None:
        """Takes over the parts; nothing is played yet.

        Args:
            environment: where to play; stays the caller's to close.
            actor: plays.
            counter: counts `steps` and `episodes` of all environments together; None: one of its own.
            logger: receives each episode's result.
            observers: look on, after the actor; copied with `copy.deepcopy` for each environment.
            should_update: whether the actor takes newer weights after each step.
        """
        self._environment = environment
        self._actor = actor
        self._counter = counter if counter is not None else counting.Counter()
        self._logger = logger
        indices = range(environment.num_environments)
        self._observers = [copy.deepcopy(tuple(observers)) for _ in indices]
        self._stand_ins = [_StandIn(environment) for _ in indices] if observers else []
        self._should_update = should_update
        self._clock = loop.Clock()
        self._episodes: list[loop.Episode] | None = None
        self._observations: list[types.NestedArray] = []

    def step(self) -> list[loop.EpisodeResult]:
        """Makes one step of every environment, except of those that only reset.

        Returns:
            The results of the episodes that ended, in the order of the environments.
        """
        results, _ = self._step()
        return results

    def run(self, num_episodes: int | None = None, num_steps: int | None = None) -> None:
        """Plays until `num_episodes` have ended, or `num_steps` are made, or for ever if neither is given.

        Counted are those of this call, of all environments together. Since they step together there may
        be up to E - 1 more than asked for. What is open at the end goes on in the next call.

        Raises:
            ValueError: both are given, or a negative number.
        """
        loop.check_budget(num_episodes, num_steps)
        episodes = steps = 0
        while (num_episodes is None or episodes < num_episodes) and (num_steps is None or steps < num_steps):
            results, made = self._step()
            episodes += len(results)
            steps += made

    def _step(self) -> tuple[list[loop.EpisodeResult], int]:
        # Taken out until the step is complete: an exception leaves no half-observed episode behind.
        episodes, self._episodes = self._episodes or self._begin_all(), None
        with self._clock.phase("select_action"):
            actions = self._actor.select_action(self._observations)
        with self._clock.phase("environment_step"):
            arrived = self._environment.step(actions)
        num_steps = 0
        ended = []
        with self._clock.phase("observe"):
            for index, timesteps in enumerate(arrived):
                timestep = timesteps[0]
                if timestep.first():  # the action was not used
                    continue
                num_steps += 1
                episodes[index].add(timestep)
                self._actor.observe(index, actions[index], timestep)
                if self._stand_ins:
                    self._look(index, timestep, actions[index])
                if timestep.last():
                    ended.append(index)
        if self._should_update:
            with self._clock.phase("update"):
                self._actor.update()
        counts = self._counter.increment(steps=num_steps, episodes=len(ended))
        results = [self._end(index, episodes[index], counts) for index in ended]
        for index, timesteps in enumerate(arrived):
            if timesteps[-1].first():
                episodes[index] = loop.Episode(self._clock)
                with self._clock.phase("observe"):
                    self._look_first(index, timesteps[-1])
        self._observations = [timesteps[-1].observation for timesteps in arrived]
        self._episodes = episodes
        return results, num_steps

    def _begin_all(self) -> list[loop.Episode]:
        episodes = [loop.Episode(self._clock) for _ in range(self._environment.num_environments)]
        with self._clock.phase("reset"):
            timesteps = self._environment.reset()
        with self._clock.phase("observe"):
            for index, timestep in enumerate(timesteps):
                self._look_first(index, timestep)
        self._observations = [timestep.observation for timestep in timesteps]
        return episodes

    def _look_first(self, index: int, timestep: dm_env.TimeStep) -> None:
        self._actor.observe_first(index, timestep)
        if self._stand_ins:
            stand_in = self._stand_ins[index]
            stand_in.info = self._environment.get_infos(index)[-1]
            for observer in self._observers[index]:
                observer.observe_first(stand_in, timestep)

    def _look(self, index: int, timestep: dm_env.TimeStep, action: types.NestedArray) -> None:
        stand_in = self._stand_ins[index]
        stand_in.info = self._environment.get_infos(index)[0]
        for observer in self._observers[index]:
            observer.observe(stand_in, timestep, action)

    def _end(self, index: int, episode: loop.Episode, counts: dict[str, Any]) -> loop.EpisodeResult:
        result = {"environment": index} | episode.result() | counts
        for observer in self._observers[index]:
            result |= observer.get_metrics()
        if self._logger is not None:
            self._logger.write(result)
        return result


class _StandIn(dm_env.Environment):
    """What observers see of an environment that may be elsewhere."""

    def __init__(self, environment: vector.VectorEnvironment) -> None:
        self._environment = environment
        self.info: dict[str, Any] = {}

    def get_info(self) -> dict[str, Any]:
        return self.info

    def reset(self) -> dm_env.TimeStep:
        raise TypeError("`environment` may only be looked at by an observer, got a call of `reset`.")

    def step(self, action: types.NestedArray) -> dm_env.TimeStep:
        raise TypeError("`environment` may only be looked at by an observer, got a call of `step`.")

    def observation_spec(self) -> types.NestedSpec:
        return self._environment.observation_spec()

    def action_spec(self) -> types.NestedSpec:
        return self._environment.action_spec()

    def reward_spec(self) -> types.NestedSpec:
        return self._environment.reward_spec()

    def discount_spec(self) -> types.NestedSpec:
        return self._environment.discount_spec()
