"""Raw actions: how the policy's samples become actions of the environment.

Shapes: D action dimensions; of a hybrid action, D continuous ones, C choices and V values of all choices;
`...` any leading axes.
"""

import copy
import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import torch
import tree

from minerva_acme import distributions, specs, types
from minerva_acme.distributions.squashed import log_det_array, squash_array


class RawActions:
    """Raw actions that become the environment's by a cast to its dtype and clipping to its bounds.

    Clipping is considered part of the environment: densities are of the raw action. Subclasses define other
    meanings of raw actions, and `raw_actions` chooses between them.
    """

    clipped = slice(None)
    """The entries of an action that may be beyond their bounds."""

    def __init__(self, action_spec: specs.Array) -> None:
        """Args: action_spec: The spec of one action."""
        self._dtype = action_spec.dtype
        self._bounds: tuple[np.ndarray, np.ndarray] | None = None
        # Discrete actions are always within their bounds.
        if isinstance(action_spec, specs.BoundedArray) and not isinstance(action_spec, specs.DiscreteArray):
            self._bounds = specs.bounds(action_spec)
        self._limits = () if self._bounds is None else tuple(map(torch.from_numpy, self._bounds))

    def on(self, device: torch.device) -> Self:
        """Returns a copy whose `execute` takes tensors on a device."""
        moved = copy.copy(self)
        moved._limits = tuple(limit.to(device) for limit in self._limits)
        return moved

    def to_environment(self, raw: np.ndarray) -> np.ndarray:
        """Returns the actions to execute, [..., D], or [...] if discrete, conforming to the action spec."""
        action = raw if raw.dtype == self._dtype else raw.astype(self._dtype)
        if self._bounds is None:
            return action
        # np.clip takes several times as long for a few numbers.
        low, high = self._bounds
        return np.minimum(np.maximum(action, low), high)

    def execute(self, raw: torch.Tensor) -> torch.Tensor:
        """Returns the actions of `to_environment`, on tensors."""
        action = raw.to(torch.from_numpy(np.empty(0, self._dtype)).dtype)
        return action.clamp(*self._limits) if self._limits else action

    def join(self, action: Any) -> Any:
        """Returns the raw actions that are executed as `action`, of tensors; here they are the actions."""
        return action

    def uniform(self, raw: Any, policy: Any) -> tuple[Any, Any]:
        """Turns samples of a Gaussian into uniformly random actions within their bounds, by its own noise.

        So they are kept for as many steps as the noise is, and no other random numbers are needed.

        Args:
            raw: The samples, [..., D], arrays or tensors.
            policy: The `distributions.DiagonalGaussian` from which they were drawn, likewise.

        Returns:
            The raw actions, [..., D], and their log-densities, nats, [...].
        """
        assert self._bounds is not None
        low, high = (torch.from_numpy(bound) for bound in self._bounds)
        mean, log_std = (torch.as_tensor(part) for part in policy)
        share = torch.special.ndtr((torch.as_tensor(raw) - mean) * torch.exp(-log_std))
        low, high = low.to(share.device), high.to(share.device)
        drawn = low + (high - low) * share
        log_prob = -torch.log(high - low).sum().expand(drawn.shape[:-1])
        return (drawn, log_prob) if isinstance(raw, torch.Tensor) else (drawn.numpy(), log_prob.numpy())

    def spread(self, raw: Any, log_prob: Any, policy: Any, factor: float) -> tuple[Any, Any]:
        """Moves samples of a Gaussian away from its mean, as if its standard deviation were larger.

        Args:
            raw: The samples, [..., D], arrays or tensors.
            log_prob: Their log-densities, nats, [...], likewise.
            policy: The `distributions.DiagonalGaussian` from which they were drawn, likewise.
            factor: The factor by which the standard deviation grows, > 0; below 1 it shrinks.

        Returns:
            The new samples, [..., D], and their log-densities, [...].
        """
        mean = policy.mean if isinstance(raw, torch.Tensor) else np.asarray(policy.mean)
        return mean + factor * (raw - mean), log_prob - np.float32(raw.shape[-1] * math.log(factor))

    def log_det(self, raw: torch.Tensor) -> torch.Tensor | float:
        """Returns log |d action / d raw|, [...]: the raw action's log-density minus the executed action's."""
        return 0.0

    def reround(self, log_prob: torch.Tensor, raw: torch.Tensor) -> torch.Tensor:
        """Rounds log-densities of raw actions as if they were computed from the executed actions' densities.

        Earlier versions recorded the latter, and PPO computed the former from them. On a CPU its numbers are
        unchanged, bit for bit; on other devices they differ by that rounding.

        Args:
            log_prob: The log-densities, [...].
            raw: The raw actions, [..., D], or [...] if discrete.
        """
        return log_prob


class SquashedActions(RawActions):
    """Raw actions that go through tanh and are scaled to the bounds, as in `distributions.TanhSquash`."""

    def __init__(self, action_spec: specs.BoundedArray) -> None:
        super().__init__(action_spec)
        self._low, self._high = low, high = specs.bounds(action_spec)
        self._half_range = np.float32(0.5) * (high - low)
        self._squash = distributions.TanhSquash(torch.from_numpy(low), torch.from_numpy(high))

    def on(self, device: torch.device) -> Self:
        moved = super().on(device)
        moved._squash = copy.deepcopy(self._squash).to(device)
        return moved

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
        if raw.device.type != "cpu":  # no update may wait for the host here
            return log_prob
        # With NumPy, as actors computed it: torch rounds differently.
        return log_prob - torch.from_numpy(log_det_array(raw.numpy(), self._half_range)) + self.log_det(raw)


class MultiDiscreteActions(RawActions):
    """Raw actions that count from 0 in every choice, where the environment's count from its minimum."""

    def __init__(self, action_spec: specs.BoundedArray) -> None:
        super().__init__(action_spec)
        self._low, _ = specs.bounds(action_spec)
        self._limits = (torch.from_numpy(self._low),)

    def to_environment(self, raw: np.ndarray) -> np.ndarray:
        return raw.astype(self._low.dtype) + self._low

    def execute(self, raw: torch.Tensor) -> torch.Tensor:
        (low,) = self._limits
        return raw.to(low.dtype) + low

    def join(self, action: torch.Tensor) -> torch.Tensor:
        (low,) = self._limits
        return action - low


class HybridActions(RawActions):
    """Raw actions that are one vector, [..., D + C]: continuous actions, then choices that count from 0.

    The environment's are a dict of both; see `specs.is_hybrid`. As floats, choices are exact up to 2 ** 24.
    """

    def __init__(self, action_spec: Mapping[str, specs.BoundedArray]) -> None:
        continuous, discrete = action_spec["continuous"], action_spec["discrete"]
        self.clipped = slice(continuous.shape[0])
        self._parts: dict[str, tuple[RawActions, slice]] = {
            "continuous": (RawActions(continuous), self.clipped),
            "discrete": (MultiDiscreteActions(discrete), slice(self.clipped.stop, None)),
        }

    def on(self, device: torch.device) -> Self:
        moved = copy.copy(self)
        moved._parts = {name: (part.on(device), place) for name, (part, place) in self._parts.items()}
        return moved

    def to_environment(self, raw: np.ndarray) -> Any:
        return {name: part.to_environment(raw[..., place]) for name, (part, place) in self._parts.items()}

    def execute(self, raw: torch.Tensor) -> Any:
        return {name: part.execute(raw[..., place]) for name, (part, place) in self._parts.items()}

    def join(self, action: Any) -> torch.Tensor:
        continuous, choices = (part.join(action[name]) for name, (part, _) in self._parts.items())
        return torch.cat([continuous, choices.to(continuous.dtype)], dim=-1)

    def uniform(self, raw: Any, policy: Any) -> tuple[Any, Any]:
        """Makes the continuous part uniform; choices stay the policy's, which is near uniform at first."""
        (continuous, place), (_, rest) = self._parts.values()
        drawn, log_prob = continuous.uniform(raw[..., place], policy.continuous)
        choices = raw[..., rest]
        chosen = policy.discrete.log_prob(torch.as_tensor(choices))
        if isinstance(raw, torch.Tensor):
            return torch.cat([drawn, choices], dim=-1), log_prob + chosen
        return np.concatenate([drawn, choices], axis=-1), log_prob + chosen.numpy()

    def spread(self, raw: Any, log_prob: Any, policy: Any, factor: float) -> tuple[Any, Any]:
        """Spreads the continuous part; choices stay the policy's."""
        (continuous, place), (_, rest) = self._parts.values()
        drawn, log_prob = continuous.spread(raw[..., place], log_prob, policy.continuous, factor)
        join = torch.cat if isinstance(raw, torch.Tensor) else np.concatenate
        return join([drawn, raw[..., rest]], -1), log_prob


def bounds(action_spec: Any) -> tuple[np.ndarray, np.ndarray]:
    """Returns the smallest and the largest executed raw action: [D], [D + C] if hybrid, [] if discrete."""
    continuous, sizes = parts(action_spec)
    low, high = specs.bounds(continuous)
    if not sizes:
        return low, high
    last = np.asarray(sizes, low.dtype) - 1
    return np.concatenate([low, np.zeros_like(last)]), np.concatenate([high, last])


def parts(action_spec: Any) -> tuple[specs.BoundedArray, tuple[int, ...]]:
    """Returns the spec of the continuous part, and the number of values of each choice: () without any."""
    if specs.is_hybrid(action_spec):
        return action_spec["continuous"], num_values(action_spec["discrete"])
    return action_spec, ()


class OneHot:
    """Turns hybrid raw actions into a critic's input, with each choice as one number per value."""

    def __init__(self, action_spec: Mapping[str, specs.BoundedArray], device: torch.device | None) -> None:
        """Takes the spec, and the device of the actions."""
        continuous, sizes = parts(action_spec)
        self._size = continuous.shape[0]
        # Of each of the V numbers, the choice that it belongs to, and the value at which it is 1.
        self._choices = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes)).to(device)
        self._values = torch.cat([torch.arange(size) for size in sizes]).to(device)

    def __call__(self, raw: torch.Tensor) -> torch.Tensor:
        """Converts raw actions, [..., D + C] -> [..., D + V]; gradients flow to the continuous ones."""
        continuous, choices = raw[..., : self._size], raw[..., self._size :]
        one_hot = choices[..., self._choices] == self._values
        return torch.cat([continuous, one_hot.to(raw.dtype)], dim=-1)


def num_values(action_spec: specs.BoundedArray) -> tuple[int, ...]:
    """Returns the number of values of each of several discrete choices."""
    low, high = specs.bounds(action_spec)
    return tuple((high.astype(object) - low + 1).tolist())  # Python's integers do not overflow


def raw_actions(action_spec: Any, squash: bool) -> RawActions:
    """Makes the raw actions for an action spec; with `squash`, continuous actions are squashed.

    Hybrid ones are not: their agents clip.
    """
    if specs.is_hybrid(action_spec):
        return HybridActions(action_spec)
    if isinstance(action_spec, specs.DiscreteArray):
        return RawActions(action_spec)
    if action_spec.dtype.kind in "iu":
        return MultiDiscreteActions(action_spec)
    return SquashedActions(action_spec) if squash else RawActions(action_spec)


def executed_log_prob(
    policy: Any, action: torch.Tensor, low: torch.Tensor, high: torch.Tensor
) -> torch.Tensor:
    """Computes the log-likelihood of executed actions under a policy of `RawActions`.

    Args:
        policy: A `distributions.DiagonalGaussian` or `Categorical` [...].
        action: The executed actions, [..., D], or [...] if discrete.
        low: The smallest action, [D], to which raw actions are clipped; [] if discrete, which are not.
        high: The largest action, likewise.

    Returns:
        The log-likelihoods, nats, [...].
    """
    log_prob: torch.Tensor
    if low.ndim == 0:
        log_prob = policy.log_prob(action)
    else:
        log_prob = policy.log_prob_clipped(
            action, low.to(action, non_blocking=True), high.to(action, non_blocking=True)
        )
    return log_prob


def executed(action_spec: types.NestedSpec) -> Any:
    """Makes raw actions, in a nest like the specs, for a module that outputs environment actions."""
    return tree.map_structure(RawActions, action_spec)


def raw_specs(action_spec: Any) -> tuple[specs.Array, types.NestedSpec]:
    """Returns the spec of one raw action, and the policy's distribution at one observation, made of specs."""
    if specs.is_hybrid(action_spec):
        parts: Any = [raw_specs(action_spec[name]) for name in ("continuous", "discrete")]
        (continuous, gaussian), (discrete, choices) = parts
        raw = specs.Array((continuous.shape[0] + discrete.shape[0],), np.float32, name="raw_action")
        return raw, distributions.Hybrid(gaussian, choices)
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
    parts = mean, log_std
    return raw, distributions.DiagonalGaussian(*parts)
