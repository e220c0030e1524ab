"""The losses of proximal policy optimisation (PPO).

Shapes: n samples of a minibatch.

Source: [1] Schulman et al. 2017, "Proximal policy optimization algorithms".
"""

import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from minerva_acme.losses.shapes import check_shapes

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

_MIN_STDDEV = 1e-8  # advantages that are all equal become 0


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
    # Together: this mean of equal numbers is exact, which a sum over n is not.
    stddev, mean = torch.std_mean(advantages, correction=int(unbiased))
    return (advantages - mean) / (stddev + _MIN_STDDEV)


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

    Source: [1] eq. 7 and 9. Deviations, as implementations have them: the value's change is clipped
    too, by the same c (without `clip_value` L_V = 1/2 mean (V - R)^2), and its error is halved.

    Args:
        log_prob: log pi(a | s) of the policy that is trained, nats, [n].
        behaviour_log_prob: log b(a | s), recorded when the action was drawn, nats, [n].
        advantages: A, normalised where that is wanted, [n].
        targets: R, what the value regresses to, [n].
        value: V(s) of the network that is trained, [n].
        behaviour_value: V_b(s), as it was before the update, [n].
        entropy: of the policy that is trained at s, nats, [n].
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
    ratio = log_ratio.exp()
    clipped_ratio = ratio.clamp(1.0 - clip_ratio, 1.0 + clip_ratio)
    policy_loss = -torch.minimum(ratio * advantages, clipped_ratio * advantages).mean()

    squared_error = (value - targets).square()
    if clip_value:
        clipped_value = behaviour_value + (value - behaviour_value).clamp(-clip_ratio, clip_ratio)
        squared_error = torch.maximum(squared_error, (clipped_value - targets).square())
    value_loss = 0.5 * squared_error.mean()

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


class PPOGradients(NamedTuple):
    """The loss of a minibatch, and its derivatives by what is trained, on arrays."""

    losses: tuple[float, ...]  # in the order of `PPOLosses`
    log_prob: Array  # [n]
    value: Array  # [n]
    entropy: float  # by the entropy of each sample, the same for all


def ppo_gradients(
    *,
    log_prob: Array,
    behaviour_log_prob: Array,
    advantages: Array,
    targets: Array,
    value: Array,
    behaviour_value: Array,
    entropy: Array,
    clip_ratio: float,
    clip_value: bool,
    entropy_coef: float,
    value_coef: float,
) -> PPOGradients:
    """`ppo_loss` on arrays, with the derivatives that autograd finds, for minibatches of a few samples.

        dL / d log pi = -rho A / n, 0 where the clipped surrogate is the smaller
        dL / dV       = value_coef (V - R) / n, 0 where the clipped error is the larger
        dL / dH       = -entropy_coef / n

    Args and what they mean: as those of `ppo_loss`, float32 [n]; shapes are not checked.
    """
    n = len(log_prob)
    log_ratio = log_prob - behaviour_log_prob
    ratio = np.exp(log_ratio)
    clipped_ratio = np.minimum(np.maximum(ratio, 1.0 - clip_ratio), 1.0 + clip_ratio)
    surrogate = ratio * advantages
    clipped_surrogate = clipped_ratio * advantages
    d_log_prob = surrogate * (surrogate <= clipped_surrogate)
    d_log_prob *= -1.0 / n

    d_value = value - targets
    squared_error = d_value * d_value
    if clip_value:
        change = value - behaviour_value
        clipped_change = np.minimum(np.maximum(change, -clip_ratio), clip_ratio)
        clipped_error = behaviour_value + clipped_change
        clipped_error -= targets
        clipped_error *= clipped_error
        d_value *= (change == clipped_change) | (squared_error >= clipped_error)
        squared_error = np.maximum(squared_error, clipped_error)
    d_value *= value_coef / n

    policy_loss = -_mean(np.minimum(surrogate, clipped_surrogate))
    value_loss = 0.5 * _mean(squared_error)
    mean_entropy = _mean(entropy)
    return PPOGradients(
        losses=(
            policy_loss + value_coef * value_loss - entropy_coef * mean_entropy,
            policy_loss,
            value_loss,
            mean_entropy,
            _mean(np.expm1(log_ratio) - log_ratio),
            np.count_nonzero(ratio != clipped_ratio) / n,
        ),
        log_prob=d_log_prob,
        value=d_value,
        entropy=-entropy_coef / n,
    )


def normalize_advantage_array(advantages: Array) -> Array:
    """`normalize_advantages` of an array [n], by the sample's deviation (n - 1)."""
    # Summed in double precision the mean of equal numbers is exact.
    mean = np.add.reduce(advantages, dtype=np.float64) / len(advantages)
    centred = advantages - np.float32(mean)
    stddev = math.sqrt(float(centred.dot(centred)) / (len(centred) - 1))
    centred *= 1.0 / (stddev + _MIN_STDDEV)
    return centred


def _mean(x: Array) -> float:
    # Array.mean takes several times as long for a few numbers.
    return float(np.add.reduce(x)) / len(x)
