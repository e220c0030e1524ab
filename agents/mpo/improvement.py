"""MPO's E-step on the target networks' estimates, and the loss of its multipliers.

Shapes: B batch, N actions in each state, D action dimensions.
"""

from typing import Any, NamedTuple

import torch

from minerva_acme import learners, losses
from minerva_acme.agents.mpo.config import MPOConfig


class Improved(NamedTuple):
    """The improved, nonparametric policy, and what it trains."""

    weights: torch.Tensor  # [B, N]
    temperature_loss: torch.Tensor  # []
    metrics: learners.Metrics


def e_step(
    *,
    q_BN: torch.Tensor,
    log_prior_BN: torch.Tensor | None,
    actions_BND: torch.Tensor,
    duals: losses.MPODuals,
    config: MPOConfig,
    bounds: tuple[torch.Tensor, torch.Tensor],
) -> Improved:
    """Weighs actions by their values and, with a temperature for it, by how far they leave their bounds.

    Args:
        q_BN: values of the actions, [B, N].
        log_prior_BN: see `losses.e_step`.
        actions_BND: raw actions, [B, N, D].
        duals: with the temperatures.
        config: with the bounds of the KLs.
        bounds: smallest and largest action, [D] each.
    """
    step = losses.e_step(q_BN, duals.temperature(), config.epsilon, log_prior_BN)
    weights, temperature_loss = step.weights, step.temperature_loss
    metrics: learners.Metrics = {
        "policy/entropy_weights": step.entropy,
        "kl/q_rel": step.kl_to_prior / config.epsilon,
    }
    if duals.penalty_temperature is not None:
        penalties = losses.action_penalty_values(actions_BND, *bounds)
        penalty = losses.e_step(penalties, duals.penalty_temperature(), config.epsilon_penalty)
        weights = weights + penalty.weights
        temperature_loss = temperature_loss + penalty.temperature_loss
        metrics["kl/penalty_rel"] = penalty.kl_to_prior / config.epsilon_penalty
        metrics["policy/entropy_penalty_weights"] = penalty.entropy
    metrics["loss/temperature"] = temperature_loss.detach()
    return Improved(weights, temperature_loss, metrics)


def dual_loss(
    temperature_loss: torch.Tensor, kls: Any, duals: losses.MPODuals, config: MPOConfig
) -> tuple[torch.Tensor, learners.Metrics]:
    """The loss of the temperatures and of the multipliers of the policy's KLs, and its parts.

    Args:
        temperature_loss: of the E-step.
        kls: of `losses.decoupled_kls`.
        duals: the multipliers.
        config: with the bounds.
    """
    epsilons = {"mean": config.epsilon_mean, "stddev": config.epsilon_stddev}
    loss, metrics = temperature_loss, {}
    for name, alpha in duals.alphas().items():
        kl, epsilon = getattr(kls, name), epsilons[name]
        alpha_loss = losses.alpha_loss(alpha(), epsilon, kl)
        loss = loss + alpha_loss
        metrics[f"loss/alpha_{name}"] = alpha_loss.detach()
        metrics[f"kl/{name}_rel"] = kl.detach().mean() / epsilon
    return loss, metrics


def values_of_duals(duals: losses.MPODuals) -> learners.Metrics:
    """The multipliers, each as it is now."""
    metrics = {f"alpha/{name}": alpha().detach().mean() for name, alpha in duals.alphas().items()}
    metrics["temperature"] = duals.temperature().detach()
    if duals.penalty_temperature is not None:
        metrics["penalty_temperature"] = duals.penalty_temperature().detach()
    return metrics
