"""The PPO learner.

Shapes: n samples of a rollout.
"""

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from minerva_acme import core, counting, learners, loggers, losses, networks, types
from minerva_acme.agents import on_policy
from minerva_acme.agents.ppo import config as ppo_config
from minerva_acme.agents.ppo import minimising

Metrics = dict[str, Any]

_APPROX_KL = losses.PPOLosses._fields.index("approx_kl")


class PPOLearner(core.Learner):
    """Proximal policy optimisation: a few epochs of clipped policy gradients on each rollout.

    Source: Schulman et al. 2017, "Proximal policy optimization algorithms". One loss, of policy, value
    and entropy, trains the whole network; observation and reward statistics are updated once a rollout.

    Variables: `network`, a dict of arrays, the observation statistics among them.
    """

    def __init__(
        self,
        *,
        network: networks.ActorCritic,
        dataset: Iterator[Any],
        evaluator: on_policy.RolloutEvaluator,
        config: ppo_config.PPOConfig,
        num_updates: int | None,
        counter: counting.Counter,
        logger: loggers.Logger,
        generator: torch.Generator,
    ) -> None:
        """Takes over the parts.

        Args:
            network: trained in place.
            dataset: yields samples whose `data` is a `Rollout` on the network's device, extras being
                `BehaviourExtras`.
            evaluator: values rollouts with this network.
            config: hyperparameters.
            num_updates: learner steps of the whole run, over which the learning rate is annealed;
                None: it stays.
            counter: counts `steps` and `walltime`.
            logger: receives a row of diagnostics a step.
            generator: on the network's device, shuffles the samples.
        """
        self._network = network
        self._optimizer = torch.optim.Adam(
            network.parameters(), lr=config.learning_rate, eps=config.adam_epsilon, fused=True
        )
        self._dataset = dataset
        self._evaluator = evaluator
        self._config = config
        self._num_updates = num_updates
        self._generator = generator
        self._log = learners.StepLog(counter, logger)
        self._skipped = learners.SkippedBatches(config.max_skipped_batches)
        self._num_steps = 0

    def step(self) -> None:
        """Learns from one rollout."""
        rollout = learners.next_batch(self._dataset, types.Rollout, "RolloutLayout")
        learning_rate = on_policy.anneal_learning_rate(
            self._optimizer, self._config, self._num_steps, self._num_updates
        )
        metrics: Metrics = {}
        try:
            batch = self._evaluator.evaluate(rollout)
            metrics = self._update(batch)
            self._evaluator.update_observation_statistics(rollout)
            self._skipped.used()
        except learners.NonFinite as error:
            self._skipped.skipped(self._num_steps, error)
        self._num_steps += 1
        self._log.write({**metrics, "learning_rate": learning_rate, "skipped_batches": self._skipped.total})

    def _update(self, batch: on_policy.RolloutBatch) -> Metrics:
        config = self._config
        samples = minimising.Samples(
            observation=batch.observation,
            raw_action=batch.raw_action,
            # The Jacobian of the executed action is the same before and after: it leaves the ratio.
            raw_log_prob=batch.log_prob + batch.log_det,
            value=batch.value,
            advantage=batch.advantage,
            target=batch.target,
        )
        num_samples = samples.value.shape[0]
        num_minibatches = num_samples // config.minibatch_size
        rows: list[torch.Tensor] = []
        num_epochs = 0
        minimiser = minimising.make_minimiser(self._network, self._optimizer, config)
        try:
            while num_epochs < config.num_epochs:
                order = torch.randperm(num_samples, generator=self._generator, device=samples.value.device)
                for minibatch in minimiser.shuffled(samples, order, num_minibatches):
                    rows.append(minimiser.step(minibatch))
                num_epochs += 1
                if config.target_kl and rows[-1][_APPROX_KL].item() > config.target_kl:
                    break
        finally:
            minimiser.finish()
        names = [*losses.PPOLosses._fields, "grad_norm"]
        mean = dict(zip(names, torch.stack(rows).mean(dim=0), strict=True))
        return {
            "loss/total": mean["total"],
            "loss/policy": mean["policy"],
            "loss/value": mean["value"],
            "policy/entropy": mean["entropy"],
            "policy/approx_kl": rows[-1][_APPROX_KL],  # of the last minibatch
            "policy/approx_kl_first": rows[0][_APPROX_KL],  # 0 but for rounding: nothing moved yet
            "policy/clip_fraction": mean["clip_fraction"],
            "grad_norm": mean["grad_norm"],
            "epochs": num_epochs,
            "value/explained_variance": losses.explained_variance(batch.value, batch.target),
            "value/mean": batch.value.mean(),
            "value/target_mean": batch.target.mean(),
        }

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
                "optimizer": self._optimizer.state_dict(),
                "evaluator": self._evaluator.save(),
                "generator": self._generator.get_state(),
                "skipped": self._skipped.save(),
                "num_steps": self._num_steps,
            }
        )

    def restore(self, state: core.State) -> None:
        self._network.load_state_dict(state["network"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._evaluator.restore(state["evaluator"])
        self._generator.set_state(state["generator"].cpu())
        self._skipped.restore(state["skipped"])
        self._num_steps = state["num_steps"]
