"""What an environment takes and gives, as `dm_env` specs."""

from typing import Any, NamedTuple

import dm_env
import numpy as np
from dm_env import specs

from minerva_acme import types

Array = specs.Array
BoundedArray = specs.BoundedArray
DiscreteArray = specs.DiscreteArray
StringArray = specs.StringArray


class EnvironmentSpec(NamedTuple):
    """The four specs of an environment; each may be a nest."""

    observations: types.NestedSpec
    actions: types.NestedSpec
    rewards: types.NestedSpec
    discounts: types.NestedSpec


def make_environment_spec(environment: dm_env.Environment) -> EnvironmentSpec:
    """Reads the four specs off an environment."""
    return EnvironmentSpec(
        observations=environment.observation_spec(),
        actions=environment.action_spec(),
        rewards=environment.reward_spec(),
        discounts=environment.discount_spec(),
    )


def bounds(spec: BoundedArray) -> tuple[np.ndarray, np.ndarray]:
    """The smallest and largest values, each of the spec's own shape and dtype; a spec may hold scalars."""
    low, high = (np.broadcast_to(bound, spec.shape).copy() for bound in (spec.minimum, spec.maximum))
    return low, high


def describe(spec: Any) -> str:
    """A spec in a few words, for error messages: `BoundedArray(6,) float32 in [-1, 1]`."""
    if isinstance(spec, specs.DiscreteArray):
        return f"DiscreteArray with {spec.num_values} values"
    if isinstance(spec, specs.BoundedArray):
        low, high = spec.minimum.min(), spec.maximum.max()
        return f"BoundedArray{spec.shape} {spec.dtype} in [{low:g}, {high:g}]"
    if isinstance(spec, specs.Array):
        return f"{type(spec).__name__}{spec.shape} {spec.dtype}"
    return repr(spec)
