"""The V-MPO learner.

Shapes: n samples of a rollout, D action dimensions, K discrete actions.
"""

import math
from typing import Any

import torch
from torch import nn

from minerva_acme import learners, losses
from minerva_acme.agents import on_policy
from minerva_acme.agents.vmpo.config import VMPOConfig


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

    def __init__(
        self,
        *,
        duals: losses.VMPODuals,
        config: VMPOConfig,
        make_optimizer: learners.OptimizerFactory,
        **parts: Any,
    ) -> None:
        """Makes the learner.

        Args:
            duals: The multipliers, on the network's device.
            config: The hyperparameters.
            make_optimizer: Makes the optimisers of `network`, `temperature` and `alphas`.
            **parts: The other arguments of `RolloutLearner`. Rollouts have the parameters of the policy, too.
        """
        alphas = nn.ModuleList([duals.alpha_mean, duals.alpha_stddev])
        super().__init__(
            config=config,
            make_optimizer=make_optimizer,
            extras=("log_prob", "raw_action", "parameters"),
            modules={"duals": duals},
            groups={
                name: learners.Group(
                    make_optimizer(name, [{"params": [*module.parameters()], "lr": rate}]), max_norm=math.inf
                )
                for name, module, rate in (
                    ("temperature", duals.temperature, config.temperature_learning_rate),
                    ("alphas", alphas, config.alpha_learning_rate),
                )
            },
            **parts,
        )
        self.acceleration.leaves_losses_plain("V-MPO's losses")
        self._duals = duals

    def improve(self, batch: on_policy.RolloutBatch) -> learners.Metrics:
        """Makes a step of the temperature, then `m_steps` of the alphas, policy and value."""
        e_step, e_metrics = self._improve_temperature(batch)
        for _ in range(self.config.m_steps):
            m_metrics = self._improve_policy_and_value(batch, e_step)
        return e_metrics | m_metrics

    def _improve_temperature(
        self, batch: on_policy.RolloutBatch
    ) -> tuple[losses.VMPOEStep, learners.Metrics]:
        config, temperature = self.config, self._duals.temperature()
        advantage = batch.advantage
        if config.normalize_advantages:
            advantage = losses.normalize_advantages(advantage, unbiased=False)
        e_step = losses.vmpo_e_step(
            advantages=advantage,
            temperature=temperature,
            epsilon=config.epsilon_temperature,
            top_k_fraction=config.top_k_fraction,
            importance_weights=batch.weight,
        )
        self.updates.minimise("temperature", e_step.temperature_loss)
        return e_step, {
            "loss/temperature": e_step.temperature_loss.detach(),
            "temperature": temperature.detach(),
            "policy/effective_sample_size": e_step.effective_sample_size,
            "policy/selected_share": e_step.selected_share,
            **batch.value_metrics(),
            "advantage/min": batch.advantage.min(),
            "advantage/max": batch.advantage.max(),
        }

    def _improve_policy_and_value(
        self, batch: on_policy.RolloutBatch, e_step: losses.VMPOEStep
    ) -> learners.Metrics:
        config, duals = self.config, self._duals
        policy, value = self.network.from_normalized(batch.observation, batch.past)
        metrics = {f"policy/{name}": value for name, value in policy.diagnostics().items()}
        kls = losses.vmpo_kls(policy, batch.parameters, e_step.selected)
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
        log_prob = policy.log_prob(batch.raw_action) - batch.log_det
        policy_loss = losses.vmpo_policy_loss(e_step.weights, log_prob) + penalty
        value_loss = losses.value_loss(value, batch.target)
        self.updates.minimise("alphas", alpha_loss)
        grad_norm = self.updates.minimise("network", policy_loss + value_loss)
        return metrics | {
            "loss/policy": policy_loss.detach(),
            "loss/value": value_loss.detach(),
            "policy/entropy": policy.entropy().detach().mean(),
            "grad_norm": grad_norm,
        }
