"""DQN's loss, which `learners.LossLearner` minimises on each batch.

Shapes: B batch, K actions.
"""

import dataclasses

import torch

from minerva_acme import learners
from minerva_acme.agents import off_policy
from minerva_acme.agents.dqn.config import DQNConfig
from minerva_acme.agents.dqn.networks import DQNNetworks


@dataclasses.dataclass(frozen=True)
class DQNLosses:
    """The loss of Q-learning with a target network.

    Sources: [1] Mnih et al. 2015, "Human-level control through deep reinforcement learning", algorithm 1; [2]
    van Hasselt et al. 2016, "Deep reinforcement learning with double Q-learning".
    """

    config: DQNConfig

    def q_network(
        self, nets: DQNNetworks, batch: learners.Batch, generator: torch.Generator | None
    ) -> learners.Loss:
        """Computes the loss by which the taken action's value regresses to the best next action's value.

            J = mean (Q(s, a) - r - d Q'(s', a'))^2
            a' = argmax Q'(s', .)   [1], or with `double` argmax Q(s', .)   [2]

        With a head that predicts distributions, the return z' replaces Q'. With `max_td_error` the difference
        is clipped to it [1, "Training details"].
        """
        data = batch.data  # a `types.Transition`; its discount d is 0 at a terminal
        with torch.no_grad():
            target = nets.target_network(data.next_observation)  # [B, K]
            chooser = nets.q_network(data.next_observation) if self.config.double else target
            returns = target.select(chooser.mean().argmax(dim=-1)).returns(
                generator=generator, num_samples=self.config.num_returns
            )
            regressand = returns.bootstrapped(data.reward, data.discount)
        prediction = nets.q_network(data.observation).select(data.action)
        if (largest := self.config.max_td_error) is not None:
            value = prediction.mean().detach()
            regressand = value + (regressand.mean() - value).clamp(-largest, largest)
        return off_policy.regress(nets.q_network, batch, prediction, regressand)
