"""Running normalisation of observations and rewards.

Shapes: O observation size; n rows of a batch.
"""

import torch
from torch import nn

_INITIAL_COUNT = 1e-4  # rows that the initial mean 0 and variance 1 weigh as much as
MIN_VARIANCE = 1e-8
CLIP = 10.0  # standard deviations


class RunningNorm(nn.Module):
    """Normalises by the mean and variance of all rows that `update` has seen.

    `forward` never changes the statistics, in training mode neither: whoever collects data calls
    `update` once per rollout, so that the density under which actions were drawn and the density of
    the first epoch are computed from the same inputs. Mean, variance and count are buffers: they are
    saved and pulled with the weights.

    The count is in double precision: a float32 one would stand still from 16.8 million rows on.
    """

    mean: torch.Tensor  # [O]
    var: torch.Tensor  # [O]
    count: torch.Tensor  # []  float64

    def __init__(self, size: int) -> None:
        super().__init__()
        if size < 1:
            raise ValueError(f"`size` must be >= 1, got {size}.")
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("var", torch.ones(size))
        self.register_buffer("count", torch.tensor(_INITIAL_COUNT, dtype=torch.float64))

    @torch.no_grad()
    def update(self, x: torch.Tensor) -> torch.Tensor:
        """Takes rows into the statistics, unless the variance would not be finite then.

            mean' = mean + delta n / (count + n),  delta = mean_x - mean
            var'  = (var count + var_x n + delta^2 count n / (count + n)) / (count + n)

        Source: Chan et al. 1979, the merging of two samples' moments; population variances.

        Args:
            x: [..., O]; the leading axes are n rows, at least one.

        Returns:
            The new variance, [O]. Where an element is not finite, because a row is not or float32 does not
            hold it, the statistics are as they were. Nothing is read on the host: that is for the caller.

        Raises:
            ValueError: the rows have another size, or there are none.
        """
        size = self.mean.shape[0]
        if x.ndim < 1 or x.shape[-1] != size or x.numel() == 0:
            raise ValueError(f"`x` must have shape [..., {size}] and hold a row, got {list(x.shape)}.")
        rows = x.reshape(-1, size)
        n = rows.shape[0]
        total = self.count + n
        delta = rows.mean(dim=0) - self.mean
        sum_squares = self.var * self.count + rows.var(dim=0, correction=0) * n
        sum_squares += delta.square() * self.count * n / total
        var = sum_squares / total
        is_finite = torch.isfinite(var).all()
        # In place: variables that are already handed out by reference stay the same tensors.
        for statistic, new in (
            (self.mean, self.mean + delta * n / total),
            (self.var, var),
            (self.count, total),
        ):
            statistic.copy_(torch.where(is_finite, new, statistic))
        return var

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(x - mean) / sqrt(var + 1e-8), clipped to +-10: [..., O] -> [..., O]."""
        return ((x - self.mean) * torch.rsqrt(self.var + MIN_VARIANCE)).clamp(-CLIP, CLIP)

    def scale(self, x: torch.Tensor) -> torch.Tensor:
        """x / sqrt(var + 1e-8), clipped to +-10: the mean stays, and with it the sign of a reward.

        Args:
            x: [..., O]; any shape where O is 1.

        Returns:
            Scaled values, with the shape of `x`.
        """
        inverse_std = torch.rsqrt(self.var + MIN_VARIANCE).squeeze(0)  # [O], or [] where O is 1
        return (x * inverse_std).clamp(-CLIP, CLIP)
