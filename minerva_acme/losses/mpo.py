"""The losses of maximum a posteriori policy optimisation (MPO).

Shapes: B batch of states, N sampled actions, D action dimensions, K multipliers (D or 1).

Sources: [1] Abdolmaleki et al. 2018, "Maximum a posteriori policy optimisation"; [2] Abdolmaleki et
al. 2018, "Relative entropy regularized policy iteration"; [3] Abdolmaleki et al. 2020, "A
distributional view on multi-objective policy optimization".

mu, sigma are the online policy's, mu', sigma' the target policy's. Which parameters a loss trains is
decided here, by what is detached:

    E-step                      -> temperature
    policy losses, KL penalty   -> online policy
    alpha loss                  -> alphas
"""

import math
from typing import NamedTuple

import torch

from minerva_acme.distributions import DiagonalGaussian
from minerva_acme.losses.shapes import check_shapes


class EStep(NamedTuple):
    """The improved, nonparametric policy over the sampled actions."""

    weights: torch.Tensor  # [B, N]  probabilities, summing to 1 over N, without gradient
    temperature_loss: torch.Tensor  # []  its gradient flows to the temperature alone
    kl_to_uniform: torch.Tensor  # []  KL(weights || uniform), nats, mean over B, without gradient


class PolicyLosses(NamedTuple):
    """Weighted negative log-likelihoods of the sampled actions."""

    mean: torch.Tensor  # []  trains mu
    stddev: torch.Tensor  # []  trains sigma


class DecoupledKLs(NamedTuple):
    """KL(target || online), mean over the batch, of a change of mu alone and of sigma alone."""

    mean: torch.Tensor  # [K]  nats
    stddev: torch.Tensor  # [K]  nats


def e_step(q_BN: torch.Tensor, temperature: torch.Tensor, epsilon: float) -> EStep:
    """Reweights sampled actions towards those of high value, a KL of about `epsilon` away.

        w_{b,i} = softmax_i(Q_{b,i} / eta)
        L_eta   = eta (epsilon + mean_b logsumexp_i(Q_{b,i} / eta) - log N)
                = eta (epsilon + mean_b logsumexp_i((Q_{b,i} - m_b) / eta) - log N) + mean_b m_b

    with m_b = max_i Q_{b,i}. L_eta is the dual of max_w E_w[Q] under KL(w || uniform) <= epsilon: its
    derivative by eta is epsilon less that KL. It is computed in the second form, since in the first the
    derivative is the difference of two terms of the size of Q / eta: in float32 nothing is left of it
    where Q is large and differs little between actions. Source: [1] section 4.1, [2] section 4.

    Args:
        q_BN: the target critic at actions sampled from the target policy, [B, N].
        temperature: eta > 0, [].
        epsilon: bound on the KL, nats.

    Returns:
        An `EStep`.

    Raises:
        ValueError: a shape is wrong.
    """
    check_shapes(("q_BN", q_BN, "BN"), ("temperature", temperature, ""))
    # Q is data here: only the temperature is trained by this loss.
    q_BN = q_BN.detach()
    max_q_B = q_BN.amax(dim=1)
    scaled_q_BN = (q_BN - max_q_B[:, None]) / temperature
    log_num_actions = math.log(q_BN.shape[1])
    log_mean_exp_B = scaled_q_BN.logsumexp(dim=1) - log_num_actions
    temperature_loss = temperature * (epsilon + log_mean_exp_B.mean()) + max_q_B.mean()

    # The M-step takes the weights as given: they are its targets.
    log_weights_BN = scaled_q_BN.detach().log_softmax(dim=1)
    weights_BN = log_weights_BN.exp()
    kl_to_uniform_B = (weights_BN * (log_weights_BN + log_num_actions)).sum(dim=1)
    return EStep(weights_BN, temperature_loss, kl_to_uniform_B.mean())


def action_penalty_values(actions_BND: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """Minus the squared distance of raw actions to the box they are clipped to.

        Q_penalty(a) = -|a - clip(a, low, high)|^2

    For an `e_step` of its own, whose weights are added to the values': the action is a second objective, as
    in [3]. Deviation: Acme's penalty is minus the distance itself. Squared, what is barely outside costs
    next to nothing and what is far outside the most. No gradient flows through the penalty: it only weighs
    the sampled actions, in units that its own temperature follows.

    Args:
        actions_BND: raw samples, [B, N, D].
        low: smallest action, [D].
        high: largest action, [D].

    Returns:
        Values, 0 inside the box, [B, N].

    Raises:
        ValueError: a shape is wrong.
    """
    check_shapes(("actions_BND", actions_BND, "BND"), ("low", low, "D"), ("high", high, "D"))
    return -(actions_BND - actions_BND.clamp(low, high)).square().sum(dim=2)


def decoupled_policy_losses(
    weights_BN: torch.Tensor,
    actions_BND: torch.Tensor,
    online: DiagonalGaussian,
    target: DiagonalGaussian,
) -> PolicyLosses:
    """Fits mean and standard deviation to the weighted actions, each with the other one frozen.

        L_mu    = -mean_b sum_i w_{b,i} log N(a_{b,i}; mu, sigma')
        L_sigma = -mean_b sum_i w_{b,i} log N(a_{b,i}; mu', sigma)

    Apart, since a shrinking sigma would otherwise outpace the mean. Source: [2] section 4.2.2.

    Args:
        weights_BN: of the E-step, [B, N].
        actions_BND: the raw actions they weigh, [B, N, D].
        online: the policy that is trained, [B, D].
        target: the policy the actions are from, [B, D]; no gradient flows to it.

    Returns:
        `PolicyLosses`.

    Raises:
        ValueError: a shape is wrong.
    """
    check_shapes(
        ("weights_BN", weights_BN, "BN"),
        ("actions_BND", actions_BND, "BND"),
        *_policy_shapes(online, target),
    )
    new_mean, new_stddev = _decouple(online, target)
    return PolicyLosses(
        mean=_weighted_negative_log_likelihood(weights_BN, actions_BND, new_mean),
        stddev=_weighted_negative_log_likelihood(weights_BN, actions_BND, new_stddev),
    )


def decoupled_kls(
    online: DiagonalGaussian, target: DiagonalGaussian, per_dimension: bool = True
) -> DecoupledKLs:
    """How far the online policy's mean and standard deviation have moved from the target's.

        KL_mu[d]    = mean_b KL(N(mu'_d, sigma'_d) || N(mu_d, sigma'_d))
        KL_sigma[d] = mean_b KL(N(mu'_d, sigma'_d) || N(mu'_d, sigma_d))

    Source: [2] section 4.2.2, per dimension as in Acme.

    Args:
        online: the policy that is trained, [B, D].
        target: the policy it started from, [B, D]; no gradient flows to it.
        per_dimension: False sums over D.

    Returns:
        `DecoupledKLs`, [D] each, or [1] for sums.

    Raises:
        ValueError: a shape is wrong.
    """
    check_shapes(*_policy_shapes(online, target))
    frozen = DiagonalGaussian(target.mean.detach(), target.log_std.detach())
    kls = DecoupledKLs(*(frozen.kl_per_dimension(new).mean(dim=0) for new in _decouple(online, target)))
    return kls if per_dimension else DecoupledKLs(*(kl.sum(dim=0, keepdim=True) for kl in kls))


def kl_penalty(kls: DecoupledKLs, alpha_mean: torch.Tensor, alpha_stddev: torch.Tensor) -> torch.Tensor:
    """What the online policy pays for its distance to the target.

        L_KL = sum_k alpha_mu[k] KL_mu[k] + alpha_sigma[k] KL_sigma[k]

    Args:
        kls: [K] each.
        alpha_mean: multipliers of the mean's KL, [K]; no gradient flows to them.
        alpha_stddev: multipliers of the standard deviation's KL, [K]; nor to these.

    Returns:
        The loss, [].

    Raises:
        ValueError: the shapes differ: MPODuals' `num_dimensions` must be D where KLs are per
            dimension, else 1.
    """
    check_shapes(
        ("kls.mean", kls.mean, "K"),
        ("kls.stddev", kls.stddev, "K"),
        ("alpha_mean", alpha_mean, "K"),
        ("alpha_stddev", alpha_stddev, "K"),
    )
    # The policy must not lower its loss by way of the multipliers: `alpha_loss` trains those.
    return (alpha_mean.detach() * kls.mean + alpha_stddev.detach() * kls.stddev).sum()


def alpha_loss(alpha: torch.Tensor, epsilon: float, kl: torch.Tensor) -> torch.Tensor:
    """Raises a multiplier while its KL is above the bound and lowers it below.

        L_alpha = sum_k alpha[k] (epsilon - KL[k])

    Args:
        alpha: multipliers, [K].
        epsilon: bound on each KL, nats.
        kl: KL(target || online), [K]; no gradient flows to it.

    Returns:
        The loss, [].

    Raises:
        ValueError: the shapes differ.
    """
    check_shapes(("alpha", alpha, "K"), ("kl", kl, "K"))
    # The KL is data here: the policy is trained by `kl_penalty`.
    return (alpha * (epsilon - kl.detach())).sum()


def _decouple(
    online: DiagonalGaussian, target: DiagonalGaussian
) -> tuple[DiagonalGaussian, DiagonalGaussian]:
    """(online mean with the target's log-std, the target's mean with online log-std), [B, D]."""
    return (
        DiagonalGaussian(online.mean, target.log_std.detach()),
        DiagonalGaussian(target.mean.detach(), online.log_std),
    )


def _weighted_negative_log_likelihood(
    weights_BN: torch.Tensor, actions_BND: torch.Tensor, policy: DiagonalGaussian
) -> torch.Tensor:
    log_prob_NB = policy.log_prob(actions_BND.detach().transpose(0, 1))
    return -(weights_BN.detach().T * log_prob_NB).sum(dim=0).mean()


def _policy_shapes(
    online: DiagonalGaussian, target: DiagonalGaussian
) -> tuple[tuple[str, torch.Tensor, str], ...]:
    return (
        ("online.mean", online.mean, "BD"),
        ("online.log_std", online.log_std, "BD"),
        ("target.mean", target.mean, "BD"),
        ("target.log_std", target.log_std, "BD"),
    )
