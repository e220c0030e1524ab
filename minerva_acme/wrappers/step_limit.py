"""A limit on the number of steps in an episode."""

import dm_env

from minerva_acme import types
from minerva_acme.wrappers import base


class StepLimitWrapper(base.EnvironmentWrapper):
    """Truncates an episode after `max_steps` steps: LAST with the step's own discount.

        step           1     2     3 = max_steps          4
        step_type     MID   MID   LAST                  FIRST
        discount       1     1     1, or 0 at a true end

    A limit is not a terminal state: the states that would have followed still have their value.
    """

    def __init__(self, environment: dm_env.Environment, *, max_steps: int) -> None:
        """Initialises the wrapper.

        Args:
            environment: The environment to wrap.
            max_steps: The number of steps until LAST, >= 1, as counted by this wrapper's callers.

        Raises:
            ValueError: `max_steps` is below 1.
        """
        if max_steps < 1:
            raise ValueError(
                f"`max_steps` must be >= 1, got {max_steps}. Leave the wrapper out for no limit."
            )
        super().__init__(environment)
        self._max_steps = max_steps
        self._num_steps = 0
        self._truncated = False

    def reset(self) -> dm_env.TimeStep:
        self._num_steps = 0
        self._truncated = False
        return self._environment.reset()

    def step(self, action: types.NestedArray) -> dm_env.TimeStep:
        if self._truncated:  # the environment does not know that its episode is over
            return self.reset()
        timestep = super().step(action)
        self._num_steps = 0 if timestep.first() else self._num_steps + 1
        if timestep.mid() and self._num_steps == self._max_steps:
            self._truncated = True
            return timestep._replace(step_type=dm_env.StepType.LAST)
        return timestep
