"""Hybrid policies: continuous and discrete parts of one action, each with its own distribution.

Shapes: D continuous entries of an action; C choices; K the largest number of values of a choice; `...` any
leading axes, such as [B] or [B, T].
"""

from typing import Any, NamedTuple

import torch

from minerva_acme.distributions.distribution import Points
from minerva_acme.distributions.gaussian import DiagonalGaussian
from minerva_acme.distributions.multi_categorical import MultiCategorical


class HybridParts(NamedTuple):
    """A value for each part of a hybrid policy: the Gaussian's mean and stddev, and the choices."""

    mean: Any
    stddev: Any
    discrete: Any


class Marginal(NamedTuple):
    """The distribution of some of an action's entries, as a function of the whole action."""

    distribution: Any
    entries: slice

    def log_prob(self, action: torch.Tensor) -> torch.Tensor:
        """Computes the log-density or log-probability of the entries, nats, for [..., D + C]: [...]."""
        log_prob: torch.Tensor = self.distribution.log_prob(action[..., self.entries])
        return log_prob

    def kl_per_dimension(self, other: "Marginal") -> torch.Tensor:
        """Computes KL(self || other), nats, for each of the entries: [..., D] or [..., C]."""
        kl: torch.Tensor = self.distribution.kl_per_dimension(other.distribution)
        return kl


class Hybrid(NamedTuple):
    """p(a) = N(a_c; mean, std) prod_i P_i(a_i), factorised over the entries of an action [..., D + C].

    An action is one vector: D continuous numbers, then C choices that count from 0, as floats. Source:
    Neunert et al. 2020, "Continuous-discrete reinforcement learning for hybrid control in robotics".
    """

    continuous: DiagonalGaussian  # [..., D]
    discrete: MultiCategorical  # [..., C, K]

    def sample(self, generator: torch.Generator | None, num_samples: int | None = None) -> torch.Tensor:
        """Draws all parts independently, [..., D + C] or [N, ..., D + C]; gradients flow to the Gaussian."""
        continuous = self.continuous.sample(generator, num_samples)
        return _joined(continuous, self.discrete.sample(generator, num_samples))

    def points(self, generator: torch.Generator | None, num_samples: int) -> Points:
        """Returns N samples."""
        return Points(self.sample(generator, num_samples), None)

    def mode(self) -> torch.Tensor:
        """Returns the mean, and the most likely value of each choice: [..., D + C]."""
        return _joined(self.continuous.mode(), self.discrete.mode())

    def log_prob(self, action: torch.Tensor) -> torch.Tensor:
        """Computes log p(action), nats, the sum over all parts: [...]; extra axes of `action` come first."""
        continuous, discrete = self._marginals()
        return continuous.log_prob(action) + discrete.log_prob(action)

    def entropy(self) -> torch.Tensor:
        """Computes the Gaussian's differential entropy plus the entropies of the choices, nats: [...]."""
        return self.continuous.entropy() + self.discrete.entropy()

    def kl(self, other: "Hybrid") -> torch.Tensor:
        """Computes KL(self || other), nats, summed over all parts: [...]."""
        return self.kl_per_dimension(other).sum(dim=-1)

    def kl_per_dimension(self, other: "Hybrid") -> torch.Tensor:
        """Computes KL(self || other), nats, for each entry separately: [..., D + C]."""
        continuous = self.continuous.kl_per_dimension(other.continuous)
        return torch.cat([continuous, self.discrete.kl_per_dimension(other.discrete)], dim=-1)

    def decouple(self, other: "Hybrid") -> HybridParts:
        """Returns the Gaussian's parts, of the continuous entries, and the choices, of the discrete ones."""
        continuous, discrete = self._marginals()
        mean, stddev = self.continuous.decouple(other.continuous)
        return HybridParts(
            mean=continuous._replace(distribution=mean),
            stddev=continuous._replace(distribution=stddev),
            discrete=discrete,
        )

    def at(self, index: Any) -> "Hybrid":
        """Returns the distribution at some of the leading indices."""
        return Hybrid(self.continuous.at(index), self.discrete.at(index))

    def detach(self) -> "Hybrid":
        """Returns the distribution without gradient."""
        return Hybrid(self.continuous.detach(), self.discrete.detach())

    def diagnostics(self) -> dict[str, torch.Tensor]:
        """Returns the smallest and the largest standard deviation, and the mean entropy of the choices."""
        return self.continuous.diagnostics() | self.discrete.diagnostics()

    def _marginals(self) -> tuple[Marginal, Marginal]:
        size = self.continuous.mean.shape[-1]
        return Marginal(self.continuous, slice(size)), Marginal(self.discrete, slice(size, None))


def _joined(continuous: torch.Tensor, discrete: torch.Tensor) -> torch.Tensor:
    return torch.cat([continuous, discrete.to(continuous.dtype)], dim=-1)
