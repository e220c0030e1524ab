"""The IMPALA learner."""

from typing import Any

import torch

from minerva_acme import learners, losses, networks
from minerva_acme.agents import on_policy
from minerva_acme.agents.impala.config import IMPALAConfig


class IMPALALearner(on_policy.RolloutLearner[IMPALAConfig]):
    """A learner of the importance weighted actor-learner architecture: one policy gradient step a rollout.

    Source: Espeholt et al. 2018, "IMPALA". One loss, of policy, value and entropy, trains the whole network.
    Targets and advantages are V-trace's, so that rollouts may be from older weights. Nothing is drawn: every
    step takes the whole rollout.
    """

    def __init__(self, **arguments: Any) -> None:
        """Makes the learner from the other arguments of `RolloutLearner`."""
        super().__init__(losses={"network": self.loss}, **arguments)

    def loss(
        self, nets: networks.ActorCritic, batch: learners.Batch, generator: torch.Generator | None
    ) -> learners.Loss:
        """Computes the loss of a rollout."""
        rollout: on_policy.RolloutBatch = batch.estimates
        advantages = rollout.weight * self.normalized(rollout.advantage)
        policy, value = nets.from_normalized(rollout.observation, rollout.past)
        loss = losses.policy_gradient_loss(
            log_prob=policy.log_prob(rollout.raw_action),
            advantages=advantages,
            targets=rollout.target,
            value=value,
            entropy=policy.entropy(),
            value_coef=self.config.value_coef,
            entropy_coef=self.config.entropy_coef,
        )
        return learners.Loss(
            loss.total,
            {
                "loss/policy": loss.policy.detach(),
                "loss/value": loss.value.detach(),
                "policy/entropy": loss.entropy.detach(),
                **rollout.metrics,
                **rollout.value_metrics(),
            },
        )
