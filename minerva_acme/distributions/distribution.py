"""What agents ask of a policy's distribution, whatever kind it is.

Shapes: N points; D action dimensions; `...` any leading axes, such as [B] or [B, T].
"""

from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import torch

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class Points(NamedTuple):
    """Actions over which an expectation is taken: sum_i exp(log_weight_i) f(action_i)."""

    actions: torch.Tensor  # [N, ..., D], or [N, ...] where discrete
    log_weights: torch.Tensor | None  # [N, ...] nats; None: each weighs 1 / N

    def mean(self, values: torch.Tensor) -> torch.Tensor:
        """The expectation of what `values` [N, ...] are at these actions: [...]."""
        if self.log_weights is None:
            return values.mean(dim=0)
        return (self.log_weights.exp() * values).sum(dim=0)


class Distribution(Protocol):
    """A distribution over actions at every leading index.

    MPO, V-MPO and PPO need no more than this of a policy, and a distribution of your own that has it works
    in them. Those of this package are named tuples, so that they can be recorded with each action.
    """

    def sample(self, generator: torch.Generator | None, num_samples: int | None = None) -> torch.Tensor:
        """Draws actions, [..., D] or [...] where discrete; with `num_samples`, N, a first axis [N, ...]."""

    def points(self, generator: torch.Generator | None, num_samples: int) -> Points:
        """The actions that expectations are taken over: samples, or all of them where they are few."""

    def mode(self) -> torch.Tensor:
        """The action to take where nothing is to be explored: [..., D] or [...]."""

    def log_prob(self, action: torch.Tensor) -> torch.Tensor:
        """Log-density or log-probability, nats: [...]; further axes of `action` stand in front."""

    def entropy(self) -> torch.Tensor:
        """Nats: [...]."""

    def kl(self, other: Any) -> torch.Tensor:
        """KL(self || other), nats: [...]."""

    def kl_per_dimension(self, other: Any) -> torch.Tensor:
        """The terms that `kl` is the sum of, [..., D]; where it is no such sum, [..., 1]."""

    def decouple(self, other: Any) -> Any:
        """Parts that are learned at speeds of their own: a named tuple of distributions.

        Each is `other`, without gradient, with one thing of `self` in its place. A Gaussian has `mean` and
        `stddev`; a distribution with one part calls it `mean`, whose bound and multiplier then hold for it.
        """

    def at(self, index: Any) -> Any:
        """The same at some of the leading indices, as a tensor's [] takes them."""

    def detach(self) -> Any:
        """The same without gradient."""

    def diagnostics(self) -> dict[str, torch.Tensor]:
        """Numbers worth logging, [], by name."""
