"""The deterministic policy gradient.

Shapes: `...` leading axes, such as [B] or [B, T]; D action dimensions.
"""

import torch

from minerva_acme.losses.shapes import check_shapes


def dpg_loss(action: torch.Tensor, dq_da: torch.Tensor, *, max_norm: float) -> torch.Tensor:
    """Computes a loss whose gradient with respect to the action is minus the gradient of Q.

        L = -sum_d clip(dQ/da)_d a_d

    The gradient of each state is clipped by its norm, as in Acme's D4PG. Source: Silver et al. 2014,
    "Deterministic policy gradient algorithms", eq. 9. The value of the loss has no meaning.

    Args:
        action: The policy's actions, [..., D].
        dq_da: The gradient of the critic's values with respect to the actions, [..., D].
        max_norm: The largest norm of a state's gradient, in units of Q per unit of the action, > 0;
            infinity for no clipping.

    Returns:
        The loss of each state, [...]. Its gradient flows only to `action`.

    Raises:
        ValueError: The shapes differ.
    """
    check_shapes(("action", action, "...D"), ("dq_da", dq_da, "...D"))
    dq_da = dq_da.detach()
    norm = torch.linalg.vector_norm(dq_da, dim=-1, keepdim=True)  # [..., 1]
    clipped = torch.where(norm > max_norm, dq_da * (max_norm / norm), dq_da)
    return -(clipped * action).sum(dim=-1)
