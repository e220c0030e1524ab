"""Raw actions squashed into their bounds by a tanh.

Shapes: D action dimensions; `...` any leading axes.
"""

import math

import torch
from torch import nn

_MARGIN = 1e-6  # how far within (-1, 1) an action is taken to lie before its atanh


class TanhSquash(nn.Module):
    """action = low + (tanh(raw) + 1) / 2 (high - low), a smooth map onto the box.

    The density of an action is that of its raw one over the Jacobian:

        log p(action) = log p_raw(raw) - log_det(raw)
    """

    low: torch.Tensor  # [D]
    high: torch.Tensor  # [D]

    def __init__(self, low: torch.Tensor, high: torch.Tensor) -> None:
        """Takes the bounds.

        Args:
            low: smallest action, [D].
            high: largest action, [D].

        Raises:
            ValueError: the bounds are not two finite vectors of one size with low < high.
        """
        super().__init__()
        # Written so that nan fails too.
        if low.ndim != 1 or low.shape != high.shape or not (torch.isfinite(high - low) & (low < high)).all():
            raise ValueError(
                "`low` and `high` must be finite vectors of one size, low < high, got "
                f"{low.tolist()} and {high.tolist()}. Bound the action in the environment's action_spec."
            )
        # Copies: a spec's arrays are read-only and shared.
        self.register_buffer("low", low.detach().clone().float())
        self.register_buffer("high", high.detach().clone().float())

    def forward(self, raw: torch.Tensor) -> torch.Tensor:
        """The action within its bounds, [..., D] -> [..., D]."""
        action = self.low + (torch.tanh(raw) + 1.0) * (0.5 * (self.high - self.low))
        return action.clamp(self.low, self.high)  # what rounding added

    def inverse(self, action: torch.Tensor) -> torch.Tensor:
        """The raw action, [..., D] -> [..., D]; that of a bound is finite, +-7.25.

        Near the bounds float32 keeps few digits of it: store the raw action where it matters.
        """
        unit = 2.0 * (action - self.low) / (self.high - self.low) - 1.0
        return torch.atanh(unit.clamp(_MARGIN - 1.0, 1.0 - _MARGIN))

    def log_det(self, raw: torch.Tensor) -> torch.Tensor:
        """log |d action / d raw|, summed over D: [..., D] -> [...].

            log (high - low) / 2 + log (1 - tanh(raw)^2)
            log (1 - tanh(x)^2) = 2 (log 2 - x - softplus(-2 x))

        which stays finite and differentiable where tanh(raw) rounds to 1.
        """
        log_slope = 2.0 * (math.log(2.0) - raw - nn.functional.softplus(-2.0 * raw))
        return (log_slope + torch.log(0.5 * (self.high - self.low))).sum(dim=-1)
