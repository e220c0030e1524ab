"""The critic's loss.

Shapes: `...` any axes, such as [B, T] for a batch of sequences.
"""

import torch

from minerva_acme.losses.shapes import check_shapes


def critic_loss(q_t: torch.Tensor, target_t: torch.Tensor, mask_t: torch.Tensor) -> torch.Tensor:
    """Computes the mean squared error over unmasked steps.

        L_Q = sum mask (Q(s_t, a_t) - target_t)^2 / max(1, number of mask > 0)

    Args:
        q_t: The values of the online critic at the taken actions, [...].
        target_t: The regression targets, [...].
        mask_t: The weight of each step, [...]: 1, or a weight from `importance_weights`, for a real step,
            and 0 for padding.

    Returns:
        The loss, []; 0 if every step is masked. Its gradient flows only to `q_t`.

    Raises:
        ValueError: The shapes differ.
    """
    check_shapes(("q_t", q_t, "..."), ("target_t", target_t, "..."), ("mask_t", mask_t, "..."))
    # `where` instead of a product: padding may hold anything, including infinities and NaN.
    error_t = torch.where(mask_t > 0, q_t - target_t.detach(), 0.0)
    return mean_over_steps(error_t.square(), mask_t)


def mean_over_steps(loss_t: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Averages a finite loss over the unmasked steps, 0 if every step is masked: [...] -> [].

    A step with a mask between 0 and 1 adds less to the sum, but counts fully in the number of steps.
    """
    happened_t = mask > 0
    return torch.where(happened_t, mask * loss_t, 0.0).sum() / happened_t.sum().clamp(min=1)
