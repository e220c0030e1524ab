"""The categorical distribution of policies over discrete actions.

Shapes: K actions; `...` any leading axes, such as [B] or [T, E].
"""

from typing import Any, NamedTuple

import numpy as np
import torch

from minerva_acme.distributions.distribution import Array, Points

_MASKED = -1e4  # nats below the others: a probability of 0, and log-probabilities that can be subtracted


class CategoricalParts(NamedTuple):
    """A value for the single part of a categorical distribution."""

    mean: Any


class Categorical(NamedTuple):
    """P(a) = exp(logits_a) / sum_k exp(logits_k) at every leading index.

    Logits are finite; the logits of actions that must never be chosen are 1e4 below the others; see `masked`.
    """

    logits: torch.Tensor  # [..., K], any offset

    def masked(self, legal: torch.Tensor) -> "Categorical":
        """Returns the distribution over only the legal actions.

        Illegal actions have probability 0 in float32 and get no gradient; their log-probability is about
        -1e4, so that sums and differences stay finite. If no action is legal, as in the padding after an
        episode, all of them are.

        Args:
            legal: True or nonzero for actions that may be chosen, [..., K].
        """
        legal = legal.bool()
        legal = legal | ~legal.any(dim=-1, keepdim=True)
        largest = self.logits.detach().masked_fill(~legal, -torch.inf).amax(dim=-1, keepdim=True)
        return Categorical(torch.where(legal, self.logits, largest + _MASKED))

    def sample(self, generator: torch.Generator | None, num_samples: int | None = None) -> torch.Tensor:
        """Draws an action by the Gumbel-max trick: argmax(logits - log e), e exponential.

        Args:
            generator: The generator for the noise, on the device of `logits`.
            num_samples: The number of samples, N; None draws one sample and adds no axis.

        Returns:
            Actions, int64 [...], or [N, ...] with `num_samples`.
        """
        leading = () if num_samples is None else (num_samples,)
        noise = self.logits.new_empty(*leading, *self.logits.shape).exponential_(generator=generator).log_()
        return (self.logits - noise).argmax(dim=-1)

    def points(self, generator: torch.Generator | None, num_samples: int) -> Points:
        """Returns all K actions with their probabilities: expectations are exact, and nothing is sampled."""
        del generator, num_samples
        log_p = self.logits.log_softmax(dim=-1).movedim(-1, 0)
        actions = torch.arange(len(log_p), device=log_p.device)
        return Points(actions.view(-1, *[1] * (log_p.ndim - 1)).expand(log_p.shape), log_p)

    def mode(self) -> torch.Tensor:
        """Returns the most likely action, the first if there are several: int64 [...]."""
        return self.logits.argmax(dim=-1)

    def log_prob(self, action: torch.Tensor) -> torch.Tensor:
        """Computes log P(action).

        Args:
            action: The actions, integers [...] in [0, K), or [N, ...]: extra axes come first.

        Returns:
            The log-probabilities, nats, with the shape of `action`.
        """
        log_p = self.logits.log_softmax(dim=-1)
        log_p = log_p.expand(*action.shape, log_p.shape[-1])
        return log_p.gather(-1, action.long().unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> torch.Tensor:
        """Computes the entropy, nats: [...]."""
        log_p = self.logits.log_softmax(dim=-1)
        return -(log_p.exp() * log_p).sum(dim=-1)

    def kl(self, other: "Categorical") -> torch.Tensor:
        """Computes KL(self || other), nats: [...]."""
        log_p = self.logits.log_softmax(dim=-1)
        return (log_p.exp() * (log_p - other.logits.log_softmax(dim=-1))).sum(dim=-1)

    def kl_per_dimension(self, other: "Categorical") -> torch.Tensor:
        """Computes KL(self || other) as its only term: [..., 1]."""
        return self.kl(other).unsqueeze(-1)

    def decouple(self, other: "Categorical") -> CategoricalParts:
        """Returns the whole distribution, which has one part."""
        del other
        return CategoricalParts(mean=self)

    def at(self, index: Any) -> "Categorical":
        """Returns the distribution at some of the leading indices."""
        return Categorical(self.logits[index])

    def detach(self) -> "Categorical":
        """Returns the distribution without gradient."""
        return Categorical(self.logits.detach())

    def diagnostics(self) -> dict[str, torch.Tensor]:
        """Returns the mean entropy, nats."""
        return {"entropy": self.detach().entropy().mean()}


def log_softmax_array(logits: Array) -> Array:
    """Computes the log-probabilities of all actions on arrays, faster than torch for a few numbers.

    Args:
        logits: The logits, [..., K], any offset.

    Returns:
        The log-probabilities, nats, [..., K], a new array.
    """
    log_p: Array = logits - np.maximum.reduce(logits, -1, keepdims=True)
    log_p -= np.log(np.add.reduce(np.exp(log_p), -1, keepdims=True))
    return log_p
