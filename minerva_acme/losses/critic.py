"""The critic's loss.

Shapes: B batch, T transitions.
"""

import torch

from minerva_acme.losses.shapes import check_shapes


def critic_loss(q_t: torch.Tensor, target_t: torch.Tensor, mask_t: torch.Tensor) -> torch.Tensor:
    """Mean squared error over the steps that happened.

        L_Q = sum_{b,t} mask (Q(s_t, a_t) - target_t)^2 / max(1, sum_{b,t} mask)

    Args:
        q_t: the online critic at the taken actions, [B, T].
        target_t: what it regresses to, [B, T].
        mask_t: 1 where the step happened, 0 where it is padding, [B, T].

    Returns:
        The loss, []; 0 where every step is masked. Its gradient flows to `q_t` alone.

    Raises:
        ValueError: the shapes differ.
    """
    check_shapes(("q_t", q_t, "BT"), ("target_t", target_t, "BT"), ("mask_t", mask_t, "BT"))
    # `where` and not a product: padding may hold anything, infinities and NaN too.
    happened_t = mask_t > 0
    error_t = torch.where(happened_t, q_t - target_t.detach(), 0.0)
    return error_t.square().sum() / happened_t.sum().clamp(min=1)
