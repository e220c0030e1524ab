"""The losses of on-policy maximum a posteriori policy optimisation (V-MPO).

Shapes: n samples of a rollout, D action dimensions, K discrete actions.

Source: [1] Song et al. 2020, "V-MPO: On-policy maximum a posteriori policy optimization for discrete
and continuous control".

mu, sigma belong to the online policy, mu_b, sigma_b to the behaviour policy that collected the rollout. The
parameters that a loss trains are chosen here, by detaching the others:

    E-step              -> temperature
    policy loss, KLs    -> online policy
    value loss          -> value

`mpo.alpha_loss` trains the multipliers of the KLs.
"""

import math
from typing import Any, NamedTuple

import torch

from minerva_acme.distributions import DiagonalGaussian, Distribution
from minerva_acme.losses.shapes import axes_of, check_shapes

_TINY = 1e-8  # added to sums of weights and to variances, so that no divisor is 0


class VMPOEStep(NamedTuple):
    """The improved, nonparametric policy over the samples."""

    weights: torch.Tensor  # [n]  psi, summing to 1, 0 if not selected; without gradient
    selected: torch.Tensor  # [n]  1 for the samples of the top k, else 0
    temperature_loss: torch.Tensor  # []  its gradient flows to the temperature alone
    effective_sample_size: torch.Tensor  # []  1 / sum psi^2, without gradient
    selected_share: torch.Tensor  # []  mean of `selected`


def vmpo_e_step(
    *,
    advantages: torch.Tensor,
    temperature: torch.Tensor,
    epsilon: float,
    top_k_fraction: float,
    restarting_weights: torch.Tensor | None = None,
    importance_weights: torch.Tensor | None = None,
) -> VMPOEStep:
    """Weighs the samples of the largest advantages, at a KL of about `epsilon` from uniform weights.

        s     = restart A / eta
        m     = restart for the k largest s among restart > 0, else 0;  k = floor(top_k_fraction n)
        psi~  = m importance exp(s - max s)
        psi   = psi~ / (sum psi~ + 1e-8)
        L_eta = eta (epsilon + log(sum psi~ + 1e-8) + max s - log(sum m + 1e-8))

    eta (max s) is max (restart A), a constant: in this form the derivative with respect to eta stays precise
    if advantages are large and differ little.

    Source: [1], E-step and temperature loss over the top half of the advantages, here over any share.
    Deviations: weights for samples that may not count (restarting) or come from an older policy
    (importance). If no sample has restart > 0, all are selected with weight 0.

    Args:
        advantages: The advantages A, already normalised if that is wanted, [n]; no gradient flows to them.
        temperature: The temperature eta > 0, [].
        epsilon: The bound on the KL, nats.
        top_k_fraction: The share of the samples to select, in (0, 1].
        restarting_weights: Weights in [0, 1], where 0 leaves a sample out, [n]; None is 1 for all.
        importance_weights: Corrections for samples of an older policy, > 0, [n]; None is 1 for all.

    Returns:
        A `VMPOEStep`.

    Raises:
        ValueError: A shape is wrong, or k is not in 1..n.
    """
    check_shapes(("advantages", advantages, "n"), ("temperature", temperature, ""))
    restart = torch.ones_like(advantages) if restarting_weights is None else restarting_weights.detach()
    importance = torch.ones_like(advantages) if importance_weights is None else importance_weights.detach()
    check_shapes(
        ("advantages", advantages, "n"),
        ("restarting_weights", restart, "n"),
        ("importance_weights", importance, "n"),
    )
    num_samples = advantages.shape[0]
    k = math.floor(top_k_fraction * num_samples)
    if not 1 <= k <= num_samples:
        raise ValueError(
            f"`top_k_fraction` must select 1 to n samples, got {top_k_fraction} of n = {num_samples}. "
            "Use a value in (0, 1]; if it selects no sample, use longer rollouts or a larger value."
        )

    # Advantages are data here: this loss trains only the temperature.
    scores = restart * advantages.detach()  # s eta
    candidates = scores.masked_fill(restart <= 0.0, -torch.inf)
    top = torch.zeros_like(restart).index_fill(0, candidates.topk(k).indices, 1.0)
    selected = torch.where(restart > 0.0, top, 0.0)
    selected = torch.where(selected.any(), selected, 1.0)

    m = selected * restart
    max_score = scores.masked_fill(selected == 0.0, -torch.inf).max()
    # Samples that are left out must not reach the exponential: they may exceed all selected ones.
    s_less_max = torch.where(selected > 0.0, scores - max_score, 0.0) / temperature
    unnormalized = m * importance * s_less_max.exp()
    total = unnormalized.sum() + _TINY
    temperature_loss = temperature * (epsilon + total.log() - (m.sum() + _TINY).log()) + max_score

    # The M-step takes the weights as given: they are its targets.
    weights = (unnormalized / total).detach()
    sum_squares = weights.square().sum().clamp(min=torch.finfo(weights.dtype).tiny)
    return VMPOEStep(
        weights=weights,
        selected=selected,
        temperature_loss=temperature_loss,
        effective_sample_size=weights.sum().square() / sum_squares,
        selected_share=selected.mean(),
    )


def vmpo_policy_loss(weights: torch.Tensor, log_prob: torch.Tensor) -> torch.Tensor:
    """Fits the policy to the weighted samples.

        L_pi = -sum psi log pi(a | s)

    Source: [1], the policy loss of the M-step.

    Args:
        weights: The weights psi from the E-step, [n]; no gradient flows to them.
        log_prob: The log-probability log pi(a | s) of the online policy, nats, [n].

    Returns:
        The loss, [].

    Raises:
        ValueError: The shapes differ.
    """
    check_shapes(("weights", weights, "n"), ("log_prob", log_prob, "n"))
    return -(weights.detach() * log_prob).sum()


def vmpo_kls(online: Distribution, behaviour: Distribution, selected: torch.Tensor) -> Any:
    """Computes how far each part of the online policy has moved from the behaviour policy.

    The parts of a Gaussian are its mean and its standard deviation:

        KL_mu    = mean_selected sum_d (mu - mu_b)^2 / (2 sigma_b^2 + 1e-8)
        KL_sigma = mean_selected 1/2 sum_d (sigma_b^2 / sigma^2 - 1 + 2 (log sigma - log sigma_b))

    A discrete policy has one part:

        KL = mean_selected sum_a pi_b(a | s) (log pi_b(a | s) - log pi(a | s))

    Source: [1], the M-step. Deviation: means over the selected samples, where [1] uses all. For a squashed
    Gaussian these are the KLs of the actions too, since an invertible map does not change a KL.

    Args:
        online: The policy that is trained, [n].
        behaviour: The policy from which the samples come, [n]; no gradient flows to it.
        selected: 1 for the samples that count, at least one, else 0, [n].

    Returns:
        A named tuple of KLs, nats, [] each: `mean`, and `stddev` if the policy has one.

    Raises:
        ValueError: A shape is wrong.
    """
    check_shapes(*axes_of("online", online, "nD"), *axes_of("behaviour", behaviour, "nD"))
    frozen = behaviour.detach()
    parts = online.decouple(frozen)
    kls = parts._make(frozen.kl(part) for part in parts)
    if isinstance(frozen, DiagonalGaussian):
        # The 1e-8 comes from the reference implementation.
        kl_mean = (parts.mean.mean - frozen.mean).square() / (2.0 * (2.0 * frozen.log_std).exp() + _TINY)
        kls = kls._replace(mean=kl_mean.sum(dim=1))
    check_shapes(("kls.mean", kls.mean, "n"), ("selected", selected, "n"))
    return parts._make((selected * kl).sum() / selected.sum() for kl in kls)


def value_loss(value: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Computes half the mean squared error of the values.

        L_V = 1/2 mean (V - R)^2

    Args:
        value: V of the network that is trained, [n].
        target: The regression targets R, [n]; no gradient flows to them.

    Returns:
        The loss, [].

    Raises:
        ValueError: The shapes differ.
    """
    check_shapes(("value", value, "n"), ("target", target, "n"))
    return 0.5 * (value - target.detach()).square().mean()
