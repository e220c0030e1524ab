"""The IMPALA learner."""

from typing import Any

from minerva_acme import learners, losses
from minerva_acme.agents import on_policy
from minerva_acme.agents.impala.config import IMPALAConfig


class IMPALALearner(on_policy.RolloutLearner[IMPALAConfig]):
    """A learner of the importance weighted actor-learner architecture: one policy gradient step a rollout.

    Source: Espeholt et al. 2018, "IMPALA". One loss, of policy, value and entropy, trains the whole network.
    Targets and advantages are V-trace's, so that rollouts may be from older weights. Nothing is drawn: every
    step takes the whole rollout.
    """

    def __init__(self, **parts: Any) -> None:
        """Makes the learner from the arguments of `RolloutLearner`."""
        super().__init__(**parts)
        self.acceleration.leaves_losses_plain("IMPALA's losses")

    def improve(self, batch: on_policy.RolloutBatch) -> learners.Metrics:
        """Makes one gradient step."""
        loss = self._loss(batch)
        grad_norm = self.updates.minimise("network", loss.total)
        return {
            "loss/total": loss.total.detach(),
            "loss/policy": loss.policy.detach(),
            "loss/value": loss.value.detach(),
            "policy/entropy": loss.entropy.detach(),
            "grad_norm": grad_norm,
            **batch.value_metrics(),
        }

    def _loss(self, batch: on_policy.RolloutBatch) -> losses.PolicyGradientLosses:
        """Computes the loss of a rollout."""
        advantages = batch.weight * self.normalized(batch.advantage)
        policy, value = self.network.from_normalized(batch.observation, batch.past)
        return losses.policy_gradient_loss(
            log_prob=policy.log_prob(batch.raw_action),
            advantages=advantages,
            targets=batch.target,
            value=value,
            entropy=policy.entropy(),
            value_coef=self.config.value_coef,
            entropy_coef=self.config.entropy_coef,
        )
