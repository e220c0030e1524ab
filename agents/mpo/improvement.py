"""The policy's improvement on the target networks, and the loss of MPO's multipliers.

Shapes: S states, N actions in each, D action dimensions, of hybrid actions also the choices, an axis that
discrete actions lack; K objectives, J of them rewards.
"""

import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import torch

from minerva_acme import distributions, learners, losses
from minerva_acme.agents.mpo.config import MPOConfig


class States(NamedTuple):
    """The states in which the policy is improved, as the target networks see them; without gradient.

    They are the first ones of a batch's sequences, or with `policy_loss_steps` all that happened.
    """

    policy: distributions.Distribution  # [S]  the target policy
    actions: torch.Tensor  # [S, N, D]  raw actions drawn from it; if discrete, all K of them
    log_prior: torch.Tensor | None  # [S, N]  their log-probabilities; None for sampled actions
    q_values: torch.Tensor  # [S, N]  their values; with `objectives` [S, N, K], by each of these
    q_function: Callable[[torch.Tensor], torch.Tensor]
    """The target critic's values of any raw actions, [N, S, D] to [N, S], for gradients by the actions; with
    `objectives`, the values of its rewards, [N, S, J]."""
    low: torch.Tensor  # [D]  smallest action; [] if actions are discrete
    high: torch.Tensor  # [D]  largest action, likewise
    floors: torch.Tensor | None = None  # [], with `objectives` [K]  smallest temperatures; None: no limit
    combine: Callable[[torch.Tensor], torch.Tensor] | None = None
    """Adds up numbers of all learners, each of which has its share of the states; None if there is one."""


class Improvement(NamedTuple):
    """The losses that train the policy and the temperatures on a batch."""

    loss: Callable[[Any], torch.Tensor]
    """The loss, [], of the trained policy at the states, as a function of the `distributions.Distribution`
    [S] that the policy network returns; computed in each M-step."""
    temperature_loss: torch.Tensor | None = None  # []  trains the temperatures; None if they are not in use
    metrics: Mapping[str, Any] = {}  # for the log, without gradient


class PolicyLoss(Protocol):
    """Computes the policy's improvement. `e_step` is MPO's; another function can replace it.

    Whatever it returns, the learner bounds the policy's KL to the target policy by MPO's multipliers.
    """

    def __call__(self, states: States, duals: losses.MPODuals, config: MPOConfig) -> Improvement:
        """Returns the improvement on the states of a batch.

        Args:
            states: The states, as the target networks see them.
            duals: The multipliers, with the temperatures.
            config: The hyperparameters.
        """


def e_step(states: States, duals: losses.MPODuals, config: MPOConfig) -> Improvement:
    """Weighs actions by each objective, and adds up the weights.

        q_k(a | s) = pi'(a | s) exp(Q_k(s, a) / eta_k) / Z_k(s)     with eta_k at which KL(q_k || pi') = eps_k
        max_pi sum_k E_{q_k}[log pi(a | s)]                         under the bounds on pi's KL to pi'

    The policy then follows the likelihood of the weighted actions, see `losses.decoupled_policy_losses`. For
    the arguments see `PolicyLoss`. Source: Abdolmaleki et al. 2020, "A distributional view on multi-objective
    policy optimization", algorithm 3 and equations 3 to 5; with one objective, MPO.
    """
    temperature_losses, weights, metrics = [], [], learners.Metrics()
    for name, values, learned, epsilon, floor in _objectives(states, duals, config):
        temperature = learned
        if config.temperature == "solved":
            temperature = losses.solved_temperature(values, epsilon, states.log_prior, states.combine)
            temperature = temperature if floor is None else torch.maximum(temperature, floor)
            metrics[_temperature_of(name, config)] = temperature
        step = losses.e_step(values, temperature, epsilon, states.log_prior)
        weights.append(step.weights)
        if config.temperature == "learned":
            temperature_losses.append(step.temperature_loss)
        metrics["policy/entropy_weights" if name == "q" else f"policy/entropy_{name}_weights"] = step.entropy
        metrics[f"kl/{name}_rel"] = step.kl_to_prior / epsilon
    total_weights: torch.Tensor = functools.reduce(operator.add, weights)
    temperature_loss: torch.Tensor | None = None
    if temperature_losses:
        temperature_loss = functools.reduce(operator.add, temperature_losses)
        metrics["loss/temperature"] = temperature_loss.detach()

    def loss(policy: distributions.Distribution) -> torch.Tensor:
        parts = losses.decoupled_policy_losses(total_weights, states.actions, policy, states.policy)
        total: torch.Tensor = sum(parts)  # one loss for each part of the policy
        return total

    return Improvement(loss, temperature_loss, metrics)


class _Objective(NamedTuple):
    name: str  # in metrics
    values: torch.Tensor  # [S, N]
    temperature: torch.Tensor  # []  the learned one
    epsilon: float  # nats
    floor: torch.Tensor | None  # []  the smallest temperature


def _objectives(states: States, duals: losses.MPODuals, config: MPOConfig) -> list[_Objective]:
    """Returns the objectives of the config, or the one value, and the action penalty, if any."""
    temperature, floors = duals.temperature(), states.floors
    if config.objectives:
        values, temperatures = states.q_values.unbind(dim=-1), temperature.unbind()
        own = [None] * len(values) if floors is None else floors.unbind()
        named = zip(config.objectives, values, temperatures, config.objective_epsilons, own, strict=True)
        found = [_Objective(*objective) for objective in named]
    else:
        found = [_Objective("q", states.q_values, temperature, config.epsilon, floors)]
    if duals.penalty_temperature is not None:
        penalties = losses.action_penalty_values(states.actions, states.low, states.high)
        learned = duals.penalty_temperature()
        found.append(_Objective("penalty", penalties, learned, config.epsilon_penalty, None))
    return found


def _temperature_of(objective: str, config: MPOConfig) -> str:
    """Returns the name of an objective's temperature in metrics."""
    if objective == "penalty":
        return "penalty_temperature"
    return f"temperature/{objective}" if config.objectives else "temperature"


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
    epsilons = {
        "mean": config.epsilon_mean,
        "stddev": config.epsilon_stddev,
        "discrete": config.epsilon_discrete,
    }
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


def values_of_temperatures(duals: losses.MPODuals, config: MPOConfig) -> learners.Metrics:
    """Returns the current learned temperatures, by the name of the objective if there are `objectives`."""
    temperature = duals.temperature().detach()
    by_objective = dict(zip(config.objectives or ("q",), temperature.view(-1).unbind(), strict=True))
    if duals.penalty_temperature is not None:
        by_objective["penalty"] = duals.penalty_temperature().detach()
    return {_temperature_of(name, config): value for name, value in by_objective.items()}
