"""How what a policy draws becomes an action of the environment.

Shapes: D action dimensions; `...` any leading axes.
"""

from typing import Any

import numpy as np
import torch
import tree

from minerva_acme import distributions, specs, types
from minerva_acme.distributions.squashed import log_det_array, squash_array


class RawActions:
    """Raw actions are the environment's own, once they have its dtype and are clipped to its bounds.

    Clipping is taken to be the environment's part: densities are those of the raw action. Where a policy
    means something else by its raw actions, a subclass says so, and `raw_actions` chooses between them.
    """

    def __init__(self, action_spec: specs.Array) -> None:
        """Args: action_spec: The spec of one action."""
        self._dtype = action_spec.dtype
        self._bounds: tuple[np.ndarray, np.ndarray] | None = None
        # Discrete actions are chosen from those that there are.
        if isinstance(action_spec, specs.BoundedArray) and not isinstance(action_spec, specs.DiscreteArray):
            self._bounds = specs.bounds(action_spec)

    def to_environment(self, raw: np.ndarray) -> np.ndarray:
        """The actions to execute, [..., D], or [...] where discrete, conforming to the action spec."""
        action = raw if raw.dtype == self._dtype else raw.astype(self._dtype)
        if self._bounds is None:
            return action
        # np.clip takes several times as long for a few numbers.
        low, high = self._bounds
        return np.minimum(np.maximum(action, low), high)

    def execute(self, raw: torch.Tensor) -> torch.Tensor:
        """The actions of `to_environment`, on tensors."""
        action = raw.to(torch.from_numpy(np.empty(0, self._dtype)).dtype)
        return action if self._bounds is None else action.clamp(*map(torch.from_numpy, self._bounds))

    def log_det(self, raw: torch.Tensor) -> torch.Tensor | float:
        """log |d action / d raw|, [...]: what the density of the action lacks beside that of the raw one."""
        return 0.0

    def reround(self, log_prob: torch.Tensor, raw: torch.Tensor) -> torch.Tensor:
        """Rounds log-densities of raw actions as if they came from those of the executed actions.

        Earlier versions recorded the latter, from which PPO took the former. On a CPU its numbers stay what
        they were, bit for bit; elsewhere they differ by that rounding.

        Args:
            log_prob: [...].
            raw: [..., D], or [...] where discrete.
        """
        return log_prob


class SquashedActions(RawActions):
    """Raw actions go through tanh and are scaled to the bounds, as `distributions.TanhSquash` does it."""

    def __init__(self, action_spec: specs.BoundedArray) -> None:
        super().__init__(action_spec)
        self._low, self._high = low, high = specs.bounds(action_spec)
        self._half_range = np.float32(0.5) * (high - low)
        self._squash = distributions.TanhSquash(torch.from_numpy(low), torch.from_numpy(high))

    def to_environment(self, raw: np.ndarray) -> np.ndarray:
        return squash_array(raw, self._low, self._half_range, self._high)

    def execute(self, raw: torch.Tensor) -> torch.Tensor:
        action: torch.Tensor = self._squash(raw)
        return action

    def log_det(self, raw: torch.Tensor) -> torch.Tensor:
        self._squash.to(raw.device)
        log_det: torch.Tensor = self._squash.log_det(raw)
        return log_det

    def reround(self, log_prob: torch.Tensor, raw: torch.Tensor) -> torch.Tensor:
        if raw.device.type != "cpu":  # where no update waits for the host
            return log_prob
        # On arrays, as actors computed it, which torch rounds differently.
        return log_prob - torch.from_numpy(log_det_array(raw.numpy(), self._half_range)) + self.log_det(raw)


class MultiDiscreteActions(RawActions):
    """Raw actions are counted from 0 in every choice, the environment's from its minimum."""

    def __init__(self, action_spec: specs.BoundedArray) -> None:
        super().__init__(action_spec)
        self._low, _ = specs.bounds(action_spec)

    def to_environment(self, raw: np.ndarray) -> np.ndarray:
        return raw.astype(self._low.dtype) + self._low

    def execute(self, raw: torch.Tensor) -> torch.Tensor:
        low = torch.from_numpy(self._low)
        return raw.to(low.dtype) + low


def num_values(action_spec: specs.BoundedArray) -> tuple[int, ...]:
    """How many values each of several discrete choices has."""
    low, high = specs.bounds(action_spec)
    return tuple((high.astype(object) - low + 1).tolist())  # Python's integers do not overflow


def raw_actions(action_spec: specs.BoundedArray, squash: bool) -> RawActions:
    """The raw actions of a policy whose distribution suits an action spec; `squash`: continuous ones."""
    if isinstance(action_spec, specs.DiscreteArray):
        return RawActions(action_spec)
    if action_spec.dtype.kind in "iu":
        return MultiDiscreteActions(action_spec)
    return SquashedActions(action_spec) if squash else RawActions(action_spec)


def executed(action_spec: types.NestedSpec) -> Any:
    """The raw actions of a module that gives the environment's own: of each leaf of a nest of specs."""
    return tree.map_structure(RawActions, action_spec)


def raw_specs(action_spec: specs.BoundedArray) -> tuple[specs.Array, types.NestedSpec]:
    """The specs of one raw action and of a policy at one observation, its distribution, holding specs."""
    if isinstance(action_spec, specs.DiscreteArray):
        logits: Any = specs.Array((action_spec.num_values,), np.float32, name="logits")
        return specs.Array((), np.int64, name="raw_action"), distributions.Categorical(logits)
    if action_spec.dtype.kind in "iu":
        sizes = num_values(action_spec)
        logits = specs.Array((len(sizes), max(sizes)), np.float32, name="logits")
        raw = specs.Array(action_spec.shape, np.int64, name="raw_action")
        return raw, distributions.MultiCategorical(logits)
    raw, mean, log_std = (
        specs.Array(action_spec.shape, np.float32, name=name) for name in ("raw_action", "mean", "log_std")
    )
    parts: Any = mean, log_std
    return raw, distributions.DiagonalGaussian(*parts)
