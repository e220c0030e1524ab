"""The two losses of behaviour cloning, of which `learners.LossLearner` minimises one on each batch.

Shapes: B batch, D action dimensions, an axis that discrete actions lack. With a memory, batches are [B, T]:
see `off_policy.over_sequences`.
"""

import dataclasses

import torch

from minerva_acme import learners, losses
from minerva_acme.agents import actions
from minerva_acme.agents.bc.networks import BCNetworks


@dataclasses.dataclass(frozen=True)
class BCLosses:
    """The losses of behaviour cloning; both train the policy.

    Source: Pomerleau 1991, "Efficient training of artificial neural networks for autonomous navigation".
    """

    low: torch.Tensor  # [D]  smallest action; [] if actions are discrete
    high: torch.Tensor  # [D]  largest action, likewise

    def likelihood(
        self, nets: BCNetworks, batch: learners.Batch, generator: torch.Generator | None
    ) -> learners.Loss:
        """Computes the loss by which the policy makes the data's actions likely: J = -mean log pi(a | s).

        A Gaussian's actions are clipped to their bounds: see `DiagonalGaussian.log_prob_clipped`.
        """
        data = batch.data  # a `types.Transition`
        policy = nets.policy(data.observation)
        log_prob = actions.executed_log_prob(policy, data.action, self.low, self.high)
        loss = batch.mean(losses.weighted_likelihood_loss(log_prob, torch.ones_like(log_prob)))
        return learners.Loss(loss, {f"policy/{name}": value for name, value in policy.diagnostics().items()})

    def squared_error(
        self, nets: BCNetworks, batch: learners.Batch, generator: torch.Generator | None
    ) -> learners.Loss:
        """Computes the loss by which the policy's action follows the data's; see `losses.action_error`."""
        data = batch.data  # a `types.Transition`
        action = nets.policy(data.observation)
        half_range = (0.5 * (self.high - self.low)).to(action, non_blocking=True)
        return learners.Loss(batch.mean(losses.action_error(action, data.action, half_range)))
