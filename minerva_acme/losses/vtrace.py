"""V-trace targets: advantages and value targets of rollouts that an older policy played.

Shapes: T steps of each of E environments, as in `returns`, whose description of `discount_t`, `v_tp1` and
`last_t` holds here too.
"""

import torch

from minerva_acme.losses.returns import RolloutTargets, backward_sums, check_rollout
from minerva_acme.losses.shapes import check_shapes


@torch.no_grad()
def vtrace(
    *,
    r_t: torch.Tensor,
    discount_t: torch.Tensor,
    v_t: torch.Tensor,
    v_tp1: torch.Tensor,
    last_t: torch.Tensor,
    log_prob_t: torch.Tensor,
    behaviour_log_prob_t: torch.Tensor,
    lambda_: float = 1.0,
    clip_rho: float = 1.0,
    clip_advantage_rho: float | None = 1.0,
    leak: float = 0.0,
) -> RolloutTargets:
    """Computes V-trace targets of the value, and the advantages for the policy gradient.

        ratio_t  = pi(a_t | s_t) / b(a_t | s_t)
        rho_t    = (1 - leak) min(clip_rho, ratio_t) + leak ratio_t
        c_t      = lambda ((1 - leak) min(1, ratio_t) + leak ratio_t)
        delta_t  = rho_t (r_t + discount_t V(s_{t+1}) - V(s_t))
        g_t      = delta_t + discount_t c_t (1 - last_t) g_{t+1},  g_T = 0
        target_t = V(s_t) + g_t
        next_t   = V(s_{t+1}) + lambda (1 - last_t) g_{t+1}
        A_t      = min(clip_advantage_rho, ratio_t) (r_t + discount_t next_t - V(s_t))

    If the policy has not changed since the rollout was played, all ratios are 1, and for lambda 1 the targets
    are the `discounted_returns`. The smaller `clip_rho`, the closer the fixed point of the value is to the
    behaviour's value, and the smaller the variance.

    Source: Espeholt et al. 2018, "IMPALA: Scalable distributed deep-RL with importance weighted
    actor-learner architectures", eq. 1 and section 4.2, as a recursion; `leak` from Zahavy et al. 2020, "A
    self-tuning actor-critic algorithm", section 4, with the same leak for rho and c.
    Deviation: lambda mixes `next_t` towards V(s_{t+1}) too, as in rlax.

    Args:
        r_t: The rewards, [T, E].
        discount_t: The environment's discounts times gamma, [T, E].
        v_t: The values of the states, [T, E].
        v_tp1: The values of the following states, [T, E].
        last_t: 1 where the sum ends, [T, E].
        log_prob_t: The log-probability log pi(a_t | s_t) of the policy that is trained, nats, [T, E].
        behaviour_log_prob_t: The log-probability log b(a_t | s_t), recorded with the action, [T, E].
        lambda_: The decay of the traces, in [0, 1].
        clip_rho: The largest weight of a temporal-difference error, > 0.
        clip_advantage_rho: The largest weight of an advantage, > 0; None for advantages without weights.
        leak: The share of each ratio that is not clipped, in [0, 1]; 0 is plain V-trace.

    Returns:
        `RolloutTargets`.

    Raises:
        ValueError: The shapes differ.
    """
    check_rollout(r_t, discount_t, v_tp1, last_t, v_t)
    check_shapes(("log_prob_t", log_prob_t, "TE"), ("behaviour_log_prob_t", behaviour_log_prob_t, "TE"))
    ratio_t = torch.exp(log_prob_t - behaviour_log_prob_t)
    rho_t, c_t = _leaky(ratio_t, clip_rho, leak), lambda_ * _leaky(ratio_t, 1.0, leak)
    follows_t = 1.0 - last_t
    follows_t[-1] = 0.0  # no step follows in the rollout

    delta_t = rho_t * (r_t + discount_t * v_tp1 - v_t)
    g_t = backward_sums(delta_t, discount_t * c_t * follows_t)
    g_tp1 = torch.cat([g_t[1:], torch.zeros_like(g_t[:1])])
    next_t = v_tp1 + lambda_ * follows_t * g_tp1
    advantage_t = r_t + discount_t * next_t - v_t
    if clip_advantage_rho is not None:
        advantage_t = ratio_t.clamp(max=clip_advantage_rho) * advantage_t
    return RolloutTargets(advantage_t, v_t + g_t)


def _leaky(ratio_t: torch.Tensor, bound: float, leak: float) -> torch.Tensor:
    clipped_t = ratio_t.clamp(max=bound)
    # Without a leak, 0 times an infinite ratio would be NaN.
    return clipped_t if leak == 0.0 else (1.0 - leak) * clipped_t + leak * ratio_t
