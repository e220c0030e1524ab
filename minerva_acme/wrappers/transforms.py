"""Observations and actions by a function of your own."""

from collections.abc import Callable

import dm_env

from minerva_acme import types
from minerva_acme.wrappers import base


class _TransformWrapper(base.EnvironmentWrapper):
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
            transform: from the environment's observation to the agent's, or from the agent's action to the
                environment's. It must not change its argument. The wrapper can be pickled if the function
                can: a function of a module, not a lambda.
            spec: of the agent's observation or action.
        """
        super().__init__(environment)
        self._transform = transform
        self._spec = spec


class ObservationTransformWrapper(_TransformWrapper):
    """Gives `transform(observation)` in place of each observation.

    To check what the function returns, put a `SpecCheckWrapper` around this one.
    """

    def observation_spec(self) -> types.NestedSpec:
        return self._spec

    def _convert(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        return timestep._replace(observation=self._transform(timestep.observation))


class ActionTransformWrapper(_TransformWrapper):
    """Gives the environment `transform(action)` in place of each action.

    To check what the function returns, put a `SpecCheckWrapper` inside this one.
    """

    def step(self, action: types.NestedArray) -> dm_env.TimeStep:
        return self._environment.step(self._transform(action))

    def action_spec(self) -> types.NestedSpec:
        return self._spec
