"""Raw actions squashed into their bounds by a tanh.

Shapes: D action dimensions; `...` any leading axes.
"""

import functools
import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import nn

from minerva_acme.distributions.distribution import Points
from minerva_acme.distributions.gaussian import DiagonalGaussian, GaussianParts

_NUM_NODES = 64  # of the quadrature; the error is 0.0002 nats at a raw stddev of 3 and 0.02 at 7.4
_MARGIN = 1e-6  # distance that an action keeps from ±1 before its atanh

# Numpy 1 converts a single-precision number to double precision when it meets a Python float. An array
# without axes reaches a ufunc half a microsecond faster than numpy's scalar.
_ZERO, _ONE, _TWO = (np.array(number, np.float32) for number in (0.0, 1.0, 2.0))
_LOG_TWO = np.array(math.log(2.0), np.float32)

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class TanhSquash(nn.Module):
    """action = low + (tanh(raw) + 1) / 2 (high - low), a smooth map onto the box.

    The density of an action is the density of its raw action divided by the Jacobian:

        log p(action) = log p_raw(raw) - log_det(raw)
    """

    low: torch.Tensor  # [D]
    high: torch.Tensor  # [D]

    def __init__(self, low: torch.Tensor, high: torch.Tensor) -> None:
        """Takes the bounds.

        Args:
            low: The smallest action, [D].
            high: The largest action, [D].

        Raises:
            ValueError: The bounds are not two finite vectors of one size with low < high.
        """
        super().__init__()
        # Written so that NaN fails too.
        if low.ndim != 1 or low.shape != high.shape or not (torch.isfinite(high - low) & (low < high)).all():
            raise ValueError(
                "`low` and `high` must be finite vectors of one size, low < high, got "
                f"{low.tolist()} and {high.tolist()}. Bound the action in the environment's action_spec."
            )
        # Copies: a spec's arrays are read-only and shared.
        self.register_buffer("low", low.detach().clone().float())
        self.register_buffer("high", high.detach().clone().float())

    def forward(self, raw: torch.Tensor) -> torch.Tensor:
        """Squashes a raw action into its bounds, [..., D] -> [..., D]."""
        action = self.low + (torch.tanh(raw) + 1.0) * (0.5 * (self.high - self.low))
        return action.clamp(self.low, self.high)  # removes rounding errors

    def inverse(self, action: torch.Tensor) -> torch.Tensor:
        """Computes the raw action, [..., D] -> [..., D]; for an action at a bound it is finite, ±7.25.

        Near the bounds float32 keeps few digits of it: store the raw action if precision matters.
        """
        unit = 2.0 * (action - self.low) / (self.high - self.low) - 1.0
        return torch.atanh(unit.clamp(_MARGIN - 1.0, 1.0 - _MARGIN))

    def log_det(self, raw: torch.Tensor) -> torch.Tensor:
        """Computes log |d action / d raw|, summed over D: [..., D] -> [...].

            log ((high - low) / 2) + log (1 - tanh(raw)^2)
            log (1 - tanh(x)^2) = 2 (log 2 - x - softplus(-2 x))

        which stays finite and differentiable where tanh(raw) rounds to 1.
        """
        return self.log_slope(raw).sum(dim=-1)

    def log_slope(self, raw: torch.Tensor) -> torch.Tensor:
        """Computes the terms that `log_det` adds up: [..., D] -> [..., D]."""
        log_slope = 2.0 * (math.log(2.0) - raw - nn.functional.softplus(-2.0 * raw))
        return log_slope + torch.log(0.5 * (self.high - self.low))


def squash_array(raw: Array, low: Array, half_range: Array, high: Array) -> Array:
    """Computes `TanhSquash.forward` on arrays, which takes a fraction of the time for a few numbers.

    Args:
        raw: The raw actions, float32 [..., D], or any shape that broadcasts with the bounds.
        low: The smallest action, [D].
        half_range: (high - low) / 2, [D].
        high: The largest action, [D].
    """
    action: Array = np.tanh(raw)
    action += _ONE
    action *= half_range
    action += low
    np.minimum(action, high, out=action)  # removes rounding errors
    np.maximum(action, low, out=action)
    return action


def log_det_array(raw: Array, half_range: Array) -> Array:
    """Computes `TanhSquash.log_det` on arrays: [..., D] -> [...]. For the arguments see `squash_array`."""
    with np.errstate(invalid="ignore"):  # bad batches are rejected elsewhere
        log_slope = _TWO * (_LOG_TWO - raw - np.logaddexp(_ZERO, -_TWO * raw))
    log_det: Array = np.add.reduce(log_slope + np.log(half_range), -1)
    return log_det


class SquashedGaussian(NamedTuple):
    """The distribution of `squash(raw)` for a Gaussian raw: over the actions that are executed.

    An invertible map does not change a KL, so the KLs of the raw Gaussians hold for the actions too.
    """

    raw: DiagonalGaussian  # [..., D]
    squash: TanhSquash  # over D dimensions, the same at every leading index

    def sample(self, generator: torch.Generator | None, num_samples: int | None = None) -> torch.Tensor:
        """Draws actions within the bounds, [..., D] or [N, ..., D]; gradients flow to the raw Gaussian."""
        action: torch.Tensor = self.squash(self.raw.sample(generator, num_samples))
        return action

    def sample_and_log_prob(
        self, generator: torch.Generator | None, num_samples: int | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Draws actions as `sample` does, and computes their log-densities, [...] or [N, ...].

        Near a bound, `log_prob` of the action loses digits that the raw sample still has.
        """
        raw = self.raw.sample(generator, num_samples)
        return self.squash(raw), self.raw.log_prob(raw) - self.squash.log_det(raw)

    def points(self, generator: torch.Generator | None, num_samples: int) -> Points:
        """Returns N samples."""
        return Points(self.sample(generator, num_samples), None)

    def mode(self) -> torch.Tensor:
        """Returns the squashed mean, [..., D], the median per dimension: the density may have two peaks."""
        action: torch.Tensor = self.squash(self.raw.mean)
        return action

    def log_prob(self, action: torch.Tensor) -> torch.Tensor:
        """Computes log p(action) = log p_raw(raw) - log_det(raw) of actions in bounds: [..., D] -> [...]."""
        raw = self.squash.inverse(action)
        return self.raw.log_prob(raw) - self.squash.log_det(raw)

    def entropy(self) -> torch.Tensor:
        """Computes the differential entropy, nats, summed over D: [...].

            H(action) = H(raw) + sum_d E[log |d action_d / d raw_d|]

        with the expectation by Gauss-Hermite quadrature, which takes no samples and has a gradient.
        """
        nodes, weights = (
            torch.as_tensor(x, dtype=self.raw.mean.dtype, device=self.raw.mean.device) for x in _hermite()
        )
        raw = self.raw.mean + self.raw.log_std.exp() * nodes.view(-1, *[1] * self.raw.mean.ndim)
        log_slope = torch.tensordot(weights, self.squash.log_slope(raw), dims=1)
        return self.raw.entropy() + log_slope.sum(dim=-1)

    def kl(self, other: "SquashedGaussian") -> torch.Tensor:
        """Computes KL(self || other), nats: [...]. Both must have the same bounds."""
        return self.raw.kl(other.raw)

    def kl_per_dimension(self, other: "SquashedGaussian") -> torch.Tensor:
        """Computes KL(self || other), nats, for each dimension separately: [..., D]."""
        return self.raw.kl_per_dimension(other.raw)

    def decouple(self, other: "SquashedGaussian") -> GaussianParts:
        """Returns the parts of the raw Gaussian, squashed."""
        return GaussianParts(*(SquashedGaussian(part, self.squash) for part in self.raw.decouple(other.raw)))

    def at(self, index: Any) -> "SquashedGaussian":
        """Returns the distribution at some of the leading indices."""
        return SquashedGaussian(self.raw.at(index), self.squash)

    def detach(self) -> "SquashedGaussian":
        """Returns the distribution without gradient."""
        return SquashedGaussian(self.raw.detach(), self.squash)

    def diagnostics(self) -> dict[str, torch.Tensor]:
        """Returns the smallest and the largest raw standard deviation."""
        return self.raw.diagnostics()


@functools.cache
def _hermite() -> tuple[np.ndarray, np.ndarray]:
    """Computes nodes and weights with E[f(z)] = sum_i weight_i f(node_i), z standard normal."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NUM_NODES)
    return nodes, weights / weights.sum()
