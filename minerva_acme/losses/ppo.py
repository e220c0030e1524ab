"""The losses of proximal policy optimisation (PPO).

Shapes: n samples of a minibatch.

Source: [1] Schulman et al. 2017, "Proximal policy optimization algorithms".
"""

from typing import NamedTuple

import torch

from minerva_acme.losses.shapes import check_shapes

MIN_STDDEV = 1e-8  # equal advantages become 0


class PPOLosses(NamedTuple):
    """The loss, its parts and its diagnostics; gradients flow through the first four."""

    total: torch.Tensor  # []  policy + value_coef * value - entropy_coef * entropy
    policy: torch.Tensor  # []  the clipped surrogate, negated so that it is minimised
    value: torch.Tensor  # []  half the mean squared error
    entropy: torch.Tensor  # []  entropy of the policy, mean over n, nats
    approx_kl: torch.Tensor  # []  estimate of KL(behaviour || online), nats, never negative
    clip_fraction: torch.Tensor  # []  share of samples whose ratio is beyond the clip range


def normalize_advantages(advantages: torch.Tensor, unbiased: bool) -> torch.Tensor:
    """Computes (A - mean A) / (std A + 1e-8) over all elements.

    Args:
        advantages: The advantages A, [...].
        unbiased: True divides by n - 1 (the sample's deviation, as PPO implementations do), False
            by n (the population's deviation).

    Returns:
        Advantages of mean 0 and standard deviation 1, [...]; all 0 if they were all equal.

    Raises:
        ValueError: There are too few elements for a standard deviation.
    """
    if advantages.numel() <= int(unbiased):
        raise ValueError(
            f"`advantages` must hold more than {int(unbiased)} elements to be normalized, got shape "
            f"{list(advantages.shape)}. Use larger batches or turn off normalization."
        )
    # In double precision the mean of equal numbers is exact, and no square overflows.
    exact = advantages.double()
    stddev, mean = torch.std_mean(exact, correction=int(unbiased))
    return ((exact - mean) / (stddev + MIN_STDDEV)).to(advantages.dtype)


def ppo_loss(
    *,
    log_prob: torch.Tensor,
    behaviour_log_prob: torch.Tensor,
    advantages: torch.Tensor,
    targets: torch.Tensor,
    value: torch.Tensor,
    behaviour_value: torch.Tensor,
    entropy: torch.Tensor,
    clip_ratio: float,
    clip_value: bool,
    entropy_coef: float,
    value_coef: float,
) -> PPOLosses:
    """Computes the clipped surrogate, the value's error and the entropy bonus.

        rho    = exp(log pi(a | s) - log b(a | s))
        L_pi   = -mean min(rho A, clip(rho, 1 - c, 1 + c) A)
        L_V    = 1/2 mean max((V - R)^2, (V_b + clip(V - V_b, -c, c) - R)^2)
        L      = L_pi + value_coef L_V - entropy_coef mean H
        KL     = mean (rho - 1 - log rho)

    A sample gives the policy no gradient if rho is beyond the clip range in the direction that A favours, and
    the value none if V is beyond its own range and the clipped error is the larger one. Such a rho may be
    infinite. If a rho above exp(88) is not clipped (A < 0), loss and gradient are infinite and a learner
    skips the batch: with a bounded rho the gradient would silently be zero.

    Source: [1] eq. 7 and 9. Deviations, as in common implementations: the value's change is clipped
    too, by the same c (without `clip_value`, L_V = 1/2 mean (V - R)^2), and its error is halved.

    Args:
        log_prob: The log-probability log pi(a | s) of the policy that is trained, nats, [n].
        behaviour_log_prob: The log-probability log b(a | s), recorded when the action was drawn, nats, [n].
        advantages: The advantages A, already normalised if that is wanted, [n].
        targets: The value's regression targets R, [n].
        value: V(s) of the network that is trained, [n].
        behaviour_value: V_b(s), the value before the update, [n].
        entropy: The entropy at s of the policy that is trained, nats, [n]; if actions are squashed, the agent
            passes the entropy of the raw Gaussian.
        clip_ratio: The clip range c.
        clip_value: Whether the value's change is clipped.
        entropy_coef: The weight of the entropy.
        value_coef: The weight of the value's loss.

    Returns:
        `PPOLosses`. Gradients flow only to `log_prob`, `value` and `entropy`.

    Raises:
        ValueError: The shapes differ.
    """
    check_shapes(
        ("log_prob", log_prob, "n"),
        ("behaviour_log_prob", behaviour_log_prob, "n"),
        ("advantages", advantages, "n"),
        ("targets", targets, "n"),
        ("value", value, "n"),
        ("behaviour_value", behaviour_value, "n"),
        ("entropy", entropy, "n"),
    )
    # Everything that was recorded in the rollout or computed from it is data.
    advantages, targets = advantages.detach(), targets.detach()
    behaviour_log_prob, behaviour_value = behaviour_log_prob.detach(), behaviour_value.detach()

    log_ratio = log_prob - behaviour_log_prob
    ratio = log_ratio.detach().exp()
    clipped_ratio = ratio.clamp(1.0 - clip_ratio, 1.0 + clip_ratio)
    is_clipped = ((ratio > clipped_ratio) & (advantages >= 0.0)) | (
        (ratio < clipped_ratio) & (advantages < 0.0)
    )
    # Filled before the exponential: an infinite ratio has a NaN gradient even if its weight is 0.
    free_ratio = log_ratio.masked_fill(is_clipped, 0.0).exp()
    policy_loss = -(torch.where(is_clipped, clipped_ratio, free_ratio) * advantages).mean()

    error = value - targets
    if clip_value:
        change = value.detach() - behaviour_value
        clipped_change = change.clamp(-clip_ratio, clip_ratio)
        clipped_error = behaviour_value + clipped_change - targets
        # The change is compared too: within the range the two errors differ by rounding.
        is_clipped = (change != clipped_change) & (clipped_error.abs() > error.detach().abs())
        error = torch.where(is_clipped, clipped_error, error)
    value_loss = 0.5 * error.square().mean()

    mean_entropy = entropy.mean()
    with torch.no_grad():
        # With expm1: near ratio 1 the difference would be lost in rounding, and could be negative.
        approx_kl = (log_ratio.expm1() - log_ratio).mean()
        clip_fraction = (ratio != clipped_ratio).float().mean()
    return PPOLosses(
        total=policy_loss + value_coef * value_loss - entropy_coef * mean_entropy,
        policy=policy_loss,
        value=value_loss,
        entropy=mean_entropy,
        approx_kl=approx_kl,
        clip_fraction=clip_fraction,
    )
