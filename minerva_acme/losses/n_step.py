"""Targets without off-policy correction.

Shapes: B batch, T transitions. Time: `_t` is for t = 0..T-1, `_tp1` for t + 1 = 1..T.
"""

import torch

from minerva_acme.losses.shapes import check_shapes


@torch.no_grad()
def one_step_targets(v_tp1: torch.Tensor, r_t: torch.Tensor, discount_t: torch.Tensor) -> torch.Tensor:
    """r_t + discount_t V(s_{t+1}) at every t.

    Args:
        v_tp1: values of the following states, [B, T].
        r_t: rewards, [B, T].
        discount_t: the environment's discounts times gamma, [B, T].

    Returns:
        Targets without gradient, [B, T].

    Raises:
        ValueError: the shapes differ.
    """
    check_shapes(("v_tp1", v_tp1, "BT"), ("r_t", r_t, "BT"), ("discount_t", discount_t, "BT"))
    return r_t + discount_t * v_tp1


@torch.no_grad()
def n_step_targets(
    v_tp1: torch.Tensor, r_t: torch.Tensor, discount_t: torch.Tensor, mask_t: torch.Tensor
) -> torch.Tensor:
    """Returns from every t to the last step that happened in a row, bootstrapped behind it.

        target_t = r_t + discount_t target_{t+1}     where t + 1 happened
        target_t = r_t + discount_t V(s_{t+1})       at a last step: T - 1, or before a masked one

    Args:
        v_tp1: values of the following states, [B, T].
        r_t: rewards, [B, T].
        discount_t: the environment's discounts times gamma, [B, T].
        mask_t: 1 where the step happened, 0 where it is padding or lies between two episodes, [B, T].

    Returns:
        Targets without gradient, [B, T]; 0 at masked steps.

    Raises:
        ValueError: the shapes differ.
    """
    check_shapes(
        ("v_tp1", v_tp1, "BT"),
        ("r_t", r_t, "BT"),
        ("discount_t", discount_t, "BT"),
        ("mask_t", mask_t, "BT"),
    )
    # `where` and not a product: padding may hold anything, infinities and NaN too.
    happened_t = mask_t > 0
    target_t = torch.where(happened_t, r_t + discount_t * v_tp1, 0.0)
    for t in reversed(range(target_t.shape[1] - 1)):
        continued = r_t[:, t] + discount_t[:, t] * target_t[:, t + 1]
        target_t[:, t] = torch.where(happened_t[:, t + 1], continued, target_t[:, t])
    return target_t
