"""TD3's two losses, which `learners.LossLearner` minimises, by default the policy's on every second batch.

Shapes: B batch, D action dimensions. With a memory, batches are [B, T]: see
`off_policy.over_sequences`.
"""

import dataclasses

import torch

from minerva_acme import learners, losses
from minerva_acme.agents import off_policy
from minerva_acme.agents.td3.config import TD3Config
from minerva_acme.agents.td3.networks import TD3Networks


@dataclasses.dataclass(frozen=True)
class TD3Losses:
    """The losses of TD3, each named after the module that it trains.

    Source: Fujimoto et al. 2018, "Addressing function approximation error in actor-critic methods",
    algorithm 1.
    """

    config: TD3Config
    low: torch.Tensor  # [D]  smallest action
    high: torch.Tensor  # [D]  largest action

    def critic(
        self, nets: TD3Networks, batch: learners.Batch, generator: torch.Generator | None
    ) -> learners.Loss:
        """Computes the loss by which critics regress to the smallest target critic at a smoothed action.

            J_Q = mean (Q(s, a) - r - d Q'(s', a'))^2,  a' = clip(pi'(s') + clip(noise, -c, c), low, high)

        Source: eq. 10 and 14. With a head that predicts distributions, the return z' replaces Q'.
        """
        data = batch.data  # a `types.Transition`; its discount d is 0 at a terminal
        with torch.no_grad():
            action = self.smoothed(nets.target_policy(data.next_observation), generator)
            returns = nets.target_critic(data.next_observation, action).returns(
                generator=generator, num_samples=self.config.num_returns
            )
            target = returns.bootstrapped(data.reward, data.discount)
        return off_policy.regress(nets.critic, batch, nets.critic(data.observation, data.action), target)

    def policy(
        self, nets: TD3Networks, batch: learners.Batch, generator: torch.Generator | None
    ) -> learners.Loss:
        """Computes the loss by which the policy follows the first critic: J_pi = -mean Q_1(s, pi(s)).

        With `bc_alpha` the policy also stays near the actions of the data: see `losses.td3_bc_loss`.
        """
        data, alpha = batch.data, self.config.bc_alpha
        action = nets.policy(data.observation)
        q = nets.critic.first(data.observation, action).mean()
        if alpha is None:
            return learners.Loss(-batch.mean(q))
        low, high = self._bounds_like(action)
        error = losses.action_error(action, data.action, 0.5 * (high - low))
        loss = losses.td3_bc_loss(q, error, alpha=alpha, mean=batch.mean)
        return learners.Loss(loss, {"policy/action_error": batch.mean(error.detach())})

    def smoothed(self, action: torch.Tensor, generator: torch.Generator | None) -> torch.Tensor:
        """Smooths the target policy, section 5.3: similar actions should have similar values."""
        low, high = self._bounds_like(action)
        noise = torch.randn(action.shape, generator=generator, dtype=action.dtype, device=action.device)
        clip = self.config.target_noise_clip
        noise = (self.config.target_stddev * noise).clamp(-clip, clip)
        return (action + 0.5 * (high - low) * noise).clamp(low, high)

    def _bounds_like(self, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The bounds, [D] each, on the device of actions. A GPU does not wait for them."""
        return self.low.to(action, non_blocking=True), self.high.to(action, non_blocking=True)
