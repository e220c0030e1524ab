"""Actions in [-1, 1] instead of the environment's own bounds."""

from typing import Any

import dm_env
import numpy as np
import tree

from minerva_acme import specs
from minerva_acme.wrappers import leafwise, transforms


class CanonicalActionWrapper(transforms.ActionTransformWrapper):
    """Lets an agent act in [-1, 1] and scales that linearly to the bounds of the action spec.

        action -1 -> minimum      0 -> (minimum + maximum) / 2      1 -> maximum

    Works leaf by leaf on nests of actions; among floats, integers stay as they are.
    """

    def __init__(self, environment: dm_env.Environment, *, clip: bool = True) -> None:
        """Initialises the wrapper.

        Args:
            environment: The environment to wrap; the floats of its action spec, at least one array, have
                finite bounds.
            clip: Whether an action outside [-1, 1] is clipped to it. Otherwise it is scaled beyond the
                bounds, and handling it is left to the environment.

        Raises:
            ValueError: No action is a float, or one is not bounded on both sides, or its range overflows.
        """
        inner_spec = environment.action_spec()
        has_floats = any(map(_is_float, tree.flatten(inner_spec)))
        for path, leaf in tree.flatten_with_path(inner_spec):
            if _is_float(leaf) or not has_floats:
                _check_scalable(path, leaf)
        scale = leafwise.apply_each(
            tree.map_structure(
                lambda spec: _Scale(spec, clip) if _is_float(spec) else leafwise.same, inner_spec
            )
        )
        spec = tree.map_structure(_canonical_spec, inner_spec)
        super().__init__(environment, transform=scale, spec=spec)


class _Scale:
    """Scales [-1, 1] to a spec's bounds, read only once: dm_env's specs compute them at every access."""

    def __init__(self, spec: specs.BoundedArray, clip: bool) -> None:
        self._shape, self._dtype = spec.shape, np.dtype(spec.dtype)
        self._minimum, self._maximum = spec.minimum, spec.maximum
        self._half_range = 0.5 * (spec.maximum - spec.minimum)
        self._clip = clip
        self._is_canonical = bool((spec.minimum == -1).all() and (spec.maximum == 1).all())

    def __call__(self, action: Any) -> np.ndarray[Any, Any]:
        action = np.asarray(action, self._dtype)
        if action.shape != self._shape:
            # A smaller shape would broadcast silently.
            raise ValueError(f"`action` must have shape {self._shape}, got {action.shape}.")
        scaled = action if self._is_canonical else (action + 1) * self._half_range + self._minimum
        if self._clip:
            # The scale is monotone, so this equals clipping to [-1, 1] first, and rounding cannot
            # push the result over a bound.
            scaled = np.minimum(np.maximum(scaled, self._minimum), self._maximum)
        return np.asarray(scaled, self._dtype)


def _is_float(spec: specs.Array) -> bool:
    return np.issubdtype(spec.dtype, np.floating)


def _check_scalable(path: tuple[Any, ...], spec: specs.Array) -> None:
    name = specs.leaf_name("`action_spec`", path)
    if not _is_float(spec):
        raise ValueError(
            f"{name} must be a float array to be scaled to [-1, 1], got {specs.describe(spec)}. Discrete "
            "actions need no such wrapper."
        )
    if not isinstance(spec, specs.BoundedArray) or not specs.is_bounded(spec):
        raise ValueError(
            f"{name} must be bounded on both sides to be scaled to [-1, 1], got {specs.describe(spec)}. "
            "Give it bounds in a wrapper around the environment."
        )
    with np.errstate(over="ignore"):  # to infinity, which is refused
        has_range = np.isfinite(spec.maximum - spec.minimum).all()
    if not has_range:
        raise ValueError(
            f"{name} must have a range that {spec.dtype} can hold to be scaled to [-1, 1], got "
            f"{specs.describe(spec)}. Give it closer bounds in a wrapper around the environment."
        )


def _canonical_spec(spec: specs.BoundedArray) -> specs.BoundedArray:
    if not _is_float(spec):
        return spec
    return spec.replace(minimum=-np.ones(spec.shape), maximum=np.ones(spec.shape))
