"""The base of all environment wrappers."""

from collections.abc import Callable, Sequence
from typing import Any

import dm_env

from minerva_acme import types
from minerva_acme.wrappers import calls


class EnvironmentWrapper(dm_env.Environment):
    """Behaves like the environment it wraps; a subclass overrides what differs.

    A subclass that changes timesteps, FIRST ones included, overrides `_convert`; one that changes actions
    overrides `step`.

    Public attributes that a wrapper does not have are looked up in what it wraps, so that
    `environment.physics` or `environment.save()` reach through any number of wrappers. Private
    names are not: copying and unpickling ask for them before there is anything to forward to.
    """

    def __init__(self, environment: dm_env.Environment) -> None:
        self._environment = environment

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"'{type(self).__name__}' has no attribute '{name}'.")
        return getattr(self._environment, name)

    @property
    def environment(self) -> dm_env.Environment:
        """The wrapped environment, one layer down."""
        return self._environment

    def reset(self) -> dm_env.TimeStep:
        timestep = self._environment.reset()
        if not isinstance(timestep, dm_env.TimeStep):
            calls.check(timestep, self._environment, "reset")
        return self._convert(timestep)

    def step(self, action: types.NestedArray) -> dm_env.TimeStep:
        timestep = self._environment.step(action)
        if not isinstance(timestep, dm_env.TimeStep):
            calls.check(timestep, self._environment, "step")
        return self._convert(timestep)

    def _convert(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        """Returns what the wrapper gives in place of a timestep of the environment."""
        return timestep

    def observation_spec(self) -> types.NestedSpec:
        return self._environment.observation_spec()

    def action_spec(self) -> types.NestedSpec:
        return self._environment.action_spec()

    def reward_spec(self) -> types.NestedSpec:
        return self._environment.reward_spec()

    def discount_spec(self) -> types.NestedSpec:
        return self._environment.discount_spec()

    def close(self) -> None:
        self._environment.close()


def wrap_all(
    environment: dm_env.Environment,
    wrappers: Sequence[Callable[[dm_env.Environment], dm_env.Environment]],
) -> dm_env.Environment:
    """Applies wrappers in order: the first is nearest to the environment."""
    for wrapper in wrappers:
        environment = wrapper(environment)
    return environment
