"""The categorical distribution that policies over discrete actions are.

Shapes: K actions; `...` any leading axes, such as [B] or [T, E].
"""

from typing import NamedTuple

import torch


class Categorical(NamedTuple):
    """P(a) = exp(logits_a) / sum_k exp(logits_k) at every leading index.

    Logits are finite; those of actions that must never be chosen are some 1e4 below the others.
    """

    logits: torch.Tensor  # [..., K], any offset

    def sample(self, generator: torch.Generator) -> torch.Tensor:
        """Draws an action by the Gumbel-max trick: argmax(logits - log e), e exponential.

        Args:
            generator: draws the noise, on the device of `logits`.

        Returns:
            Actions, int64 [...].
        """
        noise = torch.empty_like(self.logits).exponential_(generator=generator).log_()
        return (self.logits - noise).argmax(dim=-1)

    def mode(self) -> torch.Tensor:
        """The likeliest action, the first of several: int64 [...]."""
        return self.logits.argmax(dim=-1)

    def log_prob(self, action: torch.Tensor) -> torch.Tensor:
        """log P(action).

        Args:
            action: integers [...], in [0, K).

        Returns:
            Log-probabilities, nats, [...].
        """
        log_p = self.logits.log_softmax(dim=-1)
        return log_p.gather(-1, action.long().unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> torch.Tensor:
        """Entropy, nats: [...]."""
        log_p = self.logits.log_softmax(dim=-1)
        return -(log_p.exp() * log_p).sum(dim=-1)

    def kl(self, other: "Categorical") -> torch.Tensor:
        """KL(self || other), nats: [...]."""
        log_p = self.logits.log_softmax(dim=-1)
        return (log_p.exp() * (log_p - other.logits.log_softmax(dim=-1))).sum(dim=-1)
