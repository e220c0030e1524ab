"""The result of the last episode, at one place in a stack of wrappers."""

import time
from typing import NamedTuple

import dm_env
import numpy as np
import tree

from minerva_acme import types
from minerva_acme.wrappers import base, reward_sum

_FLOATS = (float, np.floating)


class EpisodeStatistics(NamedTuple):
    """The numbers of an episode."""

    episode_return: types.NestedArray  # undiscounted sum by reward leaf, float64
    episode_length: int  # steps
    seconds: float  # from its first timestep to its newest


class OpenEpisode:
    """The return, length and duration of an episode in progress, which begins now."""

    def __init__(self) -> None:
        self._started_at = time.perf_counter()
        self._length = 0
        self._return: types.NestedArray = None

    def add(self, timestep: dm_env.TimeStep) -> None:
        """Adds a step.

        Raises:
            ValueError: the timestep has no reward: the episode began anew.
        """
        # A long sum in single precision loses digits.
        if isinstance(timestep.reward, _FLOATS):  # the usual case; `tree` takes ten times as long
            reward = np.float64(timestep.reward)
            self._return = reward if self._length == 0 else self._return + reward
        else:
            if timestep.reward is None:  # as at FIRST alone
                raise ValueError(
                    "`step` of the environment must return MID or LAST in an open episode, with a reward, "
                    f"got {timestep.step_type.name} without one after {self._length} steps. End the episode "
                    "with LAST (`dm_env.termination` or `truncation`); the `step` after that begins the next."
                )
            reward = tree.map_structure(np.float64, timestep.reward)
            self._return = reward if self._length == 0 else reward_sum.add(self._return, reward)
        self._length += 1

    def statistics(self) -> EpisodeStatistics:
        """Returns the return, length and duration so far."""
        return EpisodeStatistics(self._return, self._length, time.perf_counter() - self._started_at)


class EpisodeStatisticsWrapper(base.EnvironmentWrapper):
    """Keeps the return, the length and the duration of the last complete episode.

    They are those of its own layer: inside an action repeat or a change of rewards they are those of
    the environment itself, by which results are compared. `last_episode` (None before the first end of
    an episode) can be read through the wrappers around this one.
    """

    def __init__(self, environment: dm_env.Environment) -> None:
        super().__init__(environment)
        self.last_episode: EpisodeStatistics | None = None
        self._episode = OpenEpisode()

    def _convert(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        if timestep.first():
            self._episode = OpenEpisode()
            return timestep
        self._episode.add(timestep)
        if timestep.last():
            self.last_episode = self._episode.statistics()
        return timestep
