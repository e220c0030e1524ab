"""The V-MPO learner.

Shapes: n samples of a rollout, D action dimensions, K discrete actions.
"""

import copy
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from minerva_acme import core, counting, distributions, learners, loggers, losses, networks, types
from minerva_acme.agents import on_policy
from minerva_acme.agents.vmpo import config as vmpo_config

Metrics = dict[str, Any]


class VMPODuals(nn.Module):
    """The multipliers of the E-step's bound (temperature) and of the M-step's bounds (alphas)."""

    def __init__(self, *, init_temperature: float, init_alpha: float) -> None:
        """Makes the parameters, from their first positive values."""
        super().__init__()
        self.temperature = losses.DualVariable((), _inverse_softplus(init_temperature))
        self.alpha_mean = losses.DualVariable((), _inverse_softplus(init_alpha))
        self.alpha_stddev = losses.DualVariable((), _inverse_softplus(init_alpha))


class VMPOLearner(core.Learner):
    """On-policy maximum a posteriori policy optimisation.

    Source: Song et al. 2019, "V-MPO". Each rollout: one step of the temperature, then a few times a
    step of the alphas and one of policy and value, all on the whole rollout. Each loss trains one
    group of parameters:

        temperature loss              -> temperature
        alpha losses                  -> alphas
        weighted likelihood, KL, value -> network

    The policy pays for its KL by the multipliers before their step. A discrete policy has one KL, bounded by
    `epsilon_mean`.

    Variables: `network`, a dict of arrays, the observation statistics among them.
    """

    def __init__(
        self,
        *,
        network: networks.ActorCritic,
        duals: VMPODuals,
        dataset: Iterator[Any],
        evaluator: on_policy.RolloutEvaluator,
        config: vmpo_config.VMPOConfig,
        num_updates: int | None,
        counter: counting.Counter,
        logger: loggers.Logger,
    ) -> None:
        """Takes over the parts.

        Args:
            network: trained in place.
            duals: the multipliers, on the network's device.
            dataset: yields samples whose `data` is a `Rollout` on the network's device, extras being
                `BehaviourExtras` with the policy's parameters.
            evaluator: values rollouts with this network.
            config: hyperparameters.
            num_updates: learner steps of the whole run, over which the learning rate is annealed, if it
                is; None: it stays.
            counter: counts `steps` and `walltime`.
            logger: receives a row of diagnostics a step.
        """
        self._network = network
        self._duals = duals

        def adam(parameters: Any, learning_rate: float) -> torch.optim.Adam:
            return torch.optim.Adam(parameters, lr=learning_rate, eps=config.adam_epsilon, fused=True)

        self._optimizers = {
            "network": adam(network.parameters(), config.learning_rate),
            "temperature": adam(duals.temperature.parameters(), config.temperature_learning_rate),
            "alphas": adam(
                [*duals.alpha_mean.parameters(), *duals.alpha_stddev.parameters()],
                config.alpha_learning_rate,
            ),
        }
        self._dataset = dataset
        self._evaluator = evaluator
        self._config = config
        self._num_updates = num_updates
        self._log = learners.StepLog(counter, logger)
        self._skipped = learners.SkippedBatches(config.max_skipped_batches)
        self._num_steps = 0

    def step(self) -> None:
        """Learns from one rollout."""
        rollout = learners.next_batch(self._dataset, types.Rollout, "RolloutLayout")
        learning_rate = on_policy.anneal_learning_rate(
            self._optimizers["network"], self._config, self._num_steps, self._num_updates
        )
        metrics: Metrics = {}
        try:
            batch = self._evaluator.evaluate(rollout)
            e_step, metrics = self._update_temperature(batch)
            for _ in range(self._config.m_steps):
                m_metrics = self._m_step(batch, e_step)
            metrics |= m_metrics
            self._evaluator.update_observation_statistics(rollout)
            self._skipped.used()
        except learners.NonFinite as error:
            metrics = {}
            self._skipped.skipped(self._num_steps, error)
        self._num_steps += 1
        self._log.write({**metrics, "learning_rate": learning_rate, "skipped_batches": self._skipped.total})

    def _update_temperature(self, batch: on_policy.RolloutBatch) -> tuple[losses.VMPOEStep, Metrics]:
        config, temperature = self._config, self._duals.temperature()
        advantage = batch.advantage
        if config.normalize_advantages:
            advantage = losses.normalize_advantages(advantage, unbiased=False)
        e_step = losses.vmpo_e_step(
            advantages=advantage,
            temperature=temperature,
            epsilon=config.epsilon_temperature,
            top_k_fraction=config.top_k_fraction,
        )
        self._minimise("temperature", e_step.temperature_loss, math.inf)
        return e_step, {
            "loss/temperature": e_step.temperature_loss.detach(),
            "temperature": temperature.detach(),
            "policy/effective_sample_size": e_step.effective_sample_size,
            "policy/selected_share": e_step.selected_share,
            "value/explained_variance": losses.explained_variance(batch.value, batch.target),
            "value/mean": batch.value.mean(),
            "value/target_mean": batch.target.mean(),
            "advantage/min": batch.advantage.min(),
            "advantage/max": batch.advantage.max(),
        }

    def _m_step(self, batch: on_policy.RolloutBatch, e_step: losses.VMPOEStep) -> Metrics:
        config, duals = self._config, self._duals
        policy, value = self._network.from_normalized(batch.observation)
        metrics: Metrics = {}
        if isinstance(policy, distributions.Categorical):
            kl = losses.categorical_kl(batch.parameters.logits, policy.logits, e_step.selected)
            kls = {"mean": (kl, duals.alpha_mean(), config.epsilon_mean)}
        else:
            parts = losses.vmpo_kls(policy, batch.parameters, e_step.selected)
            kls = {
                "mean": (parts.mean, duals.alpha_mean(), config.epsilon_mean),
                "stddev": (parts.stddev, duals.alpha_stddev(), config.epsilon_stddev),
            }
            stddev = policy.log_std.detach().exp()
            metrics |= {"policy/stddev_min": stddev.min(), "policy/stddev_max": stddev.max()}
        alpha_loss = penalty = torch.zeros_like(e_step.temperature_loss)
        for name, (kl, alpha, epsilon) in kls.items():
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
        self._minimise("alphas", alpha_loss, math.inf)
        grad_norm = self._minimise("network", policy_loss + value_loss, config.max_grad_norm)
        return metrics | {
            "loss/policy": policy_loss.detach(),
            "loss/value": value_loss.detach(),
            "policy/entropy": policy.entropy().detach().mean(),
            "grad_norm": grad_norm,
        }

    def _minimise(self, name: str, loss: torch.Tensor, max_norm: float) -> torch.Tensor:
        """One gradient step of a group, clipped by global norm; returns the norm before clipping."""
        optimizer = self._optimizers[name]
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        norm = nn.utils.clip_grad_norm_(parameters, max_norm)
        learners.check_finite(f"gradients of the {name}", norm)
        optimizer.step()
        return norm

    def get_variables(self, names: Sequence[str]) -> list[types.NestedArray]:
        return learners.variables_of({"network": self._network}, names)

    def poll_variables(
        self, names: Sequence[str], newer_than: int | None = None
    ) -> core.VersionedVariables | None:
        if newer_than == self._num_steps:
            return None
        return core.VersionedVariables(self._num_steps, self.get_variables(names))

    def save(self) -> core.State:
        return copy.deepcopy(
            {
                "network": self._network.state_dict(),
                "duals": self._duals.state_dict(),
                "optimizers": {name: adam.state_dict() for name, adam in self._optimizers.items()},
                "evaluator": self._evaluator.save(),
                "skipped": self._skipped.save(),
                "num_steps": self._num_steps,
            }
        )

    def restore(self, state: core.State) -> None:
        self._network.load_state_dict(state["network"])
        self._duals.load_state_dict(state["duals"])
        for name, adam in self._optimizers.items():
            adam.load_state_dict(state["optimizers"][name])
        self._evaluator.restore(state["evaluator"])
        self._skipped.restore(state["skipped"])
        self._num_steps = state["num_steps"]


def _inverse_softplus(value: float) -> float:
    return value + math.log(-math.expm1(-value))
