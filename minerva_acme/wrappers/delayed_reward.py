"""Rewards that come late."""

import dm_env
import numpy as np
import tree

from minerva_acme import types
from minerva_acme.wrappers import base, reward_sum


class DelayedRewardWrapper(base.EnvironmentWrapper):
    """Gives the sum of the rewards every `period` steps and at the end of the episode, and 0 in between.

        environment       r1   r2   r3         r4   r5 LAST
        period 3           0    0   r1+r2+r3    0   r4+r5
        period None        0    0    0          0   r1+r2+r3+r4+r5

    Nests of rewards are summed leaf by leaf; discounts stay as they are.
    """

    def __init__(self, environment: dm_env.Environment, *, period: int | None) -> None:
        """Initialises the wrapper.

        Args:
            environment: The environment to wrap.
            period: The number of steps from one reward to the next, >= 1, or None for one reward at the end
                of an episode.

        Raises:
            ValueError: `period` is below 1.
        """
        if period is not None and period < 1:
            raise ValueError(f"`period` must be None or >= 1 step, got {period}. 1 delays nothing.")
        super().__init__(environment)
        self._period = period
        self._num_steps = 0
        self._sum: types.NestedArray = None  # None if nothing is owed

    def reward_spec(self) -> types.NestedSpec:
        return reward_sum.summed_spec(self._environment.reward_spec())

    def _convert(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        if timestep.first():
            self._num_steps, self._sum = 0, None
            return timestep
        self._num_steps += 1
        owed = timestep.reward if self._sum is None else reward_sum.add(self._sum, timestep.reward)
        if timestep.last() or (self._period is not None and self._num_steps % self._period == 0):
            self._sum = None
            return timestep._replace(reward=owed)
        self._sum = owed
        return timestep._replace(reward=tree.map_structure(_zero, timestep.reward))


def _zero(reward: types.NestedArray) -> types.NestedArray:
    return np.zeros_like(reward)[()]
