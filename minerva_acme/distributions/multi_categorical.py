"""Several discrete choices at once, each with its own categorical distribution.

Shapes: D choices; K the largest number of values of a choice; `...` any leading axes, such as [B] or [T, E].
"""

from typing import Any, NamedTuple

import torch

from minerva_acme.distributions.categorical import Categorical, CategoricalParts
from minerva_acme.distributions.distribution import Points


class MultiCategorical(NamedTuple):
    """P(a) = prod_d P_d(a_d) at every leading index, for example over a `MultiDiscrete` space.

    Choices with fewer than K values have K logits too, of which those past their own values are masked as in
    `Categorical.masked`.
    """

    logits: torch.Tensor  # [..., D, K], any offset

    def sample(self, generator: torch.Generator | None, num_samples: int | None = None) -> torch.Tensor:
        """Draws each choice independently: int64 [..., D], or [N, ..., D] with `num_samples`."""
        return self._choices.sample(generator, num_samples)

    def points(self, generator: torch.Generator | None, num_samples: int) -> Points:
        """Returns N samples, since there would be K ** D combinations."""
        return Points(self.sample(generator, num_samples), None)

    def mode(self) -> torch.Tensor:
        """Returns the most likely value of each choice, the first if there are several: int64 [..., D]."""
        return self._choices.mode()

    def log_prob(self, action: torch.Tensor) -> torch.Tensor:
        """Computes log P(action), nats, for integers [..., D]: [...]; extra axes of `action` come first."""
        return self._choices.log_prob(action).sum(dim=-1)

    def entropy(self) -> torch.Tensor:
        """Computes the entropy, nats, summed over D: [...]."""
        return self._choices.entropy().sum(dim=-1)

    def kl(self, other: "MultiCategorical") -> torch.Tensor:
        """Computes KL(self || other), nats, summed over D: [...]."""
        return self.kl_per_dimension(other).sum(dim=-1)

    def kl_per_dimension(self, other: "MultiCategorical") -> torch.Tensor:
        """Computes KL(self || other), nats, for each choice separately: [..., D]."""
        return self._choices.kl(other._choices)

    def decouple(self, other: "MultiCategorical") -> CategoricalParts:
        """Returns the whole distribution, which has one part."""
        del other
        return CategoricalParts(mean=self)

    def at(self, index: Any) -> "MultiCategorical":
        """Returns the distribution at some of the leading indices."""
        return MultiCategorical(self.logits[index])

    def detach(self) -> "MultiCategorical":
        """Returns the distribution without gradient."""
        return MultiCategorical(self.logits.detach())

    def diagnostics(self) -> dict[str, torch.Tensor]:
        """Returns the mean entropy of all choices together, nats."""
        return {"entropy": self.detach().entropy().mean()}

    @property
    def _choices(self) -> Categorical:
        """The choices as one more leading axis."""
        return Categorical(self.logits)
