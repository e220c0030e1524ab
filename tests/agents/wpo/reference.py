"""A learner step of WPO written out by hand: float64, torch's distributions, loops over states."""

import torch
from torch import distributions

from .. import plain
from ..mpo import reference


class Reference:
    """The weights, and a step of plain gradient descent on each loss."""

    def __init__(self, modules, generator, *, config):
        """Takes weights, and a generator in the learner's state, which draws [N, B, D] twice a step."""
        self.modules = modules
        self._generator = generator
        self._config = config
        self._num_steps = 0

    def policy(self, weights, observation):
        return distributions.Normal(*reference.policy_of(plain.part(weights, "policy"), observation))

    def values(self, weights, observation, action):
        """Q(s, a) of each critic, [B] each."""
        number = plain.num_members(weights)
        return [plain.head(weights, i, observation, action)[:, 0] for i in range(number)]

    def drawn(self, policy):
        """N samples, a list of [B, D]."""
        shape = self._config.num_samples, *policy.mean.shape
        noise = torch.randn(shape, generator=self._generator, dtype=torch.float64)
        return [(policy.mean + policy.stddev * one).detach() for one in noise]

    def step(self, batch):
        self._num_steps += 1
        modules, config = self.modules, self._config
        samples = self.drawn(self.policy(modules["target_policy"], batch.next_observation))
        after = torch.zeros(len(batch.reward), dtype=torch.float64)
        for action in samples:
            members = self.values(modules["target_critic"], batch.next_observation, action)
            for b in range(len(after)):
                after[b] += min(q[b].item() for q in members) / len(samples)
        target = batch.reward + batch.discount * after
        critic = plain.leaves(modules["critic"])
        taken = self.values(critic, batch.observation, batch.action)
        critic_loss = sum((q - target).square().mean() for q in taken)
        modules["critic"], critic_norm = plain.descend(critic, critic_loss, config.learning_rate)

        weights = plain.leaves(modules["policy"])
        policy = self.policy(weights, batch.observation)
        of_target = self.policy(modules["target_policy"], batch.observation)
        samples = self.drawn(policy)
        # Of each state and sample, the gradient of its value, and that of log pi there.
        parts = list(zip(policy.mean, policy.stddev, strict=True))
        surrogate, value, sizes, qs = 0.0, 0.0, [], []
        for b, (mean, stddev) in enumerate(parts):
            for action in samples:
                a = action[b].clone().requires_grad_()
                members = self.values(modules["critic"], batch.observation[b : b + 1], a[None])
                q = min(members, key=lambda member: member.item())
                (dq_da,) = torch.autograd.grad(q.sum(), a)
                qs.append(q.item())
                sizes.append(dq_da.norm().item())
                if config.cube_root:
                    dq_da = torch.stack([x.abs() ** (1 / 3) * (1 if x > 0 else -1) for x in dq_da])
                log_prob = distributions.Normal(mean, stddev).log_prob(a).sum()
                (score,) = torch.autograd.grad(log_prob, a, create_graph=True)
                change = -(score * dq_da.detach()).sum() / (len(samples) * len(parts))
                value = value + change.item()
                by_mean, by_stddev = torch.autograd.grad(change, [mean, stddev], retain_graph=True)
                variance = stddev.detach() ** 2  # the inverse Fisher information of the mean
                surrogate = surrogate + (variance * by_mean * mean + variance / 2 * by_stddev * stddev).sum()
        kls = [
            distributions.kl_divergence(of_target, distributions.Normal(mean, stddev)).sum(dim=-1).mean()
            for mean, stddev in ((policy.mean, of_target.stddev), (of_target.mean, policy.stddev))
        ]
        penalty = config.kl_weight_mean * kls[0] + config.kl_weight_stddev * kls[1]
        modules["policy"], policy_norm = plain.descend(weights, surrogate + penalty, config.learning_rate)
        if self._num_steps % config.target_update_period == 0:
            for name in ("policy", "critic"):
                modules[f"target_{name}"] = dict(modules[name])
        return {
            "loss/critic": critic_loss,
            "grad_norm/critic": critic_norm,
            "q/mean": torch.stack(taken).min(dim=0).values.mean(),
            "q/target": target.mean(),
            "loss/policy": value + penalty,
            "grad_norm/policy": policy_norm,
            "policy/q": torch.tensor(qs, dtype=torch.float64).mean(),
            "policy/dq_da": torch.tensor(sizes, dtype=torch.float64).mean(),
            "policy/stddev_min": policy.stddev.min(),
            "policy/stddev_max": policy.stddev.max(),
            "kl/mean": kls[0],
            "kl/stddev": kls[1],
        }
