"""Losses by which a policy follows recorded actions: BC, CRR, and the policy loss of TD3+BC.

Shapes: B batch, D action dimensions.

Sources: [1] Wang et al. 2020, "Critic regularized regression" (CRR); [2] Fujimoto and Gu 2021, "A minimalist
approach to offline reinforcement learning" (TD3+BC).
"""

import torch

from minerva_acme.losses.shapes import check_shapes

_NEGLIGIBLE = 1e-12  # the mean |Q| below which values say nothing, in units of the return


def weighted_likelihood_loss(log_prob: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Computes the negative log-likelihood of recorded actions, each with its weight.

        L = -mean_b w_b log pi(a_b | s_b)

    With weights of 1 this is behaviour cloning. Source: [1] eq. 2, in which f is the weight.

    Args:
        log_prob: The log-likelihoods log pi(a | s) of the recorded actions, nats, [B].
        weight: The weights w >= 0, [B].

    Returns:
        The loss, nats, []. Its gradient flows only to `log_prob`.

    Raises:
        ValueError: The shapes differ.
    """
    check_shapes(("log_prob", log_prob, "B"), ("weight", weight, "B"))
    # The weight depends on the policy too, through the actions that it samples, but says only whom to follow.
    return -(weight.detach() * log_prob).mean()


def exponential_weights(advantage: torch.Tensor, *, beta: float, max_weight: float) -> torch.Tensor:
    """Computes w = min(exp(A / beta), max_weight), [B] -> [B].

    Source: [1] eq. 4, with the bound of section 5, which is 20.

    Args:
        advantage: The advantages A, in units of the return, [B].
        beta: The temperature, in units of the return, > 0: the smaller, the greedier.
        max_weight: The largest weight.
    """
    # The minimum is taken before the exponential, which then cannot overflow.
    log_max = torch.as_tensor(max_weight, dtype=advantage.dtype, device=advantage.device).log()
    return (advantage / beta).minimum(log_max).exp()


def binary_weights(advantage: torch.Tensor) -> torch.Tensor:
    """Computes w = 1 if A > 0, else 0, [B] -> [B]. Source: [1] eq. 3."""
    return (advantage > 0.0).to(advantage.dtype)


def action_error(action: torch.Tensor, recorded: torch.Tensor, half_range: torch.Tensor) -> torch.Tensor:
    """Computes the mean squared distance of actions to recorded ones, in units of half the action's range.

        L = mean_{b,d} ((a_bd - a'_bd) / h_d)^2,  h = (high - low) / 2

    Source: [2] eq. 3, where actions are within [-1, 1] and h is 1.

    Args:
        action: The policy's actions a, [B, D].
        recorded: The recorded actions a', [B, D].
        half_range: Half the range of each dimension h, [D].

    Returns:
        The loss, [].

    Raises:
        ValueError: The shapes differ.
    """
    check_shapes(("action", action, "BD"), ("recorded", recorded, "BD"), ("half_range", half_range, "D"))
    return ((action - recorded) / half_range).square().mean()


def td3_bc_loss(q: torch.Tensor, error: torch.Tensor, *, alpha: float) -> torch.Tensor:
    """Computes the loss of a policy that follows its critic without going far from recorded actions.

        L = -lambda mean_b Q(s_b, pi(s_b)) + error,  lambda = alpha / mean_b |Q(s_b, pi(s_b))|

    Source: [2] eq. 3 to 5, with lambda of the policy's actions, as in the authors' code, instead of the
    recorded ones. The factor lambda makes both terms comparable, whatever the scale of the rewards. Also
    unlike [2], lambda is 0 if the mean |Q| is below 1e-12: the values of an untrained critic may all be 0,
    and then say nothing, while alpha / |Q| is no finite gradient.

    Args:
        q: The values of the policy's actions, [B].
        error: The distance of these actions to the recorded ones, from `action_error`, [].
        alpha: The weight of the values, > 0; 2.5 in [2].

    Returns:
        The loss, []. No gradient flows through lambda.

    Raises:
        ValueError: A shape is wrong.
    """
    check_shapes(("q", q, "B"), ("error", error, ""))
    size = q.detach().abs().mean()
    return error - alpha * (q / torch.where(size < _NEGLIGIBLE, torch.inf, size)).mean()
