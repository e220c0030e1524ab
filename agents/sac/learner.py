"""SAC's two losses, which `learners.LossLearner` minimises on each batch.

Shapes: B batch, D action dimensions. With a memory, batches are [B, T]: see
`off_policy.over_sequences`.
"""

import dataclasses
from typing import Any

import torch

from minerva_acme import learners
from minerva_acme.agents import off_policy
from minerva_acme.agents.sac.config import SACConfig
from minerva_acme.agents.sac.networks import SACNetworks


@dataclasses.dataclass(frozen=True)
class SACLosses:
    """The losses of soft actor-critic: one for the critics, one for policy and temperature.

    Source: Haarnoja et al. 2018, "Soft actor-critic algorithms and applications", algorithm 1.
    """

    config: SACConfig
    target_entropy: float  # nats

    def critic(
        self, nets: SACNetworks, batch: learners.Batch, generator: torch.Generator | None
    ) -> learners.Loss:
        """Computes the loss by which every critic regresses to the smallest target critic's soft value.

            J_Q = mean (Q(s, a) - r - d (Q'(s', a') - alpha log pi(a' | s')))^2,  a' ~ pi(s')

        Source: eq. 5. With a head that predicts distributions, the return z' replaces Q'.
        """
        data = batch.data  # a `types.Transition`; its discount d is 0 at a terminal
        with torch.no_grad():
            action, log_prob = nets.policy(data.next_observation).sample_and_log_prob(generator)
            returns = nets.target_critic(data.next_observation, action).returns(
                generator=generator, num_samples=self.config.num_returns
            )
            entropy_bonus = -nets.temperature() * log_prob  # [B]
            target = returns.bootstrapped(data.reward + data.discount * entropy_bonus, data.discount)
        return off_policy.regress(nets.critic, batch, nets.critic(data.observation, data.action), target)

    def policy(
        self, nets: SACNetworks, batch: learners.Batch, generator: torch.Generator | None
    ) -> learners.Loss:
        """Computes the loss by which the policy follows the smallest critic and keeps its entropy.

            J_pi = mean alpha log pi(a | s) - Q(s, a),  a ~ pi(s)
            J_alpha = log alpha (mean -log pi(a | s) - target)

        Actions are reparameterised. The temperature rises while the entropy is below its target, and falls
        while it is above. Neither loss trains the other's parameters. Source: eq. 9 and 18, with log alpha
        instead of alpha to keep the temperature positive, as in the authors' code.
        """
        observation = batch.data.observation
        action, log_prob = nets.policy(observation).sample_and_log_prob(generator)
        q = nets.critic(observation, action).mean()
        temperature, entropy = nets.temperature().detach(), -batch.mean(log_prob.detach())
        policy_loss = batch.mean(temperature * log_prob - q)
        log_temperature: Any = nets.temperature.log
        temperature_loss = log_temperature * (entropy - self.target_entropy)
        return learners.Loss(
            policy_loss + temperature_loss,
            {
                "loss/temperature": temperature_loss.detach(),
                "policy/entropy": entropy,
                "temperature": temperature,
            },
        )
