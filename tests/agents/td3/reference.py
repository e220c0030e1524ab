"""A learner step of TD3 written out by hand: float64, loops over critics, dimensions and states."""

import torch

from .. import plain


class Reference:
    """The weights, and a step of plain gradient descent on each loss."""

    def __init__(self, modules, generator, *, config, low, high):
        """Takes weights by module, and a generator in the learner's state, which draws [B, D] once a step."""
        self.modules = modules
        self._generator = generator
        self._config = config
        self._low = low
        self._high = high
        self._num_steps = 0
        self._last = {}

    def smoothed(self, action):
        noise = torch.randn(action.shape, generator=self._generator, dtype=torch.float64)
        smoothed = action.clone()
        for b in range(len(action)):
            for d, (low, high) in enumerate(zip(self._low, self._high, strict=True)):
                size, clip = self._config.target_stddev, self._config.target_noise_clip
                x = min(max(size * noise[b, d].item(), -clip), clip) * (high - low) / 2.0
                smoothed[b, d] = min(max(action[b, d].item() + x, low), high)
        return smoothed

    def step(self, batch):
        self._num_steps += 1
        modules, config = self.modules, self._config
        critic = plain.leaves(modules["critic"])
        indices = range(plain.num_members(critic))
        with torch.no_grad():
            action = self.smoothed(plain.deterministic(modules["target_policy"], batch.next_observation))
            values = [
                plain.head(modules["target_critic"], i, batch.next_observation, action)[:, 0] for i in indices
            ]
            target = batch.reward + batch.discount * torch.stack(values).min(dim=0).values
        taken = torch.stack([plain.head(critic, i, batch.observation, batch.action)[:, 0] for i in indices])
        critic_loss = (taken - target).square().mean(dim=1).sum()
        modules["critic"], critic_norm = plain.descend(critic, critic_loss, config.learning_rate)
        metrics = {
            "loss/critic": critic_loss,
            "grad_norm/critic": critic_norm,
            "q/mean": taken.min(dim=0).values.mean(),
            "q/target": target.mean(),
        }
        metrics = {**self._last, **metrics}
        if self._num_steps % config.policy_period == 0:
            policy = plain.leaves(modules["policy"])
            action = plain.deterministic(policy, batch.observation)
            values = plain.head(modules["critic"], 0, batch.observation, action)[:, 0]
            loss = -values.mean()
            if config.bc_alpha is not None:
                error = 0.0
                for b in range(len(action)):
                    for d, (low, high) in enumerate(zip(self._low, self._high, strict=True)):
                        unit = (high - low) / 2.0
                        error = error + ((action[b, d] - batch.action[b, d]) / unit) ** 2 / action.numel()
                size = sum(abs(value) for value in values.tolist()) / len(values)
                loss = config.bc_alpha / size * loss + error
                metrics["policy/action_error"] = error
            modules["policy"], norm = plain.descend(policy, loss, config.learning_rate)
            metrics |= {"loss/policy": loss, "grad_norm/policy": norm}
            self._last = metrics  # logged until the next step of the policy
            for name in ("policy", "critic"):
                modules[f"target_{name}"] = plain.mixed(
                    modules[f"target_{name}"], modules[name], config.target_rate
                )
        return metrics
