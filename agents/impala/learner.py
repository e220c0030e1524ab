"""The IMPALA learner."""

from collections.abc import Iterator
from typing import Any

from minerva_acme import acceleration, counting, learners, loggers, losses, networks, types
from minerva_acme.agents import on_policy
from minerva_acme.agents.impala.config import IMPALAConfig


class IMPALALearner(learners.ModuleLearner):
    """A learner of the importance weighted actor-learner architecture: one policy gradient step a rollout.

    Source: Espeholt et al. 2018, "IMPALA". One loss, of policy, value and entropy, trains the whole network.
    Targets and advantages are V-trace's, so that rollouts may be from older weights.

    Variables: `network`, a dict of arrays, the observation statistics among them.
    """

    def __init__(
        self,
        *,
        network: networks.ActorCritic,
        dataset: Iterator[Any],
        preparer: on_policy.RolloutPreparer,
        config: IMPALAConfig,
        num_updates: int | None,
        make_optimizer: learners.OptimizerFactory,
        counter: counting.Counter,
        logger: loggers.Logger,
        generator: Any,
    ) -> None:
        """Makes the learner.

        Args:
            network: The network, trained in place.
            dataset: Yields samples whose `data` is a `Rollout` on the network's device, with
                `BehaviourExtras` as extras.
            preparer: Turns rollouts into batches, with this network's values.
            config: The hyperparameters.
            num_updates: The learner steps of the whole run, over which the learning rate is annealed if the
                config says so, or None to keep it constant.
            make_optimizer: Makes the optimiser of `network`.
            counter: Counts `steps` and `walltime`.
            logger: Receives one row of diagnostics per step.
            generator: Saved with the rest, but nothing is drawn: every step takes the whole rollout.
        """
        accelerated = acceleration.Acceleration(config.acceleration)
        accelerated.leaves_losses_plain("IMPALA's losses")
        self._network = accelerated.network("network", network)
        self._dataset = learners.checked_samples(
            dataset,
            modules=[network],
            kind=types.Rollout,
            layout="RolloutLayout",
            extras=("log_prob", "raw_action"),
        )
        self._preparer = preparer
        self._config = config
        optimizer = make_optimizer(
            "network", [{"params": [*network.parameters()], "lr": config.learning_rate}]
        )
        self._decay = learners.LinearDecay(
            optimizer, final_share=0.0 if config.anneal_learning_rate else 1.0, num_steps=num_updates
        )
        modules = {"network": network, **preparer.modules}
        super().__init__(
            modules=modules,
            variables=["network"],
            updates=learners.Updates(
                {"network": learners.Group(optimizer, config.max_grad_norm)},
                modules=[*modules.values()],
                max_skipped_batches=config.max_skipped_batches,
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
            loss = self._loss(batch)
            grad_norm = self.updates.minimise("network", loss.total)
            metrics |= batch.metrics | {
                "loss/total": loss.total.detach(),
                "loss/policy": loss.policy.detach(),
                "loss/value": loss.value.detach(),
                "policy/entropy": loss.entropy.detach(),
                "grad_norm": grad_norm,
                "value/explained_variance": losses.explained_variance(batch.value, batch.target),
                "value/mean": batch.value.mean(),
                "value/target_mean": batch.target.mean(),
            }
            self._preparer.update_observation_statistics(rollout)
        self.finish_step({**metrics, "learning_rate": learning_rate})

    def _loss(self, batch: on_policy.RolloutBatch) -> losses.PolicyGradientLosses:
        """Computes the loss of a rollout."""
        advantages = batch.weight * batch.advantage
        if self._config.normalize_advantages:
            advantages = losses.normalize_advantages(advantages, unbiased=True)
        policy, value = self._network.from_normalized(batch.observation, batch.past)
        return losses.policy_gradient_loss(
            log_prob=policy.log_prob(batch.raw_action),
            advantages=advantages,
            targets=batch.target,
            value=value,
            entropy=policy.entropy(),
            value_coef=self._config.value_coef,
            entropy_coef=self._config.entropy_coef,
        )
