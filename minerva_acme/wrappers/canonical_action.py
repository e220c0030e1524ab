"""Actions in [-1, 1], whatever the environment's own bounds are."""

from typing import Any

import dm_env
import numpy as np
import tree

from minerva_acme import specs, types
from minerva_acme.wrappers import base


class CanonicalActionWrapper(base.EnvironmentWrapper):
    """Lets an agent act in [-1, 1] and scales that linearly to the bounds of the action spec.

        action -1 -> minimum      0 -> (minimum + maximum) / 2      1 -> maximum

    Works leaf by leaf on nests of actions.
    """

    def __init__(self, environment: dm_env.Environment, *, clip: bool = True) -> None:
        """Initialises the wrapper.

        Args:
            environment: what to wrap; each leaf of its action spec is a float array with finite bounds.
            clip: whether an action outside [-1, 1] becomes the nearest inside. Otherwise it is
                scaled beyond the bounds, for the environment to judge.

        Raises:
            ValueError: an action is not a float, or not bounded on both sides.
        """
        super().__init__(environment)
        self._clip = clip
        self._inner_spec = environment.action_spec()
        tree.map_structure_with_path(_check_scalable, self._inner_spec)
        self._action_spec = tree.map_structure(_canonical_spec, self._inner_spec)
        self._half_ranges = tree.map_structure(
            lambda spec: 0.5 * (spec.maximum - spec.minimum), self._inner_spec
        )

    def step(self, action: types.NestedArray) -> dm_env.TimeStep:
        if isinstance(self._inner_spec, specs.Array):  # the usual case; `tree` takes ten times as long
            scaled = self._scale(self._inner_spec, self._half_ranges, action)
        else:
            scaled = tree.map_structure(self._scale, self._inner_spec, self._half_ranges, action)
        return self._environment.step(scaled)

    def action_spec(self) -> types.NestedSpec:
        return self._action_spec

    def _scale(self, spec: Any, half_range: np.ndarray[Any, Any], action: Any) -> np.ndarray[Any, Any]:
        action = np.asarray(action, dtype=spec.dtype)
        if action.shape != spec.shape:
            # A smaller shape would broadcast in silence.
            raise ValueError(f"`action` must have shape {spec.shape}, got {action.shape}.")
        scaled = spec.minimum + (action + 1) * half_range
        if self._clip:
            # The scale is monotone, so this equals clipping to [-1, 1] first, and rounding cannot
            # push the result over a bound.
            scaled = np.minimum(np.maximum(scaled, spec.minimum), spec.maximum)
        return np.asarray(scaled, dtype=spec.dtype)


def _check_scalable(path: tuple[Any, ...], spec: specs.Array) -> None:
    name = "`action_spec`" + "".join(f"[{key!r}]" for key in path)
    if not np.issubdtype(spec.dtype, np.floating):
        raise ValueError(
            f"{name} must be a float array to be scaled to [-1, 1], got {specs.describe(spec)}. Use an agent "
            "for discrete actions without this wrapper."
        )
    if not isinstance(spec, specs.BoundedArray) or not (
        np.isfinite(spec.minimum).all() and np.isfinite(spec.maximum).all()
    ):
        raise ValueError(
            f"{name} must be bounded on both sides to be scaled to [-1, 1], got {specs.describe(spec)}. "
            "Give it bounds in a wrapper around the environment, or leave out CanonicalActionWrapper."
        )


def _canonical_spec(spec: specs.BoundedArray) -> specs.BoundedArray:
    return spec.replace(minimum=-np.ones(spec.shape), maximum=np.ones(spec.shape))
