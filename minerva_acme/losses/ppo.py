"""The losses of proximal policy optimisation (PPO).

Shapes: n samples of a minibatch.

Source: [1] Schulman et al. 2017, "Proximal policy optimization algorithms".
"""

from typing import NamedTuple

import torch

from minerva_acme.losses.shapes import check_shapes

MIN_STDDEV = 1e-8  # advantages that are all equal become 0


class PPOLosses(NamedTuple):
    """The loss, its parts and its diagnostics; gradients flow through the first four."""

    total: torch.Tensor  # []  policy + value_coef * value - entropy_coef * entropy
    policy: torch.Tensor  # []  the clipped surrogate, to be lowered
    value: torch.Tensor  # []  half the mean squared error
    entropy: torch.Tensor  # []  the policy's, mean over n, nats
    approx_kl: torch.Tensor  # []  estimate of KL(behaviour || online), nats, never negative
    clip_fraction: torch.Tensor  # []  share of samples whose ratio is beyond the clip range


def normalize_advantages(advantages: torch.Tensor, unbiased: bool) -> torch.Tensor:
    """(A - mean A) / (std A + 1e-8) over all elements.

    Args:
        advantages: [...].
        unbiased: True divides by n - 1 (the sample's deviation, as PPO's implementations do), False
            by n (the population's).

    Returns:
        Advantages of mean 0 and deviation 1, [...]; all 0 where they were all equal.

    Raises:
        ValueError: there are too few to have a deviation.
    """
    if advantages.numel() <= int(unbiased):
        raise ValueError(
            f"`advantages` must hold more than {int(unbiased)} to be normalized, got shape "
            f"{list(advantages.shape)}. Use larger batches or leave them as they are."
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
    """The clipped surrogate, the value's error and the entropy bonus.

        rho    = exp(log pi(a | s) - log b(a | s))
        L_pi   = -mean min(rho A, clip(rho, 1 - c, 1 + c) A)
        L_V    = 1/2 mean max((V - R)^2, (V_b + clip(V - V_b, -c, c) - R)^2)
        L      = L_pi + value_coef L_V - entropy_coef mean H
        KL     = mean (rho - 1 - log rho)

    A sample teaches the policy nothing where rho has gone beyond the clip range the way that A asks for, and
    the value nothing where V has gone beyond its own and the clipped error is the larger. Such a rho may be
    infinite. Where a rho above exp(88) is not clipped (A < 0), loss and gradient are infinite and a learner
    leaves the batch out: bounded, it would have no gradient, and nobody would know.

    Source: [1] eq. 7 and 9. Deviations, as implementations have them: the value's change is clipped
    too, by the same c (without `clip_value` L_V = 1/2 mean (V - R)^2), and its error is halved.

    Args:
        log_prob: log pi(a | s) of the policy that is trained, nats, [n].
        behaviour_log_prob: log b(a | s), recorded when the action was drawn, nats, [n].
        advantages: A, normalised where that is wanted, [n].
        targets: R, what the value regresses to, [n].
        value: V(s) of the network that is trained, [n].
        behaviour_value: V_b(s), as it was before the update, [n].
        entropy: of the policy that is trained at s, nats, [n]; the agent gives that of the raw Gaussian where
            actions are squashed.
        clip_ratio: c.
        clip_value: whether the value's change is clipped.
        entropy_coef: weight of the entropy.
        value_coef: weight of the value's loss.

    Returns:
        `PPOLosses`. Gradients flow to `log_prob`, `value` and `entropy` alone.

    Raises:
        ValueError: the shapes differ.
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
    # What the rollout recorded and what was computed from it is data.
    advantages, targets = advantages.detach(), targets.detach()
    behaviour_log_prob, behaviour_value = behaviour_log_prob.detach(), behaviour_value.detach()

    log_ratio = log_prob - behaviour_log_prob
    ratio = log_ratio.detach().exp()
    clipped_ratio = ratio.clamp(1.0 - clip_ratio, 1.0 + clip_ratio)
    is_clipped = ((ratio > clipped_ratio) & (advantages >= 0.0)) | (
        (ratio < clipped_ratio) & (advantages < 0.0)
    )
    # Filled before the exponential: an infinite ratio has a gradient of nan even where its weight is 0.
    free_ratio = log_ratio.masked_fill(is_clipped, 0.0).exp()
    policy_loss = -(torch.where(is_clipped, clipped_ratio, free_ratio) * advantages).mean()

    error = value - targets
    if clip_value:
        change = value.detach() - behaviour_value
        clipped_change = change.clamp(-clip_ratio, clip_ratio)
        clipped_error = behaviour_value + clipped_change - targets
        # The change is asked too: within the range the two errors differ by rounding.
        is_clipped = (change != clipped_change) & (clipped_error.abs() > error.detach().abs())
        error = torch.where(is_clipped, clipped_error, error)
    value_loss = 0.5 * error.square().mean()

    mean_entropy = entropy.mean()
    with torch.no_grad():
        # By expm1: near ratio 1 the difference would drown in rounding, and could be negative.
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
