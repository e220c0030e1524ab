"""One action for several steps of the environment."""

import operator
from collections.abc import Callable

import dm_env
import tree

from minerva_acme import types
from minerva_acme.wrappers import base, leafwise, reward_sum


class ActionRepeatWrapper(base.EnvironmentWrapper):
    """Repeats each action `num_repeats` times, or until the episode ends.

        environment        r1, d1   r2, d2   r3, d3
        this wrapper                                  r1 + r2 + r3, d1 * d2 * d3

    The observation and the step type come from the last repeat. Nests of rewards and of discounts are
    combined leaf by leaf. Rewards are summed without weights, while Acme's wrapper weighs each by the
    discounts before it: the two are equal if only the last discount of an episode differs from 1.
    """

    def __init__(self, environment: dm_env.Environment, *, num_repeats: int) -> None:
        """Initialises the wrapper.

        Args:
            environment: The environment to wrap.
            num_repeats: The number of the environment's steps for one of the wrapper's, >= 1.

        Raises:
            ValueError: `num_repeats` is below 1.
        """
        if num_repeats < 1:
            raise ValueError(f"`num_repeats` must be >= 1, got {num_repeats}. 1 changes nothing.")
        super().__init__(environment)
        self._num_repeats = num_repeats

    def step(self, action: types.NestedArray) -> dm_env.TimeStep:
        timestep = super().step(leafwise.copy(action))
        if timestep.first():  # a new episode; the action was ignored
            return timestep
        reward, discount = timestep.reward, timestep.discount
        for _ in range(self._num_repeats - 1):
            if timestep.last():
                break
            timestep = super().step(leafwise.copy(action))
            reward = reward_sum.add(reward, timestep.reward)
            discount = tree.map_structure(operator.mul, discount, timestep.discount)
        return timestep._replace(reward=reward, discount=discount)

    def reward_spec(self) -> types.NestedSpec:
        return reward_sum.summed_spec(self._environment.reward_spec())

    @property
    def control_timestep(self) -> Callable[[], float]:
        """Returns the seconds of one step of the wrapper; only there if the environment has it."""
        of_one = self._environment.control_timestep  # type: ignore[attr-defined]
        return lambda: self._num_repeats * float(of_one())
