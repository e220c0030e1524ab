"""Several discrete choices at once, each by a categorical distribution of its own.

Shapes: D choices; K values of the choice that has most; `...` any leading axes, such as [B] or [T, E].
"""

from typing import Any, NamedTuple

import torch

from minerva_acme.distributions.categorical import Categorical, CategoricalParts
from minerva_acme.distributions.distribution import Points


class MultiCategorical(NamedTuple):
    """P(a) = prod_d P_d(a_d) at every leading index, as of a `MultiDiscrete` space.

    Choices with fewer than K values have logits for K too, those behind their own being masked as by
    `Categorical.masked`.
    """

    logits: torch.Tensor  # [..., D, K], any offset

    def sample(self, generator: torch.Generator | None, num_samples: int | None = None) -> torch.Tensor:
        """Draws each choice by itself: int64 [..., D], or [N, ..., D] with `num_samples`."""
        return self._choices.sample(generator, num_samples)

    def points(self, generator: torch.Generator | None, num_samples: int) -> Points:
        """N samples: all combinations would be K ** D."""
        return Points(self.sample(generator, num_samples), None)

    def mode(self) -> torch.Tensor:
        """The likeliest value of each choice, the first of several: int64 [..., D]."""
        return self._choices.mode()

    def log_prob(self, action: torch.Tensor) -> torch.Tensor:
        """log P(action), nats, of integers [..., D]: [...]; further axes of `action` stand in front."""
        return self._choices.log_prob(action).sum(dim=-1)

    def entropy(self) -> torch.Tensor:
        """Nats, summed over D: [...]."""
        return self._choices.entropy().sum(dim=-1)

    def kl(self, other: "MultiCategorical") -> torch.Tensor:
        """KL(self || other), nats, summed over D: [...]."""
        return self.kl_per_dimension(other).sum(dim=-1)

    def kl_per_dimension(self, other: "MultiCategorical") -> torch.Tensor:
        """KL(self || other), nats, for each choice by itself: [..., D]."""
        return self._choices.kl(other._choices)

    def decouple(self, other: "MultiCategorical") -> CategoricalParts:
        """The whole distribution: it has one part."""
        del other
        return CategoricalParts(mean=self)

    def at(self, index: Any) -> "MultiCategorical":
        """The distribution at some of the leading indices."""
        return MultiCategorical(self.logits[index])

    def detach(self) -> "MultiCategorical":
        """The distribution without gradient."""
        return MultiCategorical(self.logits.detach())

    def diagnostics(self) -> dict[str, torch.Tensor]:
        """The mean entropy of all choices together, nats."""
        return {"entropy": self.detach().entropy().mean()}

    @property
    def _choices(self) -> Categorical:
        """The choices as one more leading axis."""
        return Categorical(self.logits)
