"""The loss by which a value becomes an expectile of its targets: IQL.

Shapes: `...` axes of the states, such as [B] or [B, T].

Source: [1] Kostrikov, Nair and Levine 2021, "Offline reinforcement learning with implicit Q-learning".
"""

import torch

from minerva_acme.losses.shapes import check_shapes


def expectile_loss(value: torch.Tensor, target: torch.Tensor, *, expectile: float) -> torch.Tensor:
    """Computes the squared error of values, with one weight below their targets and another one above.

        L = |tau - 1[u < 0]| u^2,  u = target - value

    The minimum of its mean is the tau-expectile of the targets: their mean if tau is 0.5, where the loss is
    half the squared error, and close to their largest if tau is close to 1. Source: [1] eq. 5.

    Args:
        value: The values V(s), in units of the return, [...].
        target: Their targets, in the same units, [...].
        expectile: The expectile tau, in (0, 1).

    Returns:
        The loss of each state, [...]. Its gradient flows only to `value`.

    Raises:
        ValueError: The shapes differ.
    """
    check_shapes(("value", value, "..."), ("target", target, "..."))
    error = target.detach() - value
    weight = (expectile - (error < 0.0).to(error.dtype)).abs()
    return weight * error.square()
