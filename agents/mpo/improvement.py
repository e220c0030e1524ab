"""The policy's improvement on the target networks, and the loss of MPO's multipliers.

Shapes: B batch, N actions in each state, D action dimensions, an axis that discrete actions lack.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import torch

from minerva_acme import distributions, learners, losses
from minerva_acme.agents.mpo.config import MPOConfig


class States(NamedTuple):
    """The first states of a batch's sequences, as the target networks see them; without gradient."""

    policy: distributions.Distribution  # [B]  the target policy
    actions: torch.Tensor  # [B, N, D]  raw actions drawn from it; if discrete, all K of them
    log_prior: torch.Tensor | None  # [B, N]  their log-probabilities; None for sampled actions
    q_values: torch.Tensor  # [B, N]  their values
    q_function: Callable[[torch.Tensor], torch.Tensor]
    """The target critic's values of any raw actions, [N, B, D] to [N, B], for gradients by the actions."""
    low: torch.Tensor  # [D]  smallest action; [] if actions are discrete
    high: torch.Tensor  # [D]  largest action, likewise


class Improvement(NamedTuple):
    """The losses that train the policy and the temperatures on a batch."""

    loss: Callable[[Any], torch.Tensor]
    """The loss, [], of the trained policy at the states, as a function of the `distributions.Distribution`
    [B] that the policy network returns; computed in each M-step."""
    temperature_loss: torch.Tensor | None = None  # []  trains the temperatures; None if they are not in use
    metrics: Mapping[str, Any] = {}  # for the log, without gradient


class PolicyLoss(Protocol):
    """Computes the policy's improvement. `e_step` is MPO's; another function can replace it.

    Whatever it returns, the learner bounds the policy's KL to the target policy by MPO's multipliers.
    """

    def __call__(self, states: States, duals: losses.MPODuals, config: MPOConfig) -> Improvement:
        """Returns the improvement on the first states of a batch.

        Args:
            states: The states, as the target networks see them.
            duals: The multipliers, with the temperatures.
            config: The hyperparameters.
        """


def e_step(states: States, duals: losses.MPODuals, config: MPOConfig) -> Improvement:
    """Weighs actions by their values and, with a penalty temperature, by how far they leave their bounds.

    The policy then follows the likelihood of the weighted actions, see `losses.decoupled_policy_losses`. For
    the arguments see `PolicyLoss`.
    """
    step = losses.e_step(states.q_values, duals.temperature(), config.epsilon, states.log_prior)
    weights, temperature_loss = step.weights, step.temperature_loss
    metrics: learners.Metrics = {
        "policy/entropy_weights": step.entropy,
        "kl/q_rel": step.kl_to_prior / config.epsilon,
    }
    if duals.penalty_temperature is not None:
        penalties = losses.action_penalty_values(states.actions, states.low, states.high)
        penalty = losses.e_step(penalties, duals.penalty_temperature(), config.epsilon_penalty)
        weights = weights + penalty.weights
        temperature_loss = temperature_loss + penalty.temperature_loss
        metrics["kl/penalty_rel"] = penalty.kl_to_prior / config.epsilon_penalty
        metrics["policy/entropy_penalty_weights"] = penalty.entropy
    metrics["loss/temperature"] = temperature_loss.detach()

    def loss(policy: distributions.Distribution) -> torch.Tensor:
        parts = losses.decoupled_policy_losses(weights, states.actions, policy, states.policy)
        total: torch.Tensor = sum(parts)  # the mean's and, if there is one, the standard deviation's
        return total

    return Improvement(loss, temperature_loss, metrics)


def dual_loss(
    temperature_loss: torch.Tensor | None, kls: Any, duals: losses.MPODuals, config: MPOConfig
) -> tuple[torch.Tensor, learners.Metrics]:
    """Computes the loss of the temperatures and of the multipliers of the policy's KLs, and metrics of it.

    Args:
        temperature_loss: The loss of the temperatures, [], or None if they are not in use.
        kls: The KLs that `losses.decoupled_kls` returned.
        duals: The multipliers.
        config: The hyperparameters, with the bounds.
    """
    epsilons = {"mean": config.epsilon_mean, "stddev": config.epsilon_stddev}
    parts, metrics = [] if temperature_loss is None else [temperature_loss], {}
    for name, alpha in duals.alphas().items():
        kl, epsilon = getattr(kls, name), epsilons[name]
        alpha_loss = losses.alpha_loss(alpha(), epsilon, kl)
        parts.append(alpha_loss)
        metrics[f"loss/alpha_{name}"] = alpha_loss.detach()
        metrics[f"kl/{name}_rel"] = kl.detach().mean() / epsilon
    total: torch.Tensor = sum(parts)  # type: ignore[assignment] # there is always an alpha
    return total, metrics


def values_of_alphas(duals: losses.MPODuals) -> learners.Metrics:
    """Returns the current multipliers of the KLs."""
    return {f"alpha/{name}": alpha().detach().mean() for name, alpha in duals.alphas().items()}


def values_of_temperatures(duals: losses.MPODuals) -> learners.Metrics:
    """Returns the current temperatures."""
    metrics = {"temperature": duals.temperature().detach()}
    if duals.penalty_temperature is not None:
        metrics["penalty_temperature"] = duals.penalty_temperature().detach()
    return metrics
