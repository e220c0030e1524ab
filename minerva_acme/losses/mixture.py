"""Mixtures of Gaussians as distributions of the return: their density, and the loss.

Shapes: C components, N returns of a target distribution; `...` any leading axes, such as [B, T].

Source: [1] Shahriari et al. 2022, "Revisiting Gaussian mixture critics in off-policy reinforcement learning:
a sample-based approach".
"""

import torch

from minerva_acme.distributions.gaussian import LOG_SQRT_2PI
from minerva_acme.losses.critic import mean_over_steps
from minerva_acme.losses.shapes import check_shapes


def mixture_log_prob(
    returns: torch.Tensor, logits: torch.Tensor, loc: torch.Tensor, scale: torch.Tensor
) -> torch.Tensor:
    """Computes log sum_c softmax(logits)_c N(z; loc_c, scale_c).

    Args:
        returns: The returns z, [..., N].
        logits: The logits of the components' weights, [..., C].
        loc: The means of the components, [..., C].
        scale: The standard deviations of the components, > 0, [..., C].

    Returns:
        The log-densities, nats, [..., N].

    Raises:
        ValueError: A shape is wrong.
    """
    check_shapes(
        ("logits", logits, "...C"),
        ("loc", loc, "...C"),
        ("scale", scale, "...C"),
        ("returns", returns, "...N"),
    )
    z = (returns.unsqueeze(-1) - loc.unsqueeze(-2)) / scale.unsqueeze(-2)  # [..., N, C]
    log_weights = logits.log_softmax(dim=-1) - scale.log() - LOG_SQRT_2PI
    return (log_weights.unsqueeze(-2) - 0.5 * z.square()).logsumexp(dim=-1)


def mixture_loss(
    *,
    returns: torch.Tensor,
    weights: torch.Tensor,
    logits: torch.Tensor,
    loc: torch.Tensor,
    scale: torch.Tensor,
    mask: torch.Tensor,
) -> torch.Tensor:
    """Computes the cross-entropy of predicted to target distribution from target returns, mean over steps.

        L = -sum mask sum_j w_j log p(z_j) / max(1, number of mask > 0)

    With z_j = r + gamma z', z' drawn from the target critic's mixture, and w_j = 1 / N, it is [1]'s estimate.

    Args:
        returns: The returns z_j, [..., N].
        weights: The probabilities w_j of the returns, summing to 1 over N, [..., N].
        logits: The logits of the online critic at the taken actions, [..., C].
        loc: The means of the components, [..., C].
        scale: The standard deviations of the components, > 0, [..., C].
        mask: The weight of each step, [...]; see `critic_loss`.

    Returns:
        The loss, nats, []; 0 if every step is masked. Its gradient flows only to the online critic.

    Raises:
        ValueError: A shape is wrong.
    """
    check_shapes(
        ("logits", logits, "...C"),
        ("loc", loc, "...C"),
        ("scale", scale, "...C"),
        ("returns", returns, "...N"),
        ("weights", weights, "...N"),
        ("mask", mask, "..."),
    )
    # Padding may hold anything, infinities and NaN too, which a mask on the loss alone would let through.
    happened = (mask > 0).unsqueeze(-1)
    log_prob = mixture_log_prob(
        torch.where(happened, returns.detach(), 0.0),
        torch.where(happened, logits, 0.0),
        torch.where(happened, loc, 0.0),
        torch.where(happened, scale, 1.0),
    )
    weights = torch.where(happened, weights.detach(), 0.0)
    return mean_over_steps(-(weights * log_prob).sum(dim=-1), mask)
