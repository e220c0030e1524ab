"""The V-MPO learner.

Shapes: n samples of a rollout, D action dimensions, K discrete actions.
"""

from typing import Any, NamedTuple

import torch

from minerva_acme import learners, losses, networks
from minerva_acme.agents import on_policy
from minerva_acme.agents.vmpo.config import VMPOConfig


class Estimates(NamedTuple):
    """A rollout with the E-step of its samples."""

    rollout: on_policy.RolloutBatch
    e_step: losses.VMPOEStep


class VMPOLearner(on_policy.RolloutLearner[VMPOConfig]):
    """A learner of on-policy maximum a posteriori policy optimisation.

    Source: Song et al. 2019, "V-MPO". Each rollout: one step of the temperature, then several times a
    step of the alphas and a step of policy and value, all on the whole rollout. Each loss trains one
    group of parameters:

        temperature loss              -> temperature
        alpha losses                  -> alphas
        weighted likelihood, KL, value -> network

    The policy's KL is penalised with the multipliers before their step. A discrete policy has one KL, bounded
    by `epsilon_mean`. Nothing is drawn: every step takes the whole rollout.
    """

    def __init__(self, *, duals: losses.VMPODuals, config: VMPOConfig, **arguments: Any) -> None:
        """Makes the learner.

        Args:
            duals: The multipliers, on the network's device.
            config: The hyperparameters.
            **arguments: The other arguments of `RolloutLearner`, with the groups `temperature` and `alphas`.
                Rollouts have the parameters of the policy, too.
        """
        self._duals = duals
        super().__init__(
            losses={"temperature": self.temperature_loss, "network": self.network_loss},
            config=config,
            extras=("log_prob", "raw_action", "parameters"),
            trains={"temperature": ["temperature"], "network": ["alphas", "network"]},
            chains=[["temperature", *["network"] * config.m_steps]],
            why_plain={"temperature": "it is part of the E-step"},
            **arguments,
        )

    def estimate(self, rollout: on_policy.RolloutBatch) -> Estimates:
        """Computes the E-step, whose loss trains the temperature."""
        config, advantage = self.config, rollout.advantage
        if config.normalize_advantages:
            advantage = losses.normalize_advantages(advantage, unbiased=False)
        e_step = losses.vmpo_e_step(
            advantages=advantage,
            temperature=self._duals.temperature(),
            epsilon=config.epsilon_temperature,
            top_k_fraction=config.top_k_fraction,
            importance_weights=rollout.weight,
        )
        return Estimates(rollout, e_step)

    def temperature_loss(
        self, nets: networks.ActorCritic, batch: learners.Batch, generator: torch.Generator | None
    ) -> learners.Loss:
        """Returns the loss of the temperature, which the E-step has computed."""
        rollout, e_step = batch.estimates
        return learners.Loss(
            e_step.temperature_loss,
            {
                "temperature": self._duals.temperature().detach(),
                "policy/effective_sample_size": e_step.effective_sample_size,
                "policy/selected_share": e_step.selected_share,
                **rollout.metrics,
                **rollout.value_metrics(),
                "advantage/min": rollout.advantage.min(),
                "advantage/max": rollout.advantage.max(),
            },
        )

    def network_loss(
        self, nets: networks.ActorCritic, batch: learners.Batch, generator: torch.Generator | None
    ) -> learners.Loss:
        """Computes the losses of policy, value and alphas, of which none trains what another one does."""
        config, duals = self.config, self._duals
        rollout, e_step = batch.estimates
        policy, value = nets.from_normalized(rollout.observation, rollout.past)
        metrics = {f"policy/{name}": value for name, value in policy.diagnostics().items()}
        kls = losses.vmpo_kls(policy, rollout.parameters, e_step.selected)
        multipliers = {
            "mean": (duals.alpha_mean(), config.epsilon_mean),
            "stddev": (duals.alpha_stddev(), config.epsilon_stddev),
        }
        alpha_loss = penalty = torch.zeros_like(e_step.temperature_loss)
        for name, kl in kls._asdict().items():
            alpha, epsilon = multipliers[name]
            alpha_loss = alpha_loss + alpha * (epsilon - kl.detach())
            penalty = penalty + alpha.detach() * kl
            metrics |= {
                f"kl/{name}_rel": kl.detach() / epsilon,
                f"alpha/{name}": alpha.detach(),
                f"loss/alpha_{name}": (alpha * (epsilon - kl)).detach(),
            }
        log_prob = policy.log_prob(rollout.raw_action) - rollout.log_det
        policy_loss = losses.vmpo_policy_loss(e_step.weights.detach(), log_prob) + penalty
        value_loss = losses.value_loss(value, rollout.target)
        metrics |= {
            "loss/policy": policy_loss.detach(),
            "loss/value": value_loss.detach(),
            "policy/entropy": policy.entropy().detach().mean(),
        }
        return learners.Loss(alpha_loss + policy_loss + value_loss, metrics)
