"""The critic's loss.

Shapes: `...` any axes, such as [B, T] of a batch of sequences.
"""

import torch

from minerva_acme.losses.shapes import check_shapes


def critic_loss(q_t: torch.Tensor, target_t: torch.Tensor, mask_t: torch.Tensor) -> torch.Tensor:
    """Mean squared error over the steps that happened.

        L_Q = sum mask (Q(s_t, a_t) - target_t)^2 / max(1, number of mask > 0)

    Args:
        q_t: the online critic at the taken actions, [...].
        target_t: what it regresses to, [...].
        mask_t: how much each step counts, [...]: 1 where it happened, or its weight of
            `importance_weights`; 0 where it is padding.

    Returns:
        The loss, []; 0 where every step is masked. Its gradient flows to `q_t` alone.

    Raises:
        ValueError: the shapes differ.
    """
    check_shapes(("q_t", q_t, "..."), ("target_t", target_t, "..."), ("mask_t", mask_t, "..."))
    # `where` and not a product: padding may hold anything, infinities and NaN too.
    error_t = torch.where(mask_t > 0, q_t - target_t.detach(), 0.0)
    return mean_over_steps(error_t.square(), mask_t)


def mean_over_steps(loss_t: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean of a finite loss over the steps that happened, 0 where every step is masked: [...] -> [].

    A step that the mask weighs with less than 1 counts less, but counts as one that happened.
    """
    happened_t = mask > 0
    return torch.where(happened_t, mask * loss_t, 0.0).sum() / happened_t.sum().clamp(min=1)
