"""Targets without off-policy correction.

Shapes: B batch, T transitions. Time: `_t` is for t = 0..T-1, `_tp1` for t + 1 = 1..T.
"""

import torch

from minerva_acme.losses.shapes import check_shapes


@torch.no_grad()
def one_step_targets(v_tp1: torch.Tensor, r_t: torch.Tensor, discount_t: torch.Tensor) -> torch.Tensor:
    """Computes r_t + discount_t V(s_{t+1}) at every t.

    Args:
        v_tp1: The values of the following states, [B, T].
        r_t: The rewards, [B, T].
        discount_t: The environment's discounts times gamma, [B, T].

    Returns:
        Targets without gradient, [B, T].

    Raises:
        ValueError: The shapes differ.
    """
    check_shapes(("v_tp1", v_tp1, "BT"), ("r_t", r_t, "BT"), ("discount_t", discount_t, "BT"))
    return r_t + discount_t * v_tp1


@torch.no_grad()
def n_step_targets(
    v_tp1: torch.Tensor,
    r_t: torch.Tensor,
    discount_t: torch.Tensor,
    mask_t: torch.Tensor,
    num_steps: int | None = None,
) -> torch.Tensor:
    """Computes returns from every t to the last of the consecutive unmasked steps, bootstrapped after it.

        target_t = r_t + discount_t target_{t+1}     if step t + 1 is unmasked
        target_t = r_t + discount_t V(s_{t+1})       at a last step: T - 1, or before a masked one

    With `num_steps` n, a return ends after n steps at the latest, and is bootstrapped there.

    Args:
        v_tp1: The values of the following states, [B, T].
        r_t: The rewards, [B, T].
        discount_t: The environment's discounts times gamma, [B, T].
        mask_t: 1 for real steps, 0 for padding and for steps between two episodes, [B, T].
        num_steps: The largest number of steps of a return, n; None for no limit.

    Returns:
        Targets without gradient, [B, T]; 0 at masked steps.

    Raises:
        ValueError: The shapes differ, or `num_steps` is below 1.
    """
    if num_steps is not None and num_steps < 1:
        raise ValueError(f"`num_steps` must be >= 1, got {num_steps}. 1 bootstraps from the next state.")
    check_shapes(
        ("v_tp1", v_tp1, "BT"),
        ("r_t", r_t, "BT"),
        ("discount_t", discount_t, "BT"),
        ("mask_t", mask_t, "BT"),
    )
    # `where` instead of a product: padding may hold anything, including infinities and NaN.
    happened_t = mask_t > 0
    one_step_t = torch.where(happened_t, r_t + discount_t * v_tp1, 0.0)
    if num_steps is not None:
        target_t = one_step_t
        for _ in range(min(num_steps, target_t.shape[1]) - 1):
            continued = r_t[:, :-1] + discount_t[:, :-1] * target_t[:, 1:]
            before_last = torch.where(happened_t[:, :-1] & happened_t[:, 1:], continued, one_step_t[:, :-1])
            target_t = torch.cat([before_last, one_step_t[:, -1:]], dim=1)
        return target_t
    target_t = one_step_t
    for t in reversed(range(target_t.shape[1] - 1)):
        continued = r_t[:, t] + discount_t[:, t] * target_t[:, t + 1]
        target_t[:, t] = torch.where(happened_t[:, t] & happened_t[:, t + 1], continued, target_t[:, t])
    return target_t
