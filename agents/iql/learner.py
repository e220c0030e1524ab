"""IQL's three losses, which `learners.LossLearner` minimises on each batch.

Shapes: B batch, D action dimensions. With a memory, batches are [B, T]: see
`off_policy.over_sequences`.
"""

import dataclasses

import torch

from minerva_acme import learners, losses
from minerva_acme.agents import actions, off_policy
from minerva_acme.agents.iql.config import IQLConfig
from minerva_acme.agents.iql.networks import IQLNetworks


@dataclasses.dataclass(frozen=True)
class IQLLosses:
    """The losses of IQL, each named after the module that it trains. All actions are recorded ones.

    Source: Kostrikov, Nair and Levine 2021, "Offline reinforcement learning with implicit Q-learning".
    """

    config: IQLConfig
    low: torch.Tensor  # [D]  smallest action
    high: torch.Tensor  # [D]  largest action

    def value(
        self, nets: IQLNetworks, batch: learners.Batch, generator: torch.Generator | None
    ) -> learners.Loss:
        """Computes the loss by which the value becomes an expectile of the target critic's values.

            J_V = mean |tau - 1[u < 0]| u^2,  u = Q'(s, a) - V(s)

        Source: eq. 5. With a tau above 0.5, V is the value of the better actions of the data.
        """
        data = batch.data  # a `types.Transition`; its discount d is 0 at a terminal
        value = nets.value(data.observation).mean()  # [B]
        with torch.no_grad():
            q = nets.target_critic(data.observation, data.action).mean()
        loss = losses.expectile_loss(value, q, expectile=self.config.expectile)
        return learners.Loss(batch.mean(loss), {"value/mean": batch.mean(value.detach())})

    def critic(
        self, nets: IQLNetworks, batch: learners.Batch, generator: torch.Generator | None
    ) -> learners.Loss:
        """Computes the loss by which the critics regress to the value of the next state.

            J_Q = mean (Q(s, a) - r - d V(s'))^2

        Source: eq. 6. V is an expected return: a head that predicts distributions learns from numbers too.
        """
        data = batch.data
        with torch.no_grad():
            target = data.reward + data.discount * nets.value(data.next_observation).mean()
        return off_policy.regress(nets.critic, batch, nets.critic(data.observation, data.action), target)

    def policy(
        self, nets: IQLNetworks, batch: learners.Batch, generator: torch.Generator | None
    ) -> learners.Loss:
        """Computes the loss by which the policy follows the actions of the data that are better than V.

            J_pi = -mean min(exp(beta (Q'(s, a) - V(s))), w_max) log pi(a | s)

        Source: eq. 7; its bound w_max is in the authors' code.
        """
        data, config = batch.data, self.config
        with torch.no_grad():
            advantage = nets.target_critic(data.observation, data.action).mean()  # [B]
            advantage = advantage - nets.value(data.observation).mean()
            weight = losses.exponential_weights(
                advantage, beta=1.0 / config.beta, max_weight=config.max_weight
            )
        log_prob = actions.executed_log_prob(nets.policy(data.observation), data.action, self.low, self.high)
        metrics = {"advantage/mean": batch.mean(advantage), "advantage/weight": batch.mean(weight)}
        return learners.Loss(batch.mean(losses.weighted_likelihood_loss(log_prob, weight)), metrics)
