"""Targets and advantages of on-policy rollouts.

Shapes: T steps of each of E environments, in order, across the ends of episodes. Time: `_t` is for
t = 0..T-1, `_tp1` for t + 1 = 1..T.

In all functions below:

    discount_t  is the environment's own discount times gamma: 0 at a terminal, gamma at a time limit;
    v_tp1       is V(s_{t+1}) of the following state; at an episode's end, of its last state;
    last_t      is 1 if no step of the same episode follows in the rollout. There the sum is cut and
                `v_tp1`, times the discount, stands for the rest. The last row counts as such a step.
"""

from typing import NamedTuple

import torch

from minerva_acme.losses.shapes import check_shapes


class RolloutTargets(NamedTuple):
    """The advantages and targets that an on-policy learner computes from a rollout, without gradient."""

    advantage: torch.Tensor  # [T, E]  by how much the action was better than the policy's average
    target: torch.Tensor  # [T, E]  regression target of V(s_t)


@torch.no_grad()
def discounted_returns(
    r_t: torch.Tensor, discount_t: torch.Tensor, v_tp1: torch.Tensor, last_t: torch.Tensor
) -> torch.Tensor:
    """Computes discounted returns to the end of the episode or rollout, bootstrapped after it.

        G_t = r_t + discount_t G_{t+1}      where last_t = 0
        G_t = r_t + discount_t V(s_{t+1})   where last_t = 1

    Args:
        r_t: The rewards, [T, E].
        discount_t: The environment's discounts times gamma, [T, E].
        v_tp1: The values of the following states, [T, E].
        last_t: 1 where the sum ends, [T, E].

    Returns:
        Returns without gradient, [T, E].

    Raises:
        ValueError: The shapes differ.
    """
    return lambda_returns(r_t, discount_t, v_tp1, last_t, lambda_=1.0)


@torch.no_grad()
def lambda_returns(
    r_t: torch.Tensor,
    discount_t: torch.Tensor,
    v_tp1: torch.Tensor,
    last_t: torch.Tensor,
    lambda_: float,
) -> torch.Tensor:
    """Computes mixtures of the n-step returns of every length, with less weight on longer ones.

        G_t = r_t + discount_t ((1 - lambda) V(s_{t+1}) + lambda G_{t+1})   where last_t = 0
        G_t = r_t + discount_t V(s_{t+1})                                   where last_t = 1

    Source: Sutton and Barto 2018, "Reinforcement learning", section 12.8.

    Args:
        r_t: The rewards, [T, E].
        discount_t: The environment's discounts times gamma, [T, E].
        v_tp1: The values of the following states, [T, E].
        last_t: 1 where the sum ends, [T, E].
        lambda_: The mixing parameter: 0 gives the one-step target, 1 the discounted return.

    Returns:
        Returns without gradient, [T, E].

    Raises:
        ValueError: The shapes differ.
    """
    check_rollout(r_t, discount_t, v_tp1, last_t)
    trace_t = lambda_ * (1.0 - last_t)
    trace_t[-1] = 0.0  # no step follows in the rollout
    return backward_sums(r_t + discount_t * (1.0 - trace_t) * v_tp1, discount_t * trace_t)


@torch.no_grad()
def gae(
    *,
    r_t: torch.Tensor,
    discount_t: torch.Tensor,
    v_t: torch.Tensor,
    v_tp1: torch.Tensor,
    last_t: torch.Tensor,
    lambda_: float,
) -> RolloutTargets:
    """Computes generalised advantage estimates.

        delta_t  = r_t + discount_t V(s_{t+1}) - V(s_t)
        A_t      = delta_t + discount_t lambda (1 - last_t) A_{t+1},  A_T = 0
        target_t = V(s_t) + A_t

    Source: Schulman et al. 2016, "High-dimensional continuous control using generalized advantage
    estimation", eq. 16, as a recursion.

    Args:
        r_t: The rewards, [T, E].
        discount_t: The environment's discounts times gamma, [T, E].
        v_t: The values of the states, [T, E].
        v_tp1: The values of the following states, [T, E].
        last_t: 1 where the sum ends, [T, E].
        lambda_: The mixing parameter: 0 gives `one_step_advantages`, 1 `return_advantages`.

    Returns:
        `RolloutTargets`.

    Raises:
        ValueError: The shapes differ.
    """
    check_rollout(r_t, discount_t, v_tp1, last_t, v_t)
    delta_t = r_t + discount_t * v_tp1 - v_t
    advantage_t = backward_sums(delta_t, lambda_ * discount_t * (1.0 - last_t))
    return RolloutTargets(advantage_t, v_t + advantage_t)


@torch.no_grad()
def one_step_advantages(
    *,
    r_t: torch.Tensor,
    discount_t: torch.Tensor,
    v_t: torch.Tensor,
    v_tp1: torch.Tensor,
    last_t: torch.Tensor,
) -> RolloutTargets:
    """Computes temporal-difference errors as advantages.

        target_t = r_t + discount_t V(s_{t+1});  A_t = target_t - V(s_t)

    Args:
        r_t: The rewards, [T, E].
        discount_t: The environment's discounts times gamma, [T, E].
        v_t: The values of the states, [T, E].
        v_tp1: The values of the following states, [T, E].
        last_t: As in the other estimators, [T, E]; unused, since one step never reaches beyond an end.

    Returns:
        `RolloutTargets`.

    Raises:
        ValueError: The shapes differ.
    """
    check_rollout(r_t, discount_t, v_tp1, last_t, v_t)
    target_t = r_t + discount_t * v_tp1
    return RolloutTargets(target_t - v_t, target_t)


@torch.no_grad()
def return_advantages(
    *,
    r_t: torch.Tensor,
    discount_t: torch.Tensor,
    v_t: torch.Tensor,
    v_tp1: torch.Tensor,
    last_t: torch.Tensor,
) -> RolloutTargets:
    """Computes discounted returns minus the values: A_t = G_t - V(s_t).

    Args:
        r_t: The rewards, [T, E].
        discount_t: The environment's discounts times gamma, [T, E].
        v_t: The values of the states, [T, E].
        v_tp1: The values of the following states, [T, E].
        last_t: 1 where the sum ends, [T, E].

    Returns:
        `RolloutTargets`, where `target` holds the `discounted_returns`.

    Raises:
        ValueError: The shapes differ.
    """
    check_rollout(r_t, discount_t, v_tp1, last_t, v_t)
    target_t = discounted_returns(r_t, discount_t, v_tp1, last_t)
    return RolloutTargets(target_t - v_t, target_t)


def backward_sums(x_t: torch.Tensor, decay_t: torch.Tensor) -> torch.Tensor:
    """Computes g_t = x_t + decay_t g_{t+1}, g_T = 0, in log2(T) vector operations instead of T.

    It overwrites x_t. After the pass of `span`, `g_t` holds the terms t..t + 2 span - 1 and `decay_t` is the
    product of as many decays, so that two neighbouring sums join into one of double length. For 4096 steps of
    one environment this takes 0.2 ms, compared to 9 ms for a loop over rows in numpy and 20 ms in torch.
    """
    g_t = x_t
    decay_t = decay_t[:-1]  # the last row's decay would reach beyond the rollout
    span = 1
    while span < g_t.shape[0]:
        g_t[:-span] += decay_t * g_t[span:]
        decay_t = decay_t[:-span] * decay_t[span:]
        span *= 2
    return g_t


def check_rollout(
    r_t: torch.Tensor,
    discount_t: torch.Tensor,
    v_tp1: torch.Tensor,
    last_t: torch.Tensor,
    v_t: torch.Tensor | None = None,
) -> None:
    """Raises a ValueError unless all are [T, E]."""
    check_shapes(
        ("r_t", r_t, "TE"),
        ("discount_t", discount_t, "TE"),
        ("v_tp1", v_tp1, "TE"),
        ("last_t", last_t, "TE"),
        *((("v_t", v_t, "TE"),) if v_t is not None else ()),
    )
