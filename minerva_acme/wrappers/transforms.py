"""Observations and actions by a function of your own."""

from collections.abc import Callable

import dm_env

from minerva_acme import types
from minerva_acme.wrappers import base


class ObservationTransformWrapper(base.EnvironmentWrapper):
    """Shows `transform(observation)` in place of each observation.

    To check what the function returns, put a `SpecCheckWrapper` around this one.
    """

    def __init__(
        self,
        environment: dm_env.Environment,
        *,
        transform: Callable[[types.NestedArray], types.NestedArray],
        spec: types.NestedSpec,
    ) -> None:
        """Initialises the wrapper.

        Args:
            environment: what to wrap.
            transform: from the environment's observation to the one to show. It leaves its argument as
                it is. The wrapper can be pickled if it can: a function of a module, not a lambda.
            spec: of what `transform` returns.
        """
        super().__init__(environment)
        self._transform = transform
        self._observation_spec = spec

    def reset(self) -> dm_env.TimeStep:
        return self._convert(self._environment.reset())

    def step(self, action: types.NestedArray) -> dm_env.TimeStep:
        return self._convert(self._environment.step(action))

    def observation_spec(self) -> types.NestedSpec:
        return self._observation_spec

    def _convert(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        return timestep._replace(observation=self._transform(timestep.observation))


class ActionTransformWrapper(base.EnvironmentWrapper):
    """Hands `transform(action)` to the environment in place of each action.

    To check what the function returns, put a `SpecCheckWrapper` inside this one.
    """

    def __init__(
        self,
        environment: dm_env.Environment,
        *,
        transform: Callable[[types.NestedArray], types.NestedArray],
        spec: types.NestedSpec,
    ) -> None:
        """Initialises the wrapper.

        Args:
            environment: what to wrap.
            transform: from the agent's action to the environment's. It leaves its argument as it is. The
                wrapper can be pickled if it can: a function of a module, not a lambda.
            spec: of what agents hand in.
        """
        super().__init__(environment)
        self._transform = transform
        self._action_spec = spec

    def step(self, action: types.NestedArray) -> dm_env.TimeStep:
        return self._environment.step(self._transform(action))

    def action_spec(self) -> types.NestedSpec:
        return self._action_spec
