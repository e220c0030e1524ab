"""A learner step of IQL written out by hand: float64, torch's distributions, loops over states."""

import math

import torch

from .. import plain


class Reference:
    """The weights, and a step of plain gradient descent on each loss."""

    def __init__(self, modules, *, config, low, high):
        self.modules = modules
        self._config = config
        self._low = low
        self._high = high

    def value(self, weights, observation):
        """V(s), [B]."""
        value = plain.part(weights, "critic")
        return plain.linear(value, "head", plain.features(value, observation))[:, 0]

    def critics(self, weights, observation, action):
        """Q(s, a) of each critic, [B] each."""
        number = plain.num_members(weights)
        return [plain.head(weights, i, observation, action)[:, 0] for i in range(number)]

    def smallest(self, observation, action):
        """Q'(s, a), the smallest of the target critics', a list of B numbers."""
        values = self.critics(self.modules["target_critic"], observation, action)
        return [min(value[b].item() for value in values) for b in range(len(observation))]

    def step(self, batch):
        modules, config = self.modules, self._config
        q = self.smallest(batch.observation, batch.action)
        number = len(q)

        weights = plain.leaves(modules["value"])
        value = self.value(weights, batch.observation)
        value_loss = torch.zeros(())
        for b in range(number):
            share = config.expectile if q[b] > value[b] else 1.0 - config.expectile
            value_loss = value_loss + share * (q[b] - value[b]) ** 2 / number
        modules["value"], value_norm = plain.descend(weights, value_loss, config.learning_rate)

        with torch.no_grad():
            after = self.value(modules["value"], batch.next_observation)
            target = batch.reward + batch.discount * after
            new_value = self.value(modules["value"], batch.observation).tolist()
        critic = plain.leaves(modules["critic"])
        taken = self.critics(critic, batch.observation, batch.action)
        critic_loss = sum((one - target).square().mean() for one in taken)
        modules["critic"], critic_norm = plain.descend(critic, critic_loss, config.learning_rate)

        advantages = [q[b] - new_value[b] for b in range(number)]
        chosen = [min(math.exp(config.beta * a), config.max_weight) for a in advantages]
        weights = plain.leaves(modules["policy"])
        policy = plain.gaussian(weights, batch.observation)
        log_prob = plain.clipped_log_likelihood(policy, batch.action, self._low, self._high)
        policy_loss = -sum(w * x for w, x in zip(chosen, log_prob, strict=True)) / number
        modules["policy"], policy_norm = plain.descend(weights, policy_loss, config.learning_rate)

        modules["target_critic"] = plain.mixed(
            modules["target_critic"], modules["critic"], config.target_rate
        )
        return {
            "loss/value": value_loss,
            "grad_norm/value": value_norm,
            "value/mean": value.mean(),
            "loss/critic": critic_loss,
            "grad_norm/critic": critic_norm,
            "q/mean": torch.stack(taken).min(dim=0).values.mean(),
            "q/target": target.mean(),
            "loss/policy": policy_loss,
            "grad_norm/policy": policy_norm,
            "advantage/mean": torch.tensor(sum(advantages) / number, dtype=torch.float64),
            "advantage/weight": torch.tensor(sum(chosen) / number, dtype=torch.float64),
        }
