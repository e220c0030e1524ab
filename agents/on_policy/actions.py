"""How what a policy's distribution draws becomes an action of the environment.

Shapes: D action dimensions; `...` any leading axes.
"""

import abc

import numpy as np
import torch

from minerva_acme import networks, specs


class RawActions(abc.ABC):
    """The way from raw actions, over which the policy is a distribution, to the environment's."""

    @abc.abstractmethod
    def to_environment(self, raw: torch.Tensor) -> np.ndarray:
        """The actions to execute, conforming to the action spec: [..., D], or [...] where discrete."""

    @abc.abstractmethod
    def log_det(self, raw: torch.Tensor) -> torch.Tensor | float:
        """log |d action / d raw|, [...]: what the density of the action lacks beside that of the raw one."""


class ClippedActions(RawActions):
    """Raw actions are clipped to the bounds; the environment does that, so to say: densities stay raw."""

    def __init__(self, action_spec: specs.BoundedArray) -> None:
        self._low, self._high = specs.bounds(action_spec)

    def to_environment(self, raw: torch.Tensor) -> np.ndarray:
        return np.clip(raw.numpy(), self._low, self._high)

    def log_det(self, raw: torch.Tensor) -> float:
        return 0.0


class SquashedActions(RawActions):
    """Raw actions go through tanh and are scaled to the bounds."""

    def __init__(self, action_spec: specs.BoundedArray) -> None:
        low, high = specs.bounds(action_spec)
        self._low, self._high = low, high
        self._squash = networks.TanhSquash(torch.from_numpy(low), torch.from_numpy(high))

    def to_environment(self, raw: torch.Tensor) -> np.ndarray:
        # Clipped too: low + width rounds beyond the upper bound at times.
        return np.clip(self._squash(raw).numpy(), self._low, self._high)

    def log_det(self, raw: torch.Tensor) -> torch.Tensor:
        self._squash.to(raw.device)
        log_det: torch.Tensor = self._squash.log_det(raw)
        return log_det


class DiscreteActions(RawActions):
    """Raw actions are the environment's, in another integer dtype."""

    def __init__(self, action_spec: specs.DiscreteArray) -> None:
        self._dtype = action_spec.dtype

    def to_environment(self, raw: torch.Tensor) -> np.ndarray:
        return raw.numpy().astype(self._dtype)

    def log_det(self, raw: torch.Tensor) -> float:
        return 0.0


def raw_actions(action_spec: specs.BoundedArray, squash: bool) -> RawActions:
    """The way that suits an action spec; `squash` chooses for continuous ones."""
    if isinstance(action_spec, specs.DiscreteArray):
        return DiscreteActions(action_spec)
    return SquashedActions(action_spec) if squash else ClippedActions(action_spec)
