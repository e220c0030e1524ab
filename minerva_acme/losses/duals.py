"""The Lagrange multipliers of the constraints of MPO and V-MPO.

Shapes: D action dimensions, and C choices of a hybrid policy, or 1 if a constraint holds for their sum.
"""

import math
from typing import Any

import torch
from torch import nn

_MIN_RAW = -18.0  # where softplus is 1.5e-8: smaller multipliers would be rounding errors
_MIN_VALUE = 1e-8  # a multiplier is a divisor, so it must never become 0


class DualVariable(nn.Module):
    """A positive number, or a vector of positive numbers: softplus(max(raw, -18)) + 1e-8."""

    def __init__(self, shape: tuple[int, ...], initial_raw: float) -> None:
        """Makes the parameter.

        Args:
            shape: The shape of the parameter, () or one axis.
            initial_raw: The initial value, before softplus.
        """
        super().__init__()
        self.raw = nn.Parameter(torch.full(shape, float(initial_raw)))

    def forward(self) -> torch.Tensor:
        """Computes the positive value, with the shape of the parameter."""
        raw: torch.Tensor = _LowerBound.apply(self.raw, _MIN_RAW)
        return nn.functional.softplus(raw) + _MIN_VALUE


class _LowerBound(torch.autograd.Function):
    """max(x, bound), whose gradient still flows below the bound if a descent step would raise x.

    Otherwise a multiplier that once fell below the bound would stay there forever, and its constraint
    would be off from then on.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, bound: float) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.bound = bound
        return x.clamp(min=bound)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (grad,) = grad_outputs
        (x,) = ctx.saved_tensors
        return torch.where((x >= ctx.bound) | (grad < 0.0), grad, 0.0), None


class MPODuals(nn.Module):
    """The multipliers of the E-step's bounds (temperatures) and of the M-step's bounds (alphas).

    What a subclass adds is trained by the same loss, at the temperatures' learning rate.
    """

    alpha_stddev: DualVariable | None
    alpha_discrete: DualVariable | None
    penalty_temperature: DualVariable | None

    def __init__(
        self,
        *,
        num_dimensions: int,
        init_log_temperature: float,
        init_log_alpha_mean: float,
        init_log_alpha_stddev: float | None,
        action_penalty: bool,
        num_objectives: int | None = None,
        num_choices: int = 1,
        init_log_alpha_discrete: float | None = None,
    ) -> None:
        """Makes the parameters; initial values are before softplus.

        Args:
            num_dimensions: The number of dimensions, D, or 1 if the KL bounds hold for the sum over
                dimensions, or if the policy is discrete.
            init_log_temperature: The initial value for the temperature and for the penalty's temperature.
            init_log_alpha_mean: The initial value for the multipliers of the mean's KL.
            init_log_alpha_stddev: The initial value for the multipliers of the standard deviation's KL, or
                None for a policy without one, such as a discrete policy.
            action_penalty: Whether there is a temperature for the action penalty.
            num_objectives: The number of objectives, each with its own temperature, without the penalty;
                None for one objective, whose temperature is [].
            num_choices: The number of choices of a hybrid policy, C, or 1 as for `num_dimensions`.
            init_log_alpha_discrete: The initial value for the multipliers of the choices' KL, or None for a
                policy that is not hybrid.
        """
        super().__init__()
        if num_dimensions < 1:
            raise ValueError(f"`num_dimensions` must be >= 1, got {num_dimensions}.")
        shape = () if num_objectives is None else (num_objectives,)
        self.temperature = DualVariable(shape, init_log_temperature)
        self.alpha_mean = DualVariable((num_dimensions,), init_log_alpha_mean)
        self.alpha_stddev = None
        if init_log_alpha_stddev is not None:
            self.alpha_stddev = DualVariable((num_dimensions,), init_log_alpha_stddev)
        self.alpha_discrete = None
        if init_log_alpha_discrete is not None:
            self.alpha_discrete = DualVariable((num_choices,), init_log_alpha_discrete)
        self.penalty_temperature = DualVariable((), init_log_temperature) if action_penalty else None

    def alphas(self) -> dict[str, DualVariable]:
        """Returns the multipliers of the M-step's KLs, keyed by the part of the policy that each bounds."""
        alphas = {"mean": self.alpha_mean, "stddev": self.alpha_stddev, "discrete": self.alpha_discrete}
        return {name: alpha for name, alpha in alphas.items() if alpha is not None}


class VMPODuals(nn.Module):
    """The multipliers of the E-step's bound (temperature) and of the M-step's bounds (alphas)."""

    def __init__(self, *, init_temperature: float, init_alpha: float) -> None:
        """Makes the parameters, given their initial positive values."""
        super().__init__()
        self.temperature = DualVariable((), _inverse_softplus(init_temperature))
        self.alpha_mean = DualVariable((), _inverse_softplus(init_alpha))
        self.alpha_stddev = DualVariable((), _inverse_softplus(init_alpha))


def _inverse_softplus(value: float) -> float:
    return value + math.log(-math.expm1(-value))
