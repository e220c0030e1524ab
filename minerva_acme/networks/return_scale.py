"""The running scale of returns."""

import torch

from minerva_acme import constraints
from minerva_acme.networks import normalizer


class ReturnScale(normalizer.RunningNorm):
    """The scale by which returns are divided, so that they fit bins of a fixed range in every task.

        scale = max(std(G), max |G| / bound)        G_t = r_t + gamma G_{t-1}, from the start of an episode

    over all sums G that `update` has received. Source: Lee et al. 2025, "Hyperspherical normalization for
    scalable deep reinforcement learning" (SimbaV2). Deviations: it divides the values by the scale, not the
    rewards, so that a target network keeps the scale that its weights were trained with; and it takes the
    sums of the steps that a learner draws, as often as they are drawn, not of each step once.
    """

    largest: torch.Tensor  # []

    def __init__(self, bound: float) -> None:
        """Makes the scale.

        Args:
            bound: The largest absolute value of a scaled sum, > 0; the paper's is 5.

        Raises:
            ValueError: The bound is not finite and above 0.
        """
        if not 0.0 < bound < float("inf"):
            raise ValueError(f"`bound` must be finite and > 0, got {bound}.")
        super().__init__(1)
        self._bound = bound
        self.register_buffer("largest", torch.zeros(()))

    @torch.no_grad()
    def update(self, x: torch.Tensor) -> torch.Tensor:
        """Updates the scale with sums, [..., 1]; leaves out and returns what `RunningNorm.update` does."""
        num_left_out = super().update(x)
        size = x.abs()
        taken = size.where(size <= constraints.LARGEST, 0.0)
        self.largest.copy_(torch.maximum(self.largest, taken.amax()))
        return num_left_out

    @property
    def value(self) -> torch.Tensor:
        """The scale, [], above 0."""
        std = (self.var + normalizer.MIN_VARIANCE).sqrt().squeeze(0)
        return torch.maximum(std, self.largest / self._bound)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Divides returns of any shape by the scale."""
        return x / self.value
