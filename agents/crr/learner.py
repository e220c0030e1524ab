"""CRR's two losses, which `learners.LossLearner` minimises on each batch.

Shapes: B batch, N sampled actions, D action dimensions. With a memory, batches are [B, T]: see
`off_policy.over_sequences`.
"""

import dataclasses

import torch

from minerva_acme import learners, losses
from minerva_acme.agents import actions, off_policy
from minerva_acme.agents.crr.config import CRRConfig
from minerva_acme.agents.crr.networks import CRRNetworks


@dataclasses.dataclass(frozen=True)
class CRRLosses:
    """The losses of CRR, each named after the module that it trains.

    Source: Wang et al. 2020, "Critic regularized regression", algorithm 1.
    """

    config: CRRConfig
    low: torch.Tensor  # [D]  smallest action
    high: torch.Tensor  # [D]  largest action

    def critic(
        self, nets: CRRNetworks, batch: learners.Batch, generator: torch.Generator | None
    ) -> learners.Loss:
        """Computes the loss by which the critic regresses to its target at an action of the target policy.

            J_Q = mean (Q(s, a) - r - d Q'(s', a'))^2,  a' ~ pi'(s')

        Source: algorithm 1. With a head that predicts distributions, the return z' replaces Q'.
        """
        data = batch.data  # a `types.Transition`; its discount d is 0 at a terminal
        with torch.no_grad():
            action = nets.target_policy(data.next_observation).sample(generator)
            returns = nets.target_critic(data.next_observation, action).returns(
                generator=generator, num_samples=self.config.num_returns
            )
            target = returns.bootstrapped(data.reward, data.discount)
        return off_policy.regress(nets.critic, batch, nets.critic(data.observation, data.action), target)

    def policy(
        self, nets: CRRNetworks, batch: learners.Batch, generator: torch.Generator | None
    ) -> learners.Loss:
        """Computes the loss by which the policy follows the actions of the data that the critic prefers.

            J_pi = -mean f(A(s, a)) log pi(a | s),  A(s, a) = Q(s, a) - 1/N sum_j Q(s, a_j),  a_j ~ pi(s)

        Source: eq. 2 and the mean advantage of section 3; f is one of eq. 3 and 4.
        """
        data, config = batch.data, self.config
        policy = nets.policy(data.observation)
        with torch.no_grad():
            sampled = policy.sample(generator, config.num_action_samples)  # [N, B, D]
            value = nets.critic(data.observation, sampled).mean().mean(dim=0)  # [B]
            advantage = nets.critic(data.observation, data.action).mean() - value
            if config.weights == "binary":
                weight = losses.binary_weights(advantage)
            else:
                weight = losses.exponential_weights(advantage, beta=config.beta, max_weight=config.max_weight)
        log_prob = actions.executed_log_prob(policy, data.action, self.low, self.high)
        metrics = {"advantage/mean": batch.mean(advantage), "advantage/weight": batch.mean(weight)}
        return learners.Loss(batch.mean(losses.weighted_likelihood_loss(log_prob, weight)), metrics)
