"""Learner steps of PPO do what a plain one does: all weights, statistics and metrics."""

import itertools

import pytest
import torch

from ..on_policy import reference, scene

OPTIONS = {
    **scene.OPTIONS,
    "num_epochs": 2,
    "minibatch_size": 12,
    "clip_ratio": 0.2,
    "clip_value": False,
    "value_coef": 0.6,
    "entropy_coef": 0.05,
    "target_kl": None,
}
VARIATIONS = {
    "one-step advantages": {"advantage_estimator": "dae"},
    "returns": {"advantage_estimator": "returns"},
    "plain advantages": {"normalize_advantages": False},
    "clipped values": {"clip_value": True},
    "an early stop": {"num_epochs": 6, "target_kl": 0.15},
    "one minibatch": {"minibatch_size": scene.T * scene.E},
    "a falling learning rate": {"anneal_learning_rate": True},
    "clipped gradients": {"max_grad_norm": 0.3},
    "older weights": {"asynchronous": True},
    "no statistics": {"normalize_observations": False, "scale_rewards": False},
}
# What the gradient steps by autograd do themselves; the rest is around them.
OF_STEPS = ("plain advantages", "clipped values", "a falling learning rate", "clipped gradients")


class PPOReference(reference.OnPolicyReference):
    """Epochs of clipped policy gradients.

    Schulman et al. 2017, "Proximal policy optimization algorithms". The order of the samples is part of
    the contract: each epoch draws one permutation of the n samples, time first, from the learner's
    generator, and cuts it by `tensor_split` into n // minibatch_size parts.
    """

    def __init__(self, *, generator, **parts):
        super().__init__(**parts)
        self.generator = generator

    def update(self, batch, rollout):
        config = self.config
        n = len(batch.value)
        rows, num_epochs = [], 0
        for _ in range(config.num_epochs):
            order = torch.randperm(n, generator=self.generator)
            for indices in order.tensor_split(n // config.minibatch_size):
                rows.append(self._gradient_step(reference.Batch(*(column[indices] for column in batch))))
            num_epochs += 1
            if config.target_kl and rows[-1]["approx_kl"] > config.target_kl:
                self.seen["early stops"] += num_epochs < config.num_epochs
                break
        self.seen["epochs after the first"] += num_epochs - 1

        def mean(name):
            return sum(row[name] for row in rows) / len(rows)

        return {
            "loss/network": mean("total"),
            **{f"loss/{name}": mean(name) for name in ("policy", "value")},
            "policy/entropy": mean("entropy"),
            "policy/clip_fraction": mean("clip_fraction"),
            "grad_norm/network": mean("grad_norm"),
            "policy/approx_kl_first": rows[0]["approx_kl"],
            "policy/approx_kl": rows[-1]["approx_kl"],
            "epochs": num_epochs,
            **({"kl/approx_rel": rows[-1]["approx_kl"] / config.target_kl} if config.target_kl else {}),
        }

    def _gradient_step(self, batch):
        config = self.config
        n = len(batch.value)
        advantage = batch.advantage
        if config.normalize_advantages:
            advantage = reference.normalized(advantage, n - 1)
        advantage = batch.weight * advantage
        policy, value = self.network.policy(batch.observation), self.network.value(batch.observation)
        log_ratio = policy.log_prob(batch.raw_action) - batch.log_prob
        surrogate, squares, approx_kl, num_beyond = 0.0, 0.0, 0.0, 0
        for i in range(n):
            ratio = torch.exp(log_ratio[i])
            surrogate = surrogate + self._surrogate(ratio, advantage[i])
            squares = squares + self._squared_error(value[i], batch.value[i], batch.target[i])
            approx_kl = approx_kl + (ratio - 1.0 - log_ratio[i]).item()
            num_beyond += abs(ratio.item() - 1.0) > config.clip_ratio
        assert log_ratio.abs().max() < 20.0, "Ratios this far from 1 are no matter of these tests."
        policy_loss, value_loss = -surrogate / n, squares / (2 * n)
        entropy = policy.entropy().mean()  # of the raw action
        total = policy_loss + config.value_coef * value_loss - config.entropy_coef * entropy
        return {
            "total": total.item(),
            "policy": policy_loss.item(),
            "value": value_loss.item(),
            "entropy": entropy.item(),
            "approx_kl": approx_kl / n,
            "clip_fraction": num_beyond / n,
            "grad_norm": self.minimise(self.adam, total, config.max_grad_norm),
        }

    def _surrogate(self, ratio, advantage):
        """What is raised: no reward for going on where the ratio has gone far enough already."""
        low, high = 1.0 - self.config.clip_ratio, 1.0 + self.config.clip_ratio
        side = "above" if ratio > 2.0 * high else "below" if ratio < 0.5 * low else "within"
        self.seen[f"ratio far {side}, {'good' if advantage > 0 else 'bad'} action"] += 1
        if advantage > 0 and ratio > high:
            return high * advantage
        if advantage < 0 and ratio < low:
            return low * advantage
        return ratio * advantage

    def _squared_error(self, value, old_value, target):
        squared_error = (value - target) ** 2
        if not self.config.clip_value:
            return squared_error
        change = (value - old_value).clamp(-self.config.clip_ratio, self.config.clip_ratio)
        clipped = (old_value + change - target) ** 2
        self.seen["clipped values that are further off"] += int(clipped > squared_error)
        return max(squared_error, clipped)


@pytest.mark.parametrize(("actions", "network"), scene.PAIRS)
def test_steps_are_the_plain_ones_for_every_network(ppo_agent, actions, network):
    options = OPTIONS | scene.NETWORKS[network] | {"num_epochs": 3}
    seen = scene.check_steps(ppo_agent, PPOReference, actions, options, num_steps=2)
    for side, action in itertools.product(("above", "below"), ("good", "bad")):
        assert seen[f"ratio far {side}, {action} action"]


# By arrays, and by autograd.
@pytest.mark.parametrize(
    ("actions", "torso", "variation"),
    [
        *(("squashed", "tanh", variation) for variation in VARIATIONS),
        *(("categorical", "layer_norm", variation) for variation in OF_STEPS),
    ],
)
def test_steps_are_the_plain_ones_for_every_setting(ppo_agent, actions, torso, variation):
    options = OPTIONS | scene.NETWORKS["two tanh torsos"] | {"torso": torso} | VARIATIONS[variation]
    seen = scene.check_steps(ppo_agent, PPOReference, actions, options, num_steps=2)
    assert bool(seen["gradients clipped"]) == (variation == "clipped gradients")
    assert bool(seen["clipped values that are further off"]) == (variation == "clipped values")
    assert bool(seen["early stops"]) == (variation == "an early stop")
    assert seen["epochs after the first"] or variation == "an early stop"


@pytest.mark.parametrize(("actions", "torso"), [("squashed", "tanh"), ("categorical", "layer_norm")])
def test_steps_are_the_plain_ones_on_outliers(ppo_agent, actions, torso):
    options = OPTIONS | scene.NETWORKS["two tanh torsos"] | {"torso": torso}
    seen = scene.check_steps(ppo_agent, PPOReference, actions, options, has_outliers=True)
    assert seen["observations beyond 10 deviations"] and seen["rewards beyond 10 deviations"]
