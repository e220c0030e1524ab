"""A learner step of behaviour cloning written out by hand: float64, loops over states and dimensions."""

import torch

from .. import plain
from ..mpo import reference


class Reference:
    """The weights, and a step of plain gradient descent on the loss."""

    def __init__(self, modules, generator, *, config, low, high):
        """Takes weights by module, and the bounds of continuous actions; nothing is drawn."""
        self.modules = modules
        self._config = config
        self._low = low
        self._high = high

    def step(self, batch):
        weights = plain.leaves(self.modules["policy"])
        loss, metrics = self.losses(weights, batch)
        self.modules["policy"], norm = plain.descend(weights, loss, self._config.learning_rate)
        return {"loss/policy": loss, "grad_norm/policy": norm, **metrics}

    def losses(self, weights, batch):
        """The loss, and what is logged of the policy."""
        if not batch.action.is_floating_point():
            return self.cross_entropy(weights, batch)
        if self._config.loss == "squared_error":
            return self.squared_error(weights, batch), {}
        policy = plain.gaussian(weights, batch.observation)
        stddev = policy.stddev.flatten().tolist()
        log_prob = plain.clipped_log_likelihood(policy, batch.action, self._low, self._high)
        return -sum(log_prob) / len(log_prob), {
            "policy/stddev_min": torch.tensor(min(stddev), dtype=torch.float64),
            "policy/stddev_max": torch.tensor(max(stddev), dtype=torch.float64),
        }

    def cross_entropy(self, weights, batch):
        policy = plain.part(weights, "policy")
        logits = plain.linear(policy, "logits", reference.torso(policy, batch.observation))
        loss, entropy = 0.0, 0.0
        for row, action in zip(logits, batch.action.tolist(), strict=True):
            probabilities = row.exp() / sum(row.exp())
            loss = loss - probabilities[action].log() / len(logits)
            entropy = entropy - sum(p * p.log() for p in probabilities) / len(logits)
        return loss, {"policy/entropy": entropy}

    def squared_error(self, weights, batch):
        """The mean over states and dimensions, in units of half the range of the dimension."""
        action, loss = plain.deterministic(weights, batch.observation), 0.0
        for b in range(len(action)):
            for d, (low, high) in enumerate(zip(self._low, self._high, strict=True)):
                unit = (torch.tensor(high) - torch.tensor(low)).item() / 2.0  # float32, as the bounds are
                loss = loss + ((action[b, d] - batch.action[b, d]) / unit) ** 2 / action.numel()
        return loss
