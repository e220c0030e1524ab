"""Observations and actions transformed by your own function."""

import dm_env

from minerva_acme import types
from minerva_acme.wrappers import base


class ObservationTransformWrapper(base.ConversionWrapper):
    """Gives `transform(observation)` in place of each observation.

    To check what the function returns, put a `SpecCheckWrapper` around this one.
    """

    def __init__(
        self, environment: dm_env.Environment, *, transform: base.Conversion, spec: types.NestedSpec
    ) -> None:
        """Initialises the wrapper.

        Args:
            environment: The environment to wrap.
            transform: Converts the environment's observation to the agent's, without changing its argument.
                The wrapper can be pickled if the function can: a module's function, not a lambda.
            spec: The spec of the agent's observation.
        """
        super().__init__(environment)
        self._to_observation = transform
        self._spec = spec

    def observation_spec(self) -> types.NestedSpec:
        return self._spec


class ActionTransformWrapper(base.ConversionWrapper):
    """Gives the environment `transform(action)` in place of each action.

    To check what the function returns, put a `SpecCheckWrapper` inside this one.
    """

    def __init__(
        self, environment: dm_env.Environment, *, transform: base.Conversion, spec: types.NestedSpec
    ) -> None:
        """Initialises the wrapper.

        Args:
            environment: The environment to wrap.
            transform: Converts the agent's action to the environment's, without changing its argument. The
                wrapper can be pickled if the function can: a module's function, not a lambda.
            spec: The spec of the agent's action.
        """
        super().__init__(environment)
        self._to_action = transform
        self._spec = spec

    def action_spec(self) -> types.NestedSpec:
        return self._spec
