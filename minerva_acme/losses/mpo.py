"""The losses of maximum a posteriori policy optimisation (MPO).

Shapes: B batch of states, N actions (samples, or all actions), D action dimensions, K multipliers (D or 1).

Sources: [1] Abdolmaleki et al. 2018, "Maximum a posteriori policy optimisation"; [2] Abdolmaleki et
al. 2018, "Relative entropy regularized policy iteration"; [3] Abdolmaleki et al. 2020, "A
distributional view on multi-objective policy optimization".

mu, sigma belong to the online policy, mu', sigma' to the target policy. The parameters that a loss trains are
chosen here, by detaching the others:

    E-step                      -> temperature
    policy losses, KL penalty   -> online policy
    alpha loss                  -> alphas

Policies are Gaussian, discrete or any other kind that implements the protocol `distributions.Distribution`. A
discrete policy has a single part, which takes the place of the mean.
"""

import functools
import math
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from minerva_acme.distributions import Distribution
from minerva_acme.losses.shapes import axes_of, check_shapes

_NEVER = -1e4  # a logit so low that the probability is 0 next to any other action's
_NUM_NEWTON_STEPS = 8  # tests reach the bound within 1 % from all kinds of values
_LARGEST_FALL = 16.0  # the most by which log(temperature) may lie below its upper end
_SMALLEST_TEMPERATURE = 1e-30  # for values without any difference; squares of smaller ones are 0 in float32


class EStep(NamedTuple):
    """The improved, nonparametric policy over N actions."""

    weights: torch.Tensor  # [B, N]  probabilities, summing to 1 over N, without gradient
    temperature_loss: torch.Tensor  # []  its gradient flows to the temperature alone
    kl_to_prior: torch.Tensor  # []  KL(weights || prior), nats, mean over B, without gradient
    entropy: torch.Tensor  # []  entropy of the weights, nats, mean over B, without gradient


def e_step(
    q_BN: torch.Tensor, temperature: torch.Tensor, epsilon: float, log_prior_BN: torch.Tensor | None = None
) -> EStep:
    """Reweights actions towards high values, at a KL of about `epsilon` from the prior.

        w_{b,i} = softmax_i(Q_{b,i} / eta + log p_{b,i})
        L_eta   = eta (epsilon + mean_b logsumexp_i(Q_{b,i} / eta + log p_{b,i}))
                = eta (epsilon + mean_b logsumexp_i((Q_{b,i} - m_b) / eta + log p_{b,i})) + mean_b m_b

    with m_b = max_i Q_{b,i}. Actions sampled from the target policy all have the same weight, p = 1 / N.
    If all actions are given, p is the target policy; its expectations are then exact, and w is the
    improved policy itself. L_eta is the dual of max_w E_w[Q] under KL(w || p) <= epsilon: its
    derivative with respect to eta is epsilon minus that KL. It is computed in the second form because in
    the first the derivative is the difference of two terms of the size of Q / eta, which float32 loses
    completely if Q is large and differs little between actions. Source: [1] section 4.1, [2] section 4.

    Args:
        q_BN: The values of the target critic at actions of the target policy, [B, N].
        temperature: The temperature eta > 0, [].
        epsilon: The bound on the KL, nats.
        log_prior_BN: The log-probabilities log p, nats, [B, N]; None if the actions are samples. An action
            whose p is 0 in float32 gets no weight, whatever its value.

    Returns:
        An `EStep`.

    Raises:
        ValueError: A shape is wrong.
    """
    check_shapes(("q_BN", q_BN, "BN"), ("temperature", temperature, ""))
    # Q is data here: this loss trains only the temperature.
    q_BN = q_BN.detach()
    log_prior: torch.Tensor | float = -math.log(q_BN.shape[1])
    if log_prior_BN is None:
        max_q_B = q_BN.amax(dim=1)
        scaled_q_BN = (q_BN - max_q_B[:, None]) / temperature
        log_mean_exp_B = scaled_q_BN.logsumexp(dim=1) + log_prior
    else:
        check_shapes(("q_BN", q_BN, "BN"), ("log_prior_BN", log_prior_BN, "BN"))
        log_prior = log_prior_BN.detach()
        never_BN = log_prior.exp() == 0.0
        max_q_B = q_BN.masked_fill(never_BN, -torch.inf).amax(dim=1)
        scaled_q_BN = (q_BN - max_q_B[:, None]) / temperature + log_prior
        scaled_q_BN = scaled_q_BN.masked_fill(never_BN, _NEVER)
        log_mean_exp_B = scaled_q_BN.logsumexp(dim=1)
    temperature_loss = temperature * (epsilon + log_mean_exp_B.mean()) + max_q_B.mean()

    # The M-step takes the weights as given: they are its targets.
    log_weights_BN = scaled_q_BN.detach().log_softmax(dim=1)
    weights_BN = log_weights_BN.exp()
    return EStep(
        weights_BN,
        temperature_loss,
        kl_to_prior=(weights_BN * (log_weights_BN - log_prior)).sum(dim=1).mean(),
        entropy=-(weights_BN * log_weights_BN).sum(dim=1).mean(),
    )


@torch.no_grad()
def solved_temperature(
    q_BN: torch.Tensor,
    epsilon: float,
    log_prior_BN: torch.Tensor | None = None,
    combine: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> torch.Tensor:
    """Finds the temperature of `e_step` at which the KL equals its bound: the minimum of the dual on a batch.

        mean_b KL(w_b(eta) || p_b) = epsilon

    The KL falls as eta grows, and with Q multiplied by any factor, eta is multiplied by it too. So the bound
    holds in any unit of the reward and from the first batch on. A temperature that is learned by gradient
    steps of a given size needs as many steps as its distance is long. Source: [1] section 4.1, which solves
    this convex problem in each iteration.

    Newton's method on log KL as a function of log eta, which is nearly a line of slope -2 where the KL is
    small, between bounds that the iterations move closer. The upper one comes from Hoeffding's lemma:
    KL <= (max_i Q - min_i Q)^2 / (8 eta^2). The number of iterations is fixed, so that no value is read by
    the host. If no temperature reaches the bound, since too few states have values that differ, the result is
    so low that each state's best action has all the weight.

    Args:
        q_BN: The values, [B, N].
        epsilon: The bound on the KL, nats, > 0.
        log_prior_BN: The log-probabilities of the actions, as in `e_step`.
        combine: Adds up numbers of several learners, each of which has a part of the batch; None if there is
            one.

    Returns:
        The temperature, [], above 0, without gradient.

    Raises:
        ValueError: A shape is wrong.
    """
    check_shapes(("q_BN", q_BN, "BN"))
    if log_prior_BN is None:
        log_prior_BN = torch.full_like(q_BN, -math.log(q_BN.shape[1]))
    check_shapes(("q_BN", q_BN, "BN"), ("log_prior_BN", log_prior_BN, "BN"))
    never_BN = log_prior_BN.exp() == 0.0
    gap_BN = q_BN - q_BN.masked_fill(never_BN, -torch.inf).amax(dim=1, keepdim=True)  # <= 0
    gap_BN = gap_BN.masked_fill(never_BN, 0.0)

    def mean(*x_B: torch.Tensor) -> torch.Tensor:
        sums = torch.stack([torch.ones_like(x_B[0]), *x_B]).sum(dim=1)
        sums = sums if combine is None else combine(sums)
        return sums[1:] / sums[0]

    # In units of the largest gap, whose square neither overflows nor vanishes.
    unit = (-gap_BN).amax()
    unit = unit if combine is None else combine(unit)
    unit = unit.clamp(min=_SMALLEST_TEMPERATURE)
    gap_BN = gap_BN / unit
    (square,) = mean(gap_BN.amin(dim=1).square())
    high = 0.5 * torch.log((square / (8.0 * epsilon)).clamp(min=_SMALLEST_TEMPERATURE))
    low = high - _LARGEST_FALL
    log_eta = high
    for _ in range(_NUM_NEWTON_STEPS):
        scaled_BN = gap_BN * torch.exp(-log_eta)
        log_weights_BN = (scaled_BN + log_prior_BN).masked_fill(never_BN, _NEVER).log_softmax(dim=1)
        weights_BN = log_weights_BN.exp()
        kl_B = (weights_BN * (log_weights_BN - log_prior_BN)).sum(dim=1)
        mean_B = (weights_BN * scaled_BN).sum(dim=1)
        kl, variance = mean(kl_B, (weights_BN * scaled_BN.square()).sum(dim=1) - mean_B.square())
        is_above = kl > epsilon
        low, high = torch.where(is_above, log_eta, low), torch.where(is_above, high, log_eta)
        # d log KL / d log eta = -variance / KL
        newton = log_eta + (kl / epsilon).log() * kl / variance
        is_inside = (newton >= low) & (newton <= high)  # False for NaN too
        log_eta = torch.where(is_inside, newton, 0.5 * (low + high))
    return (unit * log_eta.exp()).clamp(min=_SMALLEST_TEMPERATURE)


def action_penalty_values(actions_BND: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """Computes minus the squared distance of raw actions to the box to which they are clipped.

        Q_penalty(a) = -|a - clip(a, low, high)|^2

    The values are for a separate `e_step`, whose weights are added to those for Q: the action is a second
    objective, as in [3]. Deviation: Acme's penalty is minus the distance itself. The square makes actions
    just outside the box cost almost nothing and distant ones the most. No gradient flows through the penalty:
    it only weighs the sampled actions, in units to which its own temperature adapts.

    Args:
        actions_BND: The raw samples, [B, N, D].
        low: The smallest action, [D].
        high: The largest action, [D].

    Returns:
        Values, 0 inside the box, [B, N].

    Raises:
        ValueError: A shape is wrong.
    """
    check_shapes(("actions_BND", actions_BND, "BND"), ("low", low, "D"), ("high", high, "D"))
    return -(actions_BND - actions_BND.clamp(low, high)).square().sum(dim=2)


def decoupled_policy_losses(
    weights_BN: torch.Tensor, actions_BND: torch.Tensor, online: Distribution, target: Distribution
) -> Any:
    """Fits each part of the policy to the weighted actions, with the other parts frozen.

        L_mu    = -mean_b sum_i w_{b,i} log N(a_{b,i}; mu, sigma')
        L_sigma = -mean_b sum_i w_{b,i} log N(a_{b,i}; mu', sigma)

    The parts are fitted separately, since a shrinking sigma would otherwise outpace the mean. Source: [2]
    section 4.2.2. A discrete policy has one part, fitted by the cross-entropy:
    L = -mean_b sum_a w_{b,a} log pi(a).

    Args:
        weights_BN: The weights from the E-step, [B, N].
        actions_BND: The weighted raw actions, [B, N, D], or [B, N] if they are discrete.
        online: The policy that is trained, [B].
        target: The policy from which the actions come, [B]; no gradient flows to it.

    Returns:
        A named tuple of losses, [] each: `mean`, which trains mu, and `stddev` and `discrete` if the policy
        has them.

    Raises:
        ValueError: A shape is wrong.
    """
    check_shapes(
        ("weights_BN", weights_BN, "BN"),
        ("actions_BND", actions_BND, "BND"[: max(2, actions_BND.ndim)]),
        *_policy_shapes(online, target),
    )
    parts = online.decouple(target)
    return parts._make(_weighted_negative_log_likelihood(weights_BN, actions_BND, part) for part in parts)


def decoupled_kls(online: Distribution, target: Distribution, per_dimension: bool = True) -> Any:
    """Computes how far each part of the online policy has moved from the target policy.

        KL_mu[d]    = mean_b KL(N(mu'_d, sigma'_d) || N(mu_d, sigma'_d))
        KL_sigma[d] = mean_b KL(N(mu'_d, sigma'_d) || N(mu'_d, sigma_d))

    Source: [2] section 4.2.2, per dimension as in Acme. A discrete policy has one part of one dimension, and
    a hybrid one has a third part, with one dimension for each choice.

    Args:
        online: The policy that is trained, [B].
        target: The policy from which it started, [B]; no gradient flows to it.
        per_dimension: Whether to keep the dimensions apart; False sums over D.

    Returns:
        A named tuple of KLs, nats, [K] each: `mean`, and `stddev` and `discrete` if the policy has them.

    Raises:
        ValueError: A shape is wrong.
    """
    check_shapes(*_policy_shapes(online, target))
    frozen, parts = target.detach(), online.decouple(target)
    kls = [
        before.kl_per_dimension(part).mean(dim=0)
        for before, part in zip(frozen.decouple(frozen), parts, strict=True)
    ]
    return parts._make(kls if per_dimension else (kl.sum(dim=0, keepdim=True) for kl in kls))


def kl_penalty(kls: Any, *alphas: torch.Tensor) -> torch.Tensor:
    """Computes the penalty on the online policy for its distance from the target policy.

        L_KL = sum_k alpha_mu[k] KL_mu[k] + alpha_sigma[k] KL_sigma[k]

    and likewise over the choices of a hybrid policy.

    Args:
        kls: The KLs from `decoupled_kls`, [K] each; K may differ between them.
        *alphas: The multipliers of each KL, [K], in the same order; no gradient flows to them.

    Returns:
        The loss, [].

    Raises:
        ValueError: The shapes differ: `num_dimensions` of `MPODuals` must be D if KLs are per dimension,
            else 1.
    """
    for name, kl, alpha in zip(kls._fields, kls, alphas, strict=True):
        check_shapes((f"kls.{name}", kl, "K"), (f"alpha_{name}", alpha, "K"))
    # The policy must not lower its loss through the multipliers: `alpha_loss` trains those.
    penalties = [(alpha.detach() * kl).sum() for alpha, kl in zip(alphas, kls, strict=True)]
    return functools.reduce(operator.add, penalties)


def alpha_loss(alpha: torch.Tensor, epsilon: float, kl: torch.Tensor) -> torch.Tensor:
    """Computes the loss that raises a multiplier while its KL is above the bound and lowers it below.

        L_alpha = sum_k alpha[k] (epsilon - KL[k])

    Args:
        alpha: The multipliers, [K].
        epsilon: The bound on each KL, nats.
        kl: KL(target || online), [K]; no gradient flows to it.

    Returns:
        The loss, [].

    Raises:
        ValueError: The shapes differ.
    """
    check_shapes(("alpha", alpha, "K"), ("kl", kl, "K"))
    # The KL is data here: `kl_penalty` trains the policy.
    return (alpha * (epsilon - kl.detach())).sum()


def _weighted_negative_log_likelihood(
    weights_BN: torch.Tensor, actions_BND: torch.Tensor, policy: Distribution
) -> torch.Tensor:
    log_prob_NB = policy.log_prob(actions_BND.detach().transpose(0, 1))
    return -(weights_BN.detach().T * log_prob_NB).sum(dim=0).mean()


def _policy_shapes(online: Distribution, target: Distribution) -> list[tuple[str, torch.Tensor, str]]:
    return axes_of("online", online, "BD") + axes_of("target", target, "BD")
