"""The result of the last episode, at one layer of a stack of wrappers."""

import time
from typing import NamedTuple

import dm_env
import numpy as np
import tree

from minerva_acme import types
from minerva_acme.wrappers import base, reward_sum


class EpisodeStatistics(NamedTuple):
    """The numbers of an episode."""

    episode_return: types.NestedArray  # undiscounted sum by reward leaf, float64
    episode_length: int  # steps
    seconds: float  # from its first timestep to its newest


class EpisodeStatisticsWrapper(base.EnvironmentWrapper):
    """Keeps the return, the length and the duration of the last complete episode.

    The numbers belong to this wrapper's layer: inside wrappers that repeat actions or change rewards, they
    are the environment's own, by which results are compared. `last_episode` (None before the first episode
    ends) can be read through the wrappers around this one.
    """

    def __init__(self, environment: dm_env.Environment) -> None:
        super().__init__(environment)
        self.last_episode: EpisodeStatistics | None = None
        self._started_at = 0.0
        self._length = 0
        self._return: types.NestedArray = None

    def _convert(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        if timestep.first():
            self._started_at, self._length = time.perf_counter(), 0
            return timestep
        reward = tree.map_structure(np.float64, timestep.reward)  # a long sum in float32 loses digits
        self._return = reward_sum.add(self._return, reward) if self._length else reward
        self._length += 1
        if timestep.last():
            seconds = time.perf_counter() - self._started_at
            self.last_episode = EpisodeStatistics(self._return, self._length, seconds)
        return timestep
