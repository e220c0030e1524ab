"""The base of all environment wrappers, and the base of wrappers that convert by functions."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import dm_env

from minerva_acme import types
from minerva_acme.wrappers import calls

Conversion: TypeAlias = Callable[[types.NestedArray], types.NestedArray]
"""Makes a new nest from a nest, without changing its argument."""


class EnvironmentWrapper(dm_env.Environment):
    """A wrapper that behaves like its environment; subclasses override what differs.

    A subclass that changes timesteps, including FIRST, overrides `_convert`; one that changes actions
    overrides `step`.

    Public attributes that a wrapper does not have are looked up in the wrapped environment, so that
    `environment.physics` or `environment.save()` reach through any number of wrappers. Private names are
    not looked up there: copying and unpickling ask for them before the environment is set.
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
        """Returns the wrapper's timestep for a timestep of the environment."""
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


class ConversionWrapper(EnvironmentWrapper):
    """A wrapper that converts actions and timesteps by functions, each None if nothing is converted.

    A subclass sets the functions that it needs after `__init__` of this class, and overrides the specs.
    """

    _to_action: Conversion | None = None
    """Converts the agent's action to the environment's."""
    _to_observation: Conversion | None = None
    """Converts the environment's observation to the agent's."""
    _to_reward: Conversion | None = None
    """Converts the environment's reward to the agent's; not called at FIRST, which has no reward."""
    _to_discount: Conversion | None = None
    """Converts the environment's discount to the agent's; only used together with `_to_reward`."""

    def step(self, action: types.NestedArray) -> dm_env.TimeStep:
        if self._to_action is not None:
            action = self._to_action(action)
        timestep = self._environment.step(action)
        if not isinstance(timestep, dm_env.TimeStep):
            calls.check(timestep, self._environment, "step")
        return timestep if self._to_observation is None else self._convert(timestep)

    def _convert(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        if self._to_observation is None:
            return timestep
        reward, discount = timestep.reward, timestep.discount
        if reward is not None and self._to_reward is not None and self._to_discount is not None:
            reward, discount = self._to_reward(reward), self._to_discount(discount)
        observation = self._to_observation(timestep.observation)
        return dm_env.TimeStep(timestep.step_type, reward, discount, observation)


def wrap_all(
    environment: dm_env.Environment,
    wrappers: Sequence[Callable[[dm_env.Environment], dm_env.Environment]],
) -> dm_env.Environment:
    """Applies wrappers in order: the first is closest to the environment."""
    for wrapper in wrappers:
        environment = wrapper(environment)
    return environment
