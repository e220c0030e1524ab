"""D4PG's two losses, which `learners.LossLearner` minimises on each batch.

Shapes: B batch, D action dimensions. With a memory, batches are [B, T]: see
`off_policy.over_sequences`.
"""

import dataclasses

import torch

from minerva_acme import learners, losses
from minerva_acme.agents import off_policy
from minerva_acme.agents.d4pg.config import D4PGConfig
from minerva_acme.agents.d4pg.networks import D4PGNetworks


@dataclasses.dataclass(frozen=True)
class D4PGLosses:
    """The losses of D4PG, each named after the module that it trains.

    Source: Barth-Maron et al. 2018, "Distributed distributional deterministic policy gradients", algorithm 1.
    """

    config: D4PGConfig

    def critic(
        self, nets: D4PGNetworks, batch: learners.Batch, generator: torch.Generator | None
    ) -> learners.Loss:
        """Computes the loss by which the critic learns the n-step return's distribution, bootstrapped by Z'.

            J_Z = mean H(Phi(r + d z'), Z(s, a)),  z' ~ Z'(s', pi'(s'))

        H is the cross-entropy and Phi the projection onto the critic's atoms. Source: section 3.
        """
        data = batch.data  # a `types.Transition` over n steps; its discount d is 0 at a terminal
        with torch.no_grad():
            next_action = nets.target_policy(data.next_observation)
            returns = nets.target_critic(data.next_observation, next_action).returns(
                generator=generator, num_samples=self.config.num_returns
            )
            target = returns.bootstrapped(data.reward, data.discount)
        return off_policy.regress(nets.critic, batch, nets.critic(data.observation, data.action), target)

    def policy(
        self, nets: D4PGNetworks, batch: learners.Batch, generator: torch.Generator | None
    ) -> learners.Loss:
        """Computes the loss by which the policy follows the critic's action gradient: `losses.dpg_loss`."""
        observation = batch.data.observation
        action = nets.policy(observation)
        # Detached, so that it has a gradient even if the whole policy is frozen.
        q, dq_da = off_policy.value_and_gradient(
            lambda executed: nets.critic(observation, executed).mean(), action.detach()
        )
        loss = losses.dpg_loss(action, dq_da, max_norm=self.config.max_action_gradient)
        metrics = {"policy/q": batch.mean(q.detach()), "policy/dq_da": batch.mean(dq_da.norm(dim=-1))}
        return learners.Loss(batch.mean(loss), metrics)
