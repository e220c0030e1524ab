"""The interface that agents expect of a policy's distribution, of whatever kind.

Shapes: N points; D action dimensions; `...` any leading axes, such as [B] or [B, T].
"""

from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import torch

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class Points(NamedTuple):
    """Actions over which an expectation is taken: sum_i exp(log_weight_i) f(action_i)."""

    actions: torch.Tensor  # [N, ..., D], or [N, ...] if discrete
    log_weights: torch.Tensor | None  # [N, ...] nats; None: each action weighs 1 / N

    def mean(self, values: torch.Tensor) -> torch.Tensor:
        """Computes the expectation of `values` [N, ...], one for each of these actions: [...].

        Values may have one more axis, [N, ..., J], as those of several critics do: then [..., J].
        """
        if self.log_weights is None:
            return values.mean(dim=0)
        if values.ndim > self.log_weights.ndim:
            return self._replace(log_weights=self.log_weights.unsqueeze(-1)).mean(values)
        return (self.log_weights.exp() * values).sum(dim=0)


class Distribution(Protocol):
    """A distribution over actions at every leading index.

    MPO, V-MPO and PPO require no more than this of a policy, so your own distribution with these methods
    works with them. The distributions in this package are named tuples, so that they can be recorded with
    each action.
    """

    def sample(self, generator: torch.Generator | None, num_samples: int | None = None) -> torch.Tensor:
        """Draws actions, [..., D], or [...] if discrete; with `num_samples`, N, a first axis [N, ...]."""

    def points(self, generator: torch.Generator | None, num_samples: int) -> Points:
        """Returns the actions for expectations: samples, or all actions if there are few."""

    def mode(self) -> torch.Tensor:
        """Returns the action to take without exploration: [..., D] or [...]."""

    def log_prob(self, action: torch.Tensor) -> torch.Tensor:
        """Computes the log-density or log-probability, nats: [...]; extra axes of `action` come first."""

    def entropy(self) -> torch.Tensor:
        """Computes the entropy, nats: [...]."""

    def kl(self, other: Any) -> torch.Tensor:
        """Computes KL(self || other), nats: [...]."""

    def kl_per_dimension(self, other: Any) -> torch.Tensor:
        """Computes the terms that `kl` adds up, [..., D], or [..., 1] if `kl` is not such a sum."""

    def decouple(self, other: Any) -> Any:
        """Returns the parts that are learned at different speeds: a named tuple of distributions.

        Each part is `other`, without gradient, with one parameter taken from `self`. A Gaussian has
        `mean` and `stddev`; a distribution with one part calls it `mean` and uses the mean's bound and
        multiplier for it. A part may be of some of the action's entries alone, as those of a `Hybrid`, which
        has `discrete` too. Of a part only `log_prob` and `kl_per_dimension` are used.
        """

    def at(self, index: Any) -> Any:
        """Returns the distribution at some of the leading indices, given as for a tensor's []."""

    def detach(self) -> Any:
        """Returns the distribution without gradient."""

    def diagnostics(self) -> dict[str, torch.Tensor]:
        """Returns numbers worth logging, [], by name."""
