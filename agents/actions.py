"""How what a policy's distribution draws becomes an action of the environment.

Shapes: D action dimensions; `...` any leading axes.
"""

import abc
import math
from typing import Any

import numpy as np
import torch

from minerva_acme import distributions, specs, types

# Numpy 1 widens a single-precision scalar that meets one of Python's.
_ZERO, _ONE, _TWO = np.float32(0.0), np.float32(1.0), np.float32(2.0)
_LOG_TWO = np.float32(math.log(2.0))


class RawActions(abc.ABC):
    """The way from raw actions, over which the policy is a distribution, to the environment's.

    What differs between kinds of actions is in its subclasses, and `raw_actions` alone chooses between them.
    """

    raw_spec: specs.Array
    """Of one raw action."""
    policy_spec: types.NestedSpec
    """Of the policy at one observation: its distribution, holding specs."""

    @abc.abstractmethod
    def to_environment(self, raw: np.ndarray) -> np.ndarray:
        """The actions to execute, [..., D], or [...] where discrete, conforming to the action spec."""

    @abc.abstractmethod
    def execute(self, raw: torch.Tensor) -> torch.Tensor:
        """The actions of `to_environment`, on tensors."""

    @abc.abstractmethod
    def log_det(self, raw: torch.Tensor) -> torch.Tensor | float:
        """log |d action / d raw|, [...]: what the density of the action lacks beside that of the raw one."""

    def reround(self, log_prob: torch.Tensor, raw: torch.Tensor) -> torch.Tensor:
        """Rounds log-densities of raw actions as if they came from those of the executed actions.

        Earlier versions recorded the latter, from which PPO took the former. On a CPU its numbers stay what
        they were, bit for bit; elsewhere they differ by that rounding.

        Args:
            log_prob: [...].
            raw: [..., D], or [...] where discrete.
        """
        return log_prob


class ClippedActions(RawActions):
    """Raw actions are clipped to the bounds; the environment does that, so to say: densities stay raw."""

    def __init__(self, action_spec: specs.BoundedArray) -> None:
        self._low, self._high = specs.bounds(action_spec)
        self.raw_spec, self.policy_spec = _gaussian_specs(action_spec)

    def to_environment(self, raw: np.ndarray) -> np.ndarray:
        # np.clip takes several times as long for a few numbers.
        return np.minimum(np.maximum(raw, self._low), self._high)

    def execute(self, raw: torch.Tensor) -> torch.Tensor:
        return raw.clamp(torch.from_numpy(self._low), torch.from_numpy(self._high))

    def log_det(self, raw: torch.Tensor) -> float:
        return 0.0


class SquashedActions(RawActions):
    """Raw actions go through tanh and are scaled to the bounds."""

    def __init__(self, action_spec: specs.BoundedArray) -> None:
        low, high = specs.bounds(action_spec)
        self._low, self._high = low, high
        self._half = np.float32(0.5) * (high - low)
        self._log_half = np.log(self._half)
        self._squash = distributions.TanhSquash(torch.from_numpy(low), torch.from_numpy(high))
        self.raw_spec, self.policy_spec = _gaussian_specs(action_spec)

    def to_environment(self, raw: np.ndarray) -> np.ndarray:
        # As `TanhSquash` does it, in a fraction of the time for a few numbers.
        action = self._low + (np.tanh(raw) + _ONE) * self._half
        return np.minimum(np.maximum(action, self._low), self._high)  # what rounding added

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
        array = raw.numpy()
        with np.errstate(invalid="ignore"):  # a bad batch is refused elsewhere
            log_slope = _TWO * (_LOG_TWO - array - np.logaddexp(_ZERO, -_TWO * array))
        # On arrays, as actors computed it, which torch rounds differently.
        log_det = torch.from_numpy(np.add.reduce(log_slope + self._log_half, -1)).to(log_prob.device)
        return log_prob - log_det + self.log_det(raw)


class DiscreteActions(RawActions):
    """Raw actions are the environment's, in another integer dtype."""

    def __init__(self, action_spec: specs.DiscreteArray) -> None:
        self._dtype = action_spec.dtype
        self.raw_spec = specs.Array((), np.int64, name="raw_action")
        logits: Any = specs.Array((action_spec.num_values,), np.float32, name="logits")
        self.policy_spec = distributions.Categorical(logits)

    def to_environment(self, raw: np.ndarray) -> np.ndarray:
        return raw.astype(self._dtype)

    def execute(self, raw: torch.Tensor) -> torch.Tensor:
        return raw.to(torch.from_numpy(np.empty(0, self._dtype)).dtype)

    def log_det(self, raw: torch.Tensor) -> float:
        return 0.0


class MultiDiscreteActions(RawActions):
    """Raw actions are counted from 0 in every choice, the environment's from its minimum."""

    def __init__(self, action_spec: specs.BoundedArray) -> None:
        self._low, _ = specs.bounds(action_spec)
        self.raw_spec = specs.Array(action_spec.shape, np.int64, name="raw_action")
        sizes = num_values(action_spec)
        logits: Any = specs.Array((len(sizes), max(sizes)), np.float32, name="logits")
        self.policy_spec = distributions.MultiCategorical(logits)

    def to_environment(self, raw: np.ndarray) -> np.ndarray:
        return raw.astype(self._low.dtype) + self._low

    def execute(self, raw: torch.Tensor) -> torch.Tensor:
        low = torch.from_numpy(self._low)
        return raw.to(low.dtype) + low

    def log_det(self, raw: torch.Tensor) -> float:
        return 0.0


def _gaussian_specs(action_spec: specs.BoundedArray) -> tuple[specs.Array, types.NestedSpec]:
    raw, mean, log_std = (
        specs.Array(action_spec.shape, np.float32, name=name) for name in ("raw_action", "mean", "log_std")
    )
    parts: Any = mean, log_std
    return raw, distributions.DiagonalGaussian(*parts)


def num_values(action_spec: specs.BoundedArray) -> tuple[int, ...]:
    """How many values each of several discrete choices has."""
    low, high = specs.bounds(action_spec)
    return tuple((high.astype(object) - low + 1).tolist())  # Python's integers do not overflow


def raw_actions(action_spec: specs.BoundedArray, squash: bool) -> RawActions:
    """The way that suits an action spec; `squash` chooses for continuous ones."""
    if isinstance(action_spec, specs.DiscreteArray):
        return DiscreteActions(action_spec)
    if action_spec.dtype.kind in "iu":
        return MultiDiscreteActions(action_spec)
    return SquashedActions(action_spec) if squash else ClippedActions(action_spec)
