"""Retrace targets.

Shapes: B batch, T transitions. Time: `_t` is for t = 0..T-1, `_tp1` for t + 1 = 1..T.
"""

import torch

from minerva_acme.losses.shapes import check_shapes


@torch.no_grad()
def retrace_targets(
    q_t: torch.Tensor,
    v_tp1: torch.Tensor,
    r_t: torch.Tensor,
    discount_t: torch.Tensor,
    log_prob_t: torch.Tensor,
    behaviour_log_prob_t: torch.Tensor,
    mask_t: torch.Tensor,
    lambda_: float,
) -> torch.Tensor:
    """Computes Retrace(lambda) targets for Q(s_t, a_t) at every t.

        delta_t  = r_t + discount_t V(s_{t+1}) - Q(s_t, a_t)
        c_t      = lambda min(1, pi(a_t | s_t) / b(a_t | s_t))
        g_t      = delta_t + discount_t c_{t+1} g_{t+1},  g_T = 0
        target_t = Q(s_t, a_t) + g_t

    Source: Munos et al. 2016, "Safe and efficient off-policy RL", eq. 3 and 4, as a recursion.
    Deviation: a masked step has g = 0 and c = 0, so that padding never affects a real step.

    Args:
        q_t: The values of the target critic at the taken actions, [B, T].
        v_tp1: The target policy's value of the following states, [B, T].
        r_t: The rewards, [B, T].
        discount_t: The environment's discounts times gamma, [B, T].
        log_prob_t: The log-probability log pi(a_t | s_t) of the target policy, nats, [B, T].
        behaviour_log_prob_t: The log-probability log b(a_t | s_t), recorded with the action, [B, T].
        mask_t: 1 for real steps, 0 for padding, [B, T].
        lambda_: The decay of the traces, in [0, 1].

    Returns:
        Targets without gradient, [B, T]; `q_t` itself at masked steps.

    Raises:
        ValueError: The shapes differ.
    """
    check_shapes(
        ("q_t", q_t, "BT"),
        ("v_tp1", v_tp1, "BT"),
        ("r_t", r_t, "BT"),
        ("discount_t", discount_t, "BT"),
        ("log_prob_t", log_prob_t, "BT"),
        ("behaviour_log_prob_t", behaviour_log_prob_t, "BT"),
        ("mask_t", mask_t, "BT"),
    )
    # `where` instead of a product: padding may hold anything, including infinities and NaN.
    happened_t = mask_t > 0
    delta_t = torch.where(happened_t, r_t + discount_t * v_tp1 - q_t, 0.0)
    # The minimum is taken before the exponential, which then cannot overflow.
    c_t = lambda_ * torch.exp((log_prob_t - behaviour_log_prob_t).clamp(max=0.0))
    decay_t = torch.where(happened_t[:, :-1] & happened_t[:, 1:], discount_t[:, :-1] * c_t[:, 1:], 0.0)

    g_t = delta_t.clone()
    for t in reversed(range(g_t.shape[1] - 1)):
        g_t[:, t] += decay_t[:, t] * g_t[:, t + 1]
    return q_t + g_t
