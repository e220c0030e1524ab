"""WPO's two losses, which `learners.LossLearner` minimises on each batch.

Shapes: B batch, N sampled actions, D action dimensions. With a memory, batches are [B, T]: see
`off_policy.over_sequences`.
"""

import dataclasses

import torch

from minerva_acme import learners, losses
from minerva_acme.agents import off_policy
from minerva_acme.agents.wpo.config import WPOConfig
from minerva_acme.agents.wpo.networks import WPONetworks


@dataclasses.dataclass(frozen=True)
class WPOLosses:
    """The losses of Wasserstein policy optimisation, each named after the module that it trains.

    Among all policies, the steepest ascent of the return in the Wasserstein distance moves every action along
    the gradient of its value. WPO is its projection on the policy's parameters, with MPO's penalty on the way
    from the target policy:

        d theta = F^-1 E_{a ~ pi}[grad_theta grad_a log pi(a | s) grad_a Q(s, a)]

    Source: Pfau et al. 2025, "Wasserstein policy optimization". Where the paper leaves a choice, this is
    Acme's WPO: the Fisher information F is the Gaussian's own instead of that of theta, the weights of the
    KLs are constant, and Q is the trained critic at samples of the trained policy.
    """

    config: WPOConfig

    def critic(
        self, nets: WPONetworks, batch: learners.Batch, generator: torch.Generator | None
    ) -> learners.Loss:
        """Computes the loss by which the critic regresses to the n-step return and the value after it.

            J_Q = mean (Q(s, a) - r - d 1/N sum_i Q'(s', a_i))^2,  a_i ~ pi'(s')

        The value is a number: a head that predicts distributions learns from numbers too.
        """
        data = batch.data  # a `types.Transition` over n steps; its discount d is 0 at a terminal
        with torch.no_grad():
            action = nets.target_policy(data.next_observation).sample(generator, self.config.num_samples)
            value = nets.target_critic(data.next_observation, action).mean().mean(dim=0)
            target = data.reward + data.discount * value
        return off_policy.regress(nets.critic, batch, nets.critic(data.observation, data.action), target)

    def policy(
        self, nets: WPONetworks, batch: learners.Batch, generator: torch.Generator | None
    ) -> learners.Loss:
        """Computes the loss by which the policy's samples follow the critic, near the target policy.

            J_pi = mean L_WPO + alpha_mu KL_mu + alpha_sigma KL_sigma

        For L_WPO see `losses.wpo_loss`. The KLs are from the target policy, as in MPO: of the trained mean
        with the target's standard deviation, and the other way round, each with its own weight.
        """
        observation = batch.data.observation
        policy = nets.policy(observation)
        with torch.no_grad():
            target = nets.target_policy(observation)
            action = policy.sample(generator, self.config.num_samples)  # [N, B, D]
        q, dq_da = off_policy.value_and_gradient(
            lambda raw: nets.critic(observation, raw).mean(), action
        )  # [N, B], [N, B, D]
        size = dq_da.norm(dim=-1).mean(dim=0)
        if self.config.cube_root:
            dq_da = dq_da.sign() * dq_da.abs().pow(1.0 / 3.0)
        kl_mean, kl_stddev = (target.kl(part) for part in policy.decouple(target))  # [B] each
        penalty = self.config.kl_weight_mean * kl_mean + self.config.kl_weight_stddev * kl_stddev
        metrics = {
            "policy/q": batch.mean(q.detach().mean(dim=0)),
            "policy/dq_da": batch.mean(size),
            "kl/mean": batch.mean(kl_mean.detach()),
            "kl/stddev": batch.mean(kl_stddev.detach()),
            **{f"policy/{name}": value for name, value in policy.diagnostics().items()},
        }
        return learners.Loss(batch.mean(losses.wpo_loss(policy, action, dq_da) + penalty), metrics)
