"""The V-MPO learner.

Shapes: n samples of a rollout, D action dimensions, K discrete actions.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from minerva_acme import acceleration, counting, learners, loggers, losses, networks, types
from minerva_acme.agents import on_policy
from minerva_acme.agents.vmpo.config import VMPOConfig


class VMPOLearner(learners.ModuleLearner):
    """A learner of on-policy maximum a posteriori policy optimisation.

    Source: Song et al. 2019, "V-MPO". Each rollout: one step of the temperature, then several times a
    step of the alphas and a step of policy and value, all on the whole rollout. Each loss trains one
    group of parameters:

        temperature loss              -> temperature
        alpha losses                  -> alphas
        weighted likelihood, KL, value -> network

    The policy's KL is penalised with the multipliers before their step. A discrete policy has one KL, bounded
    by `epsilon_mean`.

    Variables: `network`, a dict of arrays, the observation statistics among them.
    """

    def __init__(
        self,
        *,
        network: networks.ActorCritic,
        duals: losses.VMPODuals,
        dataset: Iterator[Any],
        preparer: on_policy.RolloutPreparer,
        config: VMPOConfig,
        num_updates: int | None,
        make_optimizer: learners.OptimizerFactory,
        counter: counting.Counter,
        logger: loggers.Logger,
        generator: torch.Generator,
    ) -> None:
        """Makes the learner.

        Args:
            network: The network, trained in place.
            duals: The multipliers, on the network's device.
            dataset: Yields samples whose `data` is a `Rollout` on the network's device, with
                `BehaviourExtras` as extras, which include the policy's parameters.
            preparer: Turns rollouts into batches, with this network's values.
            config: The hyperparameters.
            num_updates: The learner steps of the whole run, over which the learning rate is annealed if the
                config says so, or None to keep it constant.
            make_optimizer: Makes the optimisers of `network`, `temperature` and `alphas`.
            counter: Counts `steps` and `walltime`.
            logger: Receives one row of diagnostics per step.
            generator: Saved with the rest, but nothing is drawn: every step takes the whole rollout.
        """
        accelerated = acceleration.Acceleration(config.acceleration)
        accelerated.leaves_losses_plain("V-MPO's losses")
        self._network = accelerated.network("network", network)
        self._duals = duals
        self._dataset = learners.checked_samples(
            dataset,
            modules=[network],
            kind=types.Rollout,
            layout="RolloutLayout",
            extras=("log_prob", "raw_action", "parameters"),
        )
        self._preparer = preparer
        self._config = config

        alphas = nn.ModuleList([duals.alpha_mean, duals.alpha_stddev])
        groups = {
            name: learners.Group(make_optimizer(name, [{"params": [*module.parameters()], "lr": rate}]), norm)
            for name, module, rate, norm in (
                ("network", network, config.learning_rate, config.max_grad_norm),
                ("temperature", duals.temperature, config.temperature_learning_rate, math.inf),
                ("alphas", alphas, config.alpha_learning_rate, math.inf),
            )
        }
        self._optimizer = groups["network"].optimizer
        self._decay = learners.LinearDecay(
            self._optimizer,
            final_share=0.0 if config.anneal_learning_rate else 1.0,
            num_steps=num_updates,
        )
        modules = {"network": network, "duals": duals, **preparer.modules}
        super().__init__(
            modules=modules,
            variables=["network"],
            updates=learners.Updates(
                groups, modules=[*modules.values()], max_skipped_batches=config.max_skipped_batches
            ),
            counter=counter,
            logger=logger,
            generator=generator,
        )

    def step(self) -> None:
        """Learns from one rollout."""
        rollout = learners.next_batch(self._dataset, types.Rollout, "RolloutLayout")
        learning_rate = self._decay.set(self.num_steps)
        with self.updates.whole_or_nothing(self.num_steps, rollout) as metrics:
            batch = self._preparer.prepare(rollout)
            e_step, e_metrics = self._improve_temperature(batch)
            for _ in range(self._config.m_steps):
                m_metrics = self._improve_policy_and_value(batch, e_step)
            metrics |= batch.metrics | e_metrics | m_metrics
            self._preparer.update_observation_statistics(rollout)
        self.finish_step({**metrics, "learning_rate": learning_rate})

    def _improve_temperature(
        self, batch: on_policy.RolloutBatch
    ) -> tuple[losses.VMPOEStep, learners.Metrics]:
        config, temperature = self._config, self._duals.temperature()
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
            "value/explained_variance": losses.explained_variance(batch.value, batch.target),
            "value/mean": batch.value.mean(),
            "value/target_mean": batch.target.mean(),
            "advantage/min": batch.advantage.min(),
            "advantage/max": batch.advantage.max(),
        }

    def _improve_policy_and_value(
        self, batch: on_policy.RolloutBatch, e_step: losses.VMPOEStep
    ) -> learners.Metrics:
        config, duals = self._config, self._duals
        policy, value = self._network.from_normalized(batch.observation, batch.past)
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
