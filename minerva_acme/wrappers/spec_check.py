"""An environment and an agent that are held to the specs."""

import dm_env

from minerva_acme import specs, types
from minerva_acme.wrappers import base


class SpecCheckWrapper(base.EnvironmentWrapper):
    """Checks every action that goes in and every timestep that comes out against the specs.

    A float that is not finite breaks its spec. An action that the environment ignores, before the first
    reset and after LAST, is not looked at.
    """

    def __init__(self, environment: dm_env.Environment) -> None:
        """Initialises the wrapper with the specs as they are now."""
        super().__init__(environment)
        self._specs = specs.make_environment_spec(environment)
        self._reset_next_step = True

    def reset(self) -> dm_env.TimeStep:
        """Starts an episode.

        Raises:
            ValueError: the timestep is not FIRST or breaks a spec; the message names the leaf.
        """
        timestep = self._environment.reset()
        if not timestep.first():
            raise ValueError(f"`reset` must return a FIRST timestep, got {timestep.step_type.name}.")
        return self._convert(timestep)

    def step(self, action: types.NestedArray) -> dm_env.TimeStep:
        """Makes a step.

        Raises:
            ValueError: the action or the timestep breaks a spec; the message names the leaf.
        """
        if not self._reset_next_step:
            specs.check_conforms("action", action, self._specs.actions)
        return super().step(action)

    def _convert(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        self._reset_next_step = timestep.last()
        specs.check_timestep(timestep, self._specs)
        return timestep
