"""Losses by which a policy follows recorded actions: BC, CRR, and the policy loss of TD3+BC.

Shapes: `...` axes of the states, such as [B] or [B, T]; D action dimensions.

Sources: [1] Wang et al. 2020, "Critic regularized regression" (CRR); [2] Fujimoto and Gu 2021, "A minimalist
approach to offline reinforcement learning" (TD3+BC).
"""

from collections.abc import Callable

import torch

from minerva_acme.losses.shapes import check_shapes

_NEGLIGIBLE = 1e-12  # the mean |Q| below which values say nothing, in units of the return


def weighted_likelihood_loss(log_prob: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Computes the negative log-likelihood of recorded actions, each with its weight.

        L = -w log pi(a | s)

    With weights of 1 this is behaviour cloning. Source: [1] eq. 2, in which f is the weight.

    Args:
        log_prob: The log-likelihoods log pi(a | s) of the recorded actions, nats, [...].
        weight: The weights w >= 0, [...].

    Returns:
        The loss of each state, nats, [...]. Its gradient flows only to `log_prob`.

    Raises:
        ValueError: The shapes differ.
    """
    check_shapes(("log_prob", log_prob, "..."), ("weight", weight, "..."))
    # The weight depends on the policy too, through the actions that it samples, but says only whom to follow.
    return -weight.detach() * log_prob


def exponential_weights(advantage: torch.Tensor, *, beta: float, max_weight: float) -> torch.Tensor:
    """Computes w = min(exp(A / beta), max_weight), [...] -> [...].

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
    """Computes w = 1 if A > 0, else 0, [...] -> [...]. Source: [1] eq. 3."""
    return (advantage > 0.0).to(advantage.dtype)


def action_error(action: torch.Tensor, recorded: torch.Tensor, half_range: torch.Tensor) -> torch.Tensor:
    """Computes the squared distance of actions to recorded ones, in units of half the action's range.

        L = mean_d ((a_d - a'_d) / h_d)^2,  h = (high - low) / 2

    Source: [2] eq. 3, where actions are within [-1, 1] and h is 1.

    Args:
        action: The policy's actions a, [..., D].
        recorded: The recorded actions a', [..., D].
        half_range: Half the range of each dimension h, [D].

    Returns:
        The distance in each state, [...].

    Raises:
        ValueError: The shapes differ.
    """
    check_shapes(("action", action, "...D"), ("recorded", recorded, "...D"), ("half_range", half_range, "D"))
    return ((action - recorded) / half_range).square().mean(dim=-1)


def td3_bc_loss(
    q: torch.Tensor,
    error: torch.Tensor,
    *,
    alpha: float,
    mean: Callable[[torch.Tensor], torch.Tensor] = torch.mean,
) -> torch.Tensor:
    """Computes the loss of a policy that follows its critic without going far from recorded actions.

        L = mean(error - lambda Q(s, pi(s))),  lambda = alpha / mean |Q(s, pi(s))|

    Source: [2] eq. 3 to 5, with lambda of the policy's actions, as in the authors' code, instead of the
    recorded ones. The factor lambda makes both terms comparable, whatever the scale of the rewards. Also
    unlike [2], lambda is 0 if the mean |Q| is below 1e-12: the values of an untrained critic may all be 0,
    and then say nothing, while alpha / |Q| is no finite gradient.

    Args:
        q: The values of the policy's actions, [...].
        error: The distance of these actions to the recorded ones, from `action_error`, [...].
        alpha: The weight of the values, > 0; 2.5 in [2].
        mean: Computes the mean over the states, [...] -> []: `learners.Batch.mean` if some are masked.

    Returns:
        The loss, []. No gradient flows through lambda.

    Raises:
        ValueError: A shape is wrong.
    """
    check_shapes(("q", q, "..."), ("error", error, "..."))
    size = mean(q.detach().abs())
    return mean(error - alpha * q / torch.where(size < _NEGLIGIBLE, torch.inf, size))
