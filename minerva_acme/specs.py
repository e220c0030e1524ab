"""What an environment takes and gives, as `dm_env` specs."""

from typing import Any, NamedTuple

import dm_env
import numpy as np
import tree
from dm_env import specs

from minerva_acme import constraints, types

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


class SpecError(ValueError):
    """An environment, or an agent in it, breaks a spec."""


class SpecMethods:
    """The four methods by which an environment tells its specs, for those in `_specs`."""

    _specs: EnvironmentSpec

    def observation_spec(self) -> types.NestedSpec:
        return self._specs.observations

    def action_spec(self) -> types.NestedSpec:
        return self._specs.actions

    def reward_spec(self) -> types.NestedSpec:
        return self._specs.rewards

    def discount_spec(self) -> types.NestedSpec:
        return self._specs.discounts


def make_environment_spec(environment: dm_env.Environment | SpecMethods) -> EnvironmentSpec:
    """Reads the four specs of an environment, or of one environment of a vector."""
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


def is_bounded(spec: Any) -> bool:
    """Whether a spec has finite bounds on both sides."""
    return isinstance(spec, BoundedArray) and bool(np.isfinite(bounds(spec)).all())


def describe(spec: Any) -> str:
    """A spec in a few words, for error messages: `BoundedArray(6,) float32 in [-1, 1]`."""
    if isinstance(spec, specs.DiscreteArray):
        return f"DiscreteArray with {spec.num_values} values"
    if isinstance(spec, specs.BoundedArray) and spec.minimum.size and spec.maximum.size:
        low, high = spec.minimum.min(), spec.maximum.max()
        return f"BoundedArray{spec.shape} {spec.dtype} in [{low:g}, {high:g}]"
    if isinstance(spec, specs.Array):
        return f"{type(spec).__name__}{spec.shape} {spec.dtype}"
    return repr(spec)


def check_conforms(name: str, value: types.NestedArray, spec: types.NestedSpec) -> None:
    """Checks a nest of arrays or numbers against its spec; floats must also be `is_moderate`.

    Raises:
        SpecError: it does not conform; the message names the leaf and both sides.
    """
    try:
        tree.assert_same_structure(spec, value)
    except (TypeError, ValueError) as error:
        leaves, found = (
            {leaf_name(name, path) for path, _ in tree.flatten_with_path(n)} for n in (spec, value)
        )
        differences = [f"without `{leaf}`" for leaf in sorted(leaves - found)]
        differences += [f"with `{leaf}`, which has no spec" for leaf in sorted(found - leaves)]
        expected = tree.map_structure(describe, spec)
        raise SpecError(
            f"`{name}` must have the structure {expected}, got {value!r}"
            + (f", {' and '.join(differences)}." if differences else f": {error}")
        ) from error
    for (path, leaf_spec), leaf in zip(tree.flatten_with_path(spec), tree.flatten(value), strict=True):
        try:
            leaf_spec.validate(leaf)
        except ValueError as error:
            raise SpecError(
                f"`{leaf_name(name, path)}` must be {describe(leaf_spec)}, got {leaf!r}: {error}"
            ) from error
        if np.issubdtype(leaf_spec.dtype, np.floating) and not is_moderate(leaf).all():
            what = f"within +-{constraints.LARGEST:g}" if np.isfinite(leaf).all() else "finite"
            raise SpecError(
                f"`{leaf_name(name, path)}` must be {describe(leaf_spec)} and {what}, got {leaf!r}. Look for "
                "a simulation or a policy that has diverged, and clip what it is made of."
            )


def is_moderate(value: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which numbers of a floating-point array are finite and within `constraints.LARGEST`."""
    return np.asarray(np.abs(value) <= np.float64(constraints.LARGEST))


def check_timestep(timestep: dm_env.TimeStep, environment_spec: EnvironmentSpec) -> None:
    """Checks a timestep against the specs.

    Raises:
        SpecError: a leaf does not conform, or the first timestep has a reward or a discount.
    """
    check_conforms("observation", timestep.observation, environment_spec.observations)
    if timestep.first():
        for name, value in (("reward", timestep.reward), ("discount", timestep.discount)):
            if value is not None:
                raise SpecError(f"`{name}` of a FIRST timestep must be None, got {value!r}.")
    else:
        check_conforms("reward", timestep.reward, environment_spec.rewards)
        check_conforms("discount", timestep.discount, environment_spec.discounts)


def leaf_name(name: str, path: tuple[Any, ...]) -> str:
    """The name of a leaf in a message: `observation['arm'][0]`."""
    return name + "".join(f"[{key!r}]" for key in path)
