"""32 bits instead of 64 or 16, for networks and replay."""

import functools
from collections.abc import Callable
from typing import Any

import dm_env
import numpy as np
import tree

from minerva_acme import specs, types
from minerva_acme.wrappers import base, leafwise

_SINGLE: dict[np.dtype[Any], np.dtype[Any]] = {
    np.dtype(np.float64): np.dtype(np.float32),
    np.dtype(np.float16): np.dtype(np.float32),
    np.dtype(np.int64): np.dtype(np.int32),
}


class SinglePrecisionWrapper(specs.SpecMethods, base.ConversionWrapper):
    """Turns float64 and float16 into float32, and int64 into int32, in all that an environment returns.

    Specs, observations, rewards and discounts are converted, also in nests; other dtypes are unchanged, but
    rewards and discounts that are integers or booleans become float32, too. Actions are taken in the
    converted dtype and passed to the environment in its own. Make this the outermost wrapper, so that the
    wrappers inside still compute in the environment's own precision.
    """

    def __init__(self, environment: dm_env.Environment) -> None:
        super().__init__(environment)
        wide_specs = specs.make_environment_spec(environment)
        self._specs = tree.map_structure(narrow_spec, wide_specs)._replace(
            rewards=tree.map_structure(_float_spec, wide_specs.rewards),
            discounts=tree.map_structure(_float_spec, wide_specs.discounts),
        )
        self._to_action = _each_as_spec(wide_specs.actions)
        # By spec, because environments return plain numbers here, integers among them.
        self._to_reward = _each_as_spec(self._specs.rewards, scalars=True)
        self._to_discount = _each_as_spec(self._specs.discounts, scalars=True)
        observations = self._specs.observations
        is_vector = isinstance(observations, specs.Array) and observations.dtype == np.float32
        self._to_observation = _each_as_spec(observations) if is_vector else narrow


def _each_as_spec(nest: types.NestedSpec, scalars: bool = False) -> Callable[[Any], Any]:
    """Makes a conversion to the specs' dtypes: to arrays or, with `scalars` and shape (), to scalars."""

    def as_spec(spec: specs.Array) -> Callable[[Any], Any]:
        dtype = np.dtype(spec.dtype)
        if scalars and spec.shape == ():
            # Takes a fifth of an array's time, and still returns an array for a value that is not a number.
            return dtype.type
        return functools.partial(np.asarray, dtype=dtype)

    return leafwise.apply_each(tree.map_structure(as_spec, nest))


def narrow(nest: types.NestedArray) -> types.NestedArray:
    """Returns a nest of arrays with 64 bits, and floats of 16, converted to 32.

    Raises:
        ValueError: An integer does not fit.
    """
    if isinstance(nest, np.ndarray):  # the usual case; `tree` takes ten times as long
        return _narrow_leaf(nest)
    return tree.map_structure(_narrow_leaf, nest)


def _narrow_leaf(value: Any) -> Any:
    wide = np.asarray(value)
    dtype = _SINGLE.get(wide.dtype)
    if dtype is None:
        return value
    cast = wide.astype(dtype)
    if dtype == np.int32 and not np.array_equal(cast, wide):
        raise ValueError(
            f"An int64 value of the environment does not fit int32: {wide}. Leave out "
            "SinglePrecisionWrapper, or rescale the value in a wrapper inside it; for a vector, in each "
            "environment."
        )
    return cast


def narrow_spec(spec: specs.Array) -> specs.Array:
    """Returns a spec converted as by `narrow`; bounds out of range become the largest possible."""
    dtype = _SINGLE.get(spec.dtype)
    if dtype is None:
        return spec
    if isinstance(spec, specs.BoundedArray) and not isinstance(spec, specs.DiscreteArray):
        return spec.replace(
            dtype=dtype,
            minimum=_narrow_bound(spec.minimum, dtype),
            maximum=_narrow_bound(spec.maximum, dtype),
        )
    return spec.replace(dtype=dtype)


def _float_spec(spec: specs.Array) -> specs.Array:
    """Returns the spec in float32 if it is of numbers, also of integers and booleans."""
    if spec.dtype.kind not in "biu":
        return narrow_spec(spec)
    if isinstance(spec, specs.BoundedArray):
        return specs.BoundedArray(spec.shape, np.float32, *specs.bounds(spec), name=spec.name)
    return specs.Array(spec.shape, np.float32, name=spec.name)


def _narrow_bound(bound: Any, dtype: np.dtype[Any]) -> Any:
    limits = np.iinfo(dtype) if dtype == np.int32 else np.finfo(dtype)
    # An infinite bound stays infinite; a finite one out of range becomes the largest possible.
    return np.where(np.isinf(bound), bound, np.clip(bound, limits.min, limits.max)).astype(dtype)
