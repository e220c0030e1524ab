"""A learner step of CRR written out by hand: float64, torch's distributions, loops over states."""

import math

import torch

from .. import plain


class Reference:
    """The weights, and a step of plain gradient descent on each loss."""

    def __init__(self, modules, generator, *, config, low, high):
        """Takes weights, and a generator in the learner's state, which draws [B, D], then [N, B, D]."""
        self.modules = modules
        self._generator = generator
        self._config = config
        self._low = low
        self._high = high
        self._num_steps = 0

    def smallest(self, weights, observation, action):
        values = [
            plain.head(weights, i, observation, action)[..., 0] for i in range(plain.num_members(weights))
        ]
        return torch.stack(values).min(dim=0).values

    def step(self, batch):
        self._num_steps += 1
        modules, config = self.modules, self._config
        critic = plain.leaves(modules["critic"])
        with torch.no_grad():
            after = plain.gaussian(modules["target_policy"], batch.next_observation)
            noise = torch.randn(after.mean.shape, generator=self._generator, dtype=torch.float64)
            value = self.smallest(
                modules["target_critic"], batch.next_observation, after.mean + after.stddev * noise
            )
            target = batch.reward + batch.discount * value
        taken = [plain.head(critic, i, batch.observation, batch.action)[:, 0] for i in range(2)]
        critic_loss = sum((q - target).square().mean() for q in taken)
        modules["critic"], critic_norm = plain.descend(critic, critic_loss, config.learning_rate)

        weights = plain.leaves(modules["policy"])
        policy = plain.gaussian(weights, batch.observation)
        advantages = []
        with torch.no_grad():
            noise = torch.randn(
                config.num_action_samples,
                *policy.mean.shape,
                generator=self._generator,
                dtype=torch.float64,
            )
            q = self.smallest(modules["critic"], batch.observation, batch.action)
            for b in range(len(q)):
                values = [
                    self.smallest(
                        modules["critic"],
                        batch.observation[b : b + 1],
                        (policy.mean[b] + policy.stddev[b] * one[b])[None],
                    ).item()
                    for one in noise
                ]
                advantages.append(q[b].item() - sum(values) / len(values))
        if config.weights == "binary":
            chosen = [1.0 if a > 0 else 0.0 for a in advantages]
        else:
            chosen = [min(math.exp(a / config.beta), config.max_weight) for a in advantages]
        log_prob = plain.clipped_log_likelihood(policy, batch.action, self._low, self._high)
        policy_loss = -sum(w * x for w, x in zip(chosen, log_prob, strict=True)) / len(chosen)
        modules["policy"], policy_norm = plain.descend(weights, policy_loss, config.learning_rate)
        if self._num_steps % config.target_update_period == 0:
            for name in ("policy", "critic"):
                modules[f"target_{name}"] = dict(modules[name])
        return {
            "loss/critic": critic_loss,
            "grad_norm/critic": critic_norm,
            "q/mean": torch.stack(taken).min(dim=0).values.mean(),
            "q/target": target.mean(),
            "loss/policy": policy_loss,
            "grad_norm/policy": policy_norm,
            "advantage/mean": torch.tensor(advantages, dtype=torch.float64).mean(),
            "advantage/weight": torch.tensor(chosen, dtype=torch.float64).mean(),
        }
