"""The diagonal Gaussian distribution of policies.

Shapes: D action dimensions; `...` any leading axes, such as [B] or [B, T].
"""

import math
from typing import Any, NamedTuple

import numpy as np
import torch

from minerva_acme.distributions.distribution import Array, Points

LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
# Numpy 1 converts a single-precision number to double precision when it meets a Python float. An array
# without axes reaches a ufunc half a microsecond faster than numpy's scalar.
_MINUS_HALF, _LOG_SQRT_2PI = np.array(-0.5, np.float32), np.array(LOG_SQRT_2PI, np.float32)
_ENTROPY_OF_ONE = np.array(LOG_SQRT_2PI + 0.5, np.float32)  # nats, at standard deviation 1


class GaussianParts(NamedTuple):
    """A pair of values, one for a Gaussian's mean and one for its standard deviation."""

    mean: Any
    stddev: Any


class DiagonalGaussian(NamedTuple):
    """N(mean, diag(exp(log_std))^2) at every leading index."""

    mean: torch.Tensor  # [..., D]
    log_std: torch.Tensor  # [..., D]

    def sample(self, generator: torch.Generator | None, num_samples: int | None = None) -> torch.Tensor:
        """Draws mean + std * noise; gradients flow to mean and log_std.

        Args:
            generator: The generator for the noise, on the device of `mean`.
            num_samples: The number of samples, N; None draws one sample and adds no axis.

        Returns:
            Samples, [..., D], or [N, ..., D] with `num_samples`.
        """
        leading = () if num_samples is None else (num_samples,)
        noise = torch.randn(
            *leading,
            *self.mean.shape,
            generator=generator,
            dtype=self.mean.dtype,
            device=self.mean.device,
        )
        return self.mean + self.log_std.exp() * noise

    def points(self, generator: torch.Generator | None, num_samples: int) -> Points:
        """Returns N samples."""
        return Points(self.sample(generator, num_samples), None)

    def mode(self) -> torch.Tensor:
        """Returns the most likely point, which is the mean: [..., D]."""
        return self.mean

    def log_prob(self, x: torch.Tensor) -> torch.Tensor:
        """Computes log N(x; mean, std), summed over D.

        Args:
            x: The points, [..., D], or [N, ..., D]: extra axes come first.

        Returns:
            The log-densities, nats, with the shape of `x` without its last axis.
        """
        z = (x - self.mean) * torch.exp(-self.log_std)
        return (-0.5 * z.square() - self.log_std - LOG_SQRT_2PI).sum(dim=-1)

    def log_prob_clipped(self, action: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
        """Computes the log-likelihood of samples that were then clipped to bounds, summed over D.

            log N(a; mean, std) between the bounds,  log P(x <= low) at the lower one,  log P(x >= high) above

        At a bound the likelihood is that of all samples beyond it, which are the same action once they are
        clipped. It is at most 1, whereas a density there would grow without limit as the Gaussian narrows.

        Args:
            action: The clipped samples, [..., D], or [N, ..., D]: extra axes come first.
            low: The lower bounds, [D].
            high: The upper bounds, [D].

        Returns:
            The log-likelihoods, nats, with the shape of `action` without its last axis.
        """
        scale = torch.exp(-self.log_std)
        z = (action - self.mean) * scale
        inside = -0.5 * z.square() - self.log_std - LOG_SQRT_2PI
        below = torch.special.log_ndtr((low - self.mean) * scale)
        above = torch.special.log_ndtr((self.mean - high) * scale)
        return torch.where(action <= low, below, torch.where(action >= high, above, inside)).sum(dim=-1)

    def entropy(self) -> torch.Tensor:
        """Computes the differential entropy, nats, summed over D: [...]."""
        return (self.log_std + LOG_SQRT_2PI + 0.5).sum(dim=-1)

    def kl(self, other: "DiagonalGaussian") -> torch.Tensor:
        """Computes KL(self || other), nats, summed over D: [...]."""
        return self.kl_per_dimension(other).sum(dim=-1)

    def kl_per_dimension(self, other: "DiagonalGaussian") -> torch.Tensor:
        """Computes KL(self || other), nats, for each dimension separately: [..., D].

            KL = 1/2 (s^2 / s_o^2 - 1 - log(s^2 / s_o^2) + (m - m_o)^2 / s_o^2)

        Written with expm1: policies are held to KLs of 1e-6, which float32 would lose in the difference
        between the rounded ratio and logarithm.
        """
        log_ratio = 2.0 * (self.log_std - other.log_std)
        z = (self.mean - other.mean) * torch.exp(-other.log_std)
        return 0.5 * (torch.expm1(log_ratio) - log_ratio + z.square())

    def decouple(self, other: "DiagonalGaussian") -> GaussianParts:
        """Returns its own mean with the other's standard deviation, and the other's mean with its own one."""
        frozen = other.detach()
        return GaussianParts(
            mean=DiagonalGaussian(self.mean, frozen.log_std),
            stddev=DiagonalGaussian(frozen.mean, self.log_std),
        )

    def at(self, index: Any) -> "DiagonalGaussian":
        """Returns the Gaussian at some of the leading indices."""
        return DiagonalGaussian(self.mean[index], self.log_std[index])

    def detach(self) -> "DiagonalGaussian":
        """Returns the Gaussian without gradient."""
        return DiagonalGaussian(self.mean.detach(), self.log_std.detach())

    def diagnostics(self) -> dict[str, torch.Tensor]:
        """Returns the smallest and the largest standard deviation."""
        stddev = self.log_std.detach().exp()
        return {"stddev_min": stddev.min(), "stddev_max": stddev.max()}


def log_prob_array(z: Array, log_std: Array) -> Array:
    """Computes `DiagonalGaussian.log_prob` on float32 arrays, faster than torch for a few numbers.

    Args:
        z: The standardised points (x - mean) / std, [..., D].
        log_std: The log standard deviations, [..., D].

    Returns:
        The log-densities, nats, [...].
    """
    terms: Array = z * z
    terms *= _MINUS_HALF
    terms -= log_std
    log_prob: Array = np.add.reduce(terms, -1)
    log_prob -= z.shape[-1] * _LOG_SQRT_2PI
    return log_prob


def entropy_array(log_std: Array) -> Array:
    """Computes `DiagonalGaussian.entropy` on float32 arrays, nats: [..., D] -> [...]."""
    entropy: Array = np.add.reduce(log_std + _ENTROPY_OF_ONE, -1)
    return entropy
