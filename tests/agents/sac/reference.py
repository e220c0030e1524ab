"""A learner step of SAC written out by hand: float64, torch's distributions, loops over critics."""

import torch
from torch import distributions

from .. import plain
from ..mpo import reference


class Reference:
    """The weights, and a step of plain gradient descent on each loss."""

    def __init__(self, modules, generator, *, learning_rate, target_rate, target_entropy):
        """Takes weights by module, and a generator in the learner's state, which draws [B, D] twice."""
        self.modules = modules
        self._generator = generator
        self._learning_rate = learning_rate
        self._target_rate = target_rate
        self._target_entropy = target_entropy

    def sample(self, weights, observation):
        """An action and its log-density by the change of variables, which float64 can bear as it stands."""
        policy = plain.part(weights, "policy.policy")
        bounds = plain.part(weights, "policy.squash")
        features = reference.torso(policy, observation)
        raw = distributions.Normal(
            plain.linear(policy, "mean_head", features), plain.linear(policy, "log_std_head", features).exp()
        )
        noise = torch.randn(raw.mean.shape, generator=self._generator, dtype=torch.float64)
        x = raw.mean + raw.stddev * noise
        slope = (bounds["high"] - bounds["low"]) / 2.0 * (1.0 - torch.tanh(x) ** 2)
        return plain.squash(bounds, x), raw.log_prob(x).sum(dim=-1) - slope.log().sum(dim=-1)

    def smallest(self, weights, observation, action):
        values = [
            plain.head(weights, i, observation, action)[:, 0] for i in range(plain.num_members(weights))
        ]
        return torch.stack(values).min(dim=0).values

    def step(self, batch):
        modules = self.modules
        critic = plain.leaves(modules["critic"])
        with torch.no_grad():
            action, log_prob = self.sample(modules["policy"], batch.next_observation)
            alpha = modules["temperature"]["log"].exp()
            value = self.smallest(modules["target_critic"], batch.next_observation, action)
            target = batch.reward + batch.discount * (value - alpha * log_prob)
        critic_loss = sum(
            (plain.head(critic, i, batch.observation, batch.action)[:, 0] - target).square().mean()
            for i in range(plain.num_members(critic))
        )
        q = self.smallest(critic, batch.observation, batch.action)
        modules["critic"], critic_norm = plain.descend(critic, critic_loss, self._learning_rate)

        policy = plain.leaves(modules["policy"])
        action, log_prob = self.sample(policy, batch.observation)
        q_policy = self.smallest(modules["critic"], batch.observation, action)
        policy_loss = (alpha * log_prob - q_policy).mean()
        modules["policy"], policy_norm = plain.descend(policy, policy_loss, self._learning_rate)

        temperature = plain.leaves(modules["temperature"])
        entropy = -log_prob.detach().mean()
        temperature_loss = temperature["log"] * (entropy - self._target_entropy)
        modules["temperature"], temperature_norm = plain.descend(
            temperature, temperature_loss, self._learning_rate
        )
        modules["target_critic"] = plain.mixed(modules["target_critic"], modules["critic"], self._target_rate)
        return {
            "loss/critic": critic_loss,
            "grad_norm/critic": critic_norm,
            "q/mean": q.mean(),
            "q/target": target.mean(),
            "loss/policy": policy_loss + temperature_loss,
            "grad_norm/policy": (policy_norm**2 + temperature_norm**2).sqrt(),
            "policy/entropy": entropy,
            "loss/temperature": temperature_loss,
            "temperature": alpha,
        }
