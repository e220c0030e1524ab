"""Runs an actor in a batched environment."""

import time
from typing import Any, NamedTuple

import dm_env
import torch

from minerva_acme import core, types
from minerva_acme.environments import batched, batched_check, loop

_FIRST, _LAST = int(dm_env.StepType.FIRST), int(dm_env.StepType.LAST)

RESULT_PERIOD = 100
"""The number of steps of every environment after which a loop reads which episodes have ended."""


class EndedEpisodes(NamedTuple):
    """The episodes of B environments, some of which end with this step."""

    has_ended: torch.Tensor  # [B] bool
    returns: torch.Tensor  # [B] float64  undiscounted sum of the rewards so far
    lengths: torch.Tensor  # [B] float64  environment steps so far


class OpenEpisodes:
    """The returns and lengths of the open episodes of B environments, on their device."""

    def __init__(self, first: types.BatchedTimeStep) -> None:
        """Begins an episode everywhere. Args: first: A timestep of the environments."""
        self._returns = torch.zeros_like(first.reward, dtype=torch.float64)
        self._lengths = torch.zeros_like(self._returns)

    def add(self, timestep: types.BatchedTimeStep) -> EndedEpisodes:
        """Adds a step, and begins new episodes where one has ended."""
        returns = self._returns + timestep.reward
        lengths = self._lengths + (timestep.step_type != _FIRST)
        has_ended = timestep.step_type == _LAST
        self._returns = returns.masked_fill(has_ended, 0.0)
        self._lengths = lengths.masked_fill(has_ended, 0.0)
        return EndedEpisodes(has_ended, returns, lengths)


class BatchedEnvironmentLoop(loop.Loop[batched.BatchedEnvironment, core.BatchedActor]):
    """A loop that steps B environments together, in tensors.

    A step calls, in this order:

        actor.select_action     with the newest observations
        environment.step
        actor.observe
        actor.update

    Returns and lengths of episodes stay on the device. They are read in every `RESULT_PERIOD`th step and in
    `reset`, so that no other step waits for the device. The episodes that have ended since the last time then
    have one result together, if there are any, and are counted. It has the entries of `EnvironmentLoop`:

        episode_return     mean over these episodes, each summed in double precision
        episode_length     mean over these episodes
        steps_per_second   of all environments together, since the last result
        seconds/<phase>    since the last result; a device may still compute what these calls have asked for
        <counts>           the counter's counts; a step counts B, also if some environments only reset in it

    All timesteps are checked, see `BatchedSpecCheck`: their numbers when the device is read, and once after
    the first two steps.

    Observers are refused: they watch one environment's timesteps.
    """

    _newest: types.NestedTensor = None  # before the first reset
    _steps_unread = 0  # of each environment, since the last time that the device was read

    def __init__(
        self,
        environment: batched.BatchedEnvironment,
        actor: core.BatchedActor,
        *arguments: Any,
        **settings: Any,
    ) -> None:
        """Makes the loop; see `Loop`.

        Raises:
            ValueError: There are observers.
        """
        super().__init__(environment, actor, *arguments, **settings)
        self._check = batched_check.BatchedSpecCheck(environment)
        if self._observers:
            raise ValueError(
                "`observers` must be empty in a batched environment, which has no timesteps of single "
                f"environments to watch, got {len(self._observers)}. Leave them out."
            )

    def _step(self) -> list[loop.EpisodeResult]:
        # Taken out until the step is complete: an exception leaves no half-observed episode behind.
        newest, self._newest = self._newest, None
        if newest is None:
            newest = self._begin_all()
        environment, clock = self._environment, self._clock
        clock.start()
        actions = self._actor.select_action(newest)
        clock.lap("select_action", then="step")
        timestep = environment.step(actions)
        clock.lap("environment_step")
        self._check.add(timestep)
        self._actor.observe(actions, timestep)
        self._num_steps += environment.num_environments
        self._counter.increment(steps=environment.num_environments)
        has_ended, returns, lengths = self._episodes.add(timestep)
        numbers = torch.stack([torch.ones_like(returns), returns, lengths])
        self._ended += numbers.masked_fill(~has_ended, 0.0).sum(-1)
        self._steps_unread += 1
        clock.lap("observe")
        if self._should_update:
            self._actor.update()
            clock.lap("update")
        self._newest = timestep.newest
        return self._read() if self._steps_unread == RESULT_PERIOD else []

    def reset(self) -> None:
        self._newest = None
        if self._steps_unread:
            self._read()

    def _begin_all(self) -> types.NestedTensor:
        self.reset()
        self._begin_result()
        self._clock.start("reset")
        timestep = self._environment.reset()
        self._clock.lap("reset")
        self._check.first(timestep)
        self._actor.observe_first(timestep)
        self._episodes = OpenEpisodes(timestep)
        self._clock.lap("observe")
        return timestep.newest

    def _begin_result(self) -> None:
        # The number of episodes that have ended, and the sums of their returns and lengths.
        self._ended = torch.zeros(3, dtype=torch.float64, device=self._environment.device)
        self._before = dict(self._clock.seconds), self._num_steps, time.perf_counter()

    def _read(self) -> list[loop.EpisodeResult]:
        """Reads which episodes have ended, and returns their result, if there are any."""
        self._steps_unread = 0
        self._check.read()
        num_episodes, total_return, total_length = self._ended.tolist()
        if not num_episodes:
            return []
        seconds_before, steps_before, began_at = self._before
        result = {
            "episode_return": total_return / num_episodes,
            "episode_length": total_length / num_episodes,
            "steps_per_second": (self._num_steps - steps_before) / (time.perf_counter() - began_at),
            **self._clock.since(seconds_before),
            **self._counter.increment(episodes=int(num_episodes)),
        }
        self._begin_result()
        return [self._finish(result, (), int(num_episodes))]
