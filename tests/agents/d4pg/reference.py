"""A learner step of D4PG written out by hand: float64, the projection by loops over states and atoms."""

import math

import torch

from .. import plain


class Reference:
    """The weights, and a step of plain gradient descent on each loss."""

    def __init__(self, modules, generator, *, config):
        """Takes weights by module; nothing is drawn."""
        self.modules = modules
        self._config = config
        self._num_steps = 0
        self._atoms = [
            config.vmin + i * (config.vmax - config.vmin) / (config.num_bins - 1)
            for i in range(config.num_bins)
        ]

    def projected(self, reward, discount, probabilities):
        """The categorical algorithm, as Bellemare et al. 2017 write it down (algorithm 1)."""
        config = self._config
        gap = (config.vmax - config.vmin) / (config.num_bins - 1)
        targets = torch.zeros_like(probabilities)
        for b in range(len(reward)):
            for atom, probability in zip(self._atoms, probabilities[b], strict=True):
                z = min(max(reward[b].item() + discount[b].item() * atom, config.vmin), config.vmax)
                place = (z - config.vmin) / gap
                lower, upper = math.floor(place), math.ceil(place)
                if lower == upper:
                    targets[b, lower] += probability
                else:
                    targets[b, lower] += probability * (upper - place)
                    targets[b, upper] += probability * (place - lower)
        return targets

    def mean(self, logits):
        return (torch.softmax(logits, dim=-1) * torch.tensor(self._atoms, dtype=torch.float64)).sum(dim=-1)

    def step(self, batch):
        self._num_steps += 1
        modules, config = self.modules, self._config
        critic = plain.leaves(modules["critic"])
        with torch.no_grad():
            action = plain.deterministic(modules["target_policy"], batch.next_observation)
            logits = plain.head(modules["target_critic"], 0, batch.next_observation, action)
            probabilities = torch.softmax(logits, dim=-1)
            targets = self.projected(batch.reward, batch.discount, probabilities)
            returns = batch.reward + batch.discount * self.mean(logits)
        logits = plain.head(critic, 0, batch.observation, batch.action)
        critic_loss = -(targets * torch.log_softmax(logits, dim=-1)).sum(dim=-1).mean()
        modules["critic"], critic_norm = plain.descend(
            critic, critic_loss, config.critic_learning_rate, config.max_grad_norm
        )
        policy = plain.leaves(modules["policy"])
        action = plain.deterministic(policy, batch.observation)
        points = action.detach().clone().requires_grad_(True)
        q = self.mean(plain.head(modules["critic"], 0, batch.observation, points))
        (slope,) = torch.autograd.grad(q.sum(), points)
        policy_loss = 0.0
        for b in range(len(slope)):
            factor = min(1.0, config.max_action_gradient / slope[b].norm().item())
            policy_loss = policy_loss - (factor * slope[b] * action[b]).sum() / len(slope)
        modules["policy"], policy_norm = plain.descend(
            policy, policy_loss, config.policy_learning_rate, config.max_grad_norm
        )
        for name, period in (
            ("policy", config.target_policy_update_period),
            ("critic", config.target_critic_update_period),
        ):
            if self._num_steps % period == 0:
                modules[f"target_{name}"] = dict(modules[name])
        return {
            "loss/critic": critic_loss,
            "grad_norm/critic": critic_norm,
            "q/mean": self.mean(logits).mean(),
            "q/target": returns.mean(),
            "loss/policy": policy_loss,
            "grad_norm/policy": policy_norm,
            "policy/q": q.mean(),
            "policy/dq_da": slope.norm(dim=-1).mean(),
        }
