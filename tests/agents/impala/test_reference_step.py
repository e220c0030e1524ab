"""Learner steps of IMPALA do what a plain one does: all weights, statistics and metrics."""

import pytest

from ..on_policy import reference, scene

OPTIONS = {**scene.OPTIONS, "gae_lambda": 1.0, "value_coef": 0.6, "entropy_coef": 0.05}
VARIATIONS = {
    "short traces": {"gae_lambda": 0.7},
    "one-step advantages": {"gae_lambda": 0.7, "advantage_estimator": "dae"},
    "returns": {"gae_lambda": 0.7, "advantage_estimator": "returns"},
    "normalised advantages": {"normalize_advantages": True},
    "actors in rounds": {"asynchronous": False},
    "a falling learning rate": {"anneal_learning_rate": True},
    "clipped gradients": {"max_grad_norm": 0.3},
}


class IMPALAReference(reference.OnPolicyReference):
    """One gradient step on each rollout: Espeholt et al. 2018, "IMPALA", section 4.2, means for sums."""

    def __init__(self, *, generator, **parts):
        super().__init__(**parts)
        del generator  # Nothing is drawn.

    def update(self, batch, rollout):
        config, n = self.config, len(batch.value)
        advantage = batch.advantage
        if config.normalize_advantages:
            advantage = reference.normalized(advantage, n - 1)
        advantage = batch.weight * advantage
        policy, value = self.network.policy(batch.observation), self.network.value(batch.observation)
        log_prob = policy.log_prob(batch.raw_action)
        policy_loss = -sum(log_prob[i] * advantage[i] for i in range(n)) / n
        value_loss = sum((value[i] - batch.target[i]) ** 2 for i in range(n)) / (2 * n)
        entropy = policy.entropy().mean()  # of the raw action
        total = policy_loss + config.value_coef * value_loss - config.entropy_coef * entropy
        return {
            "loss/network": total.item(),
            "loss/policy": policy_loss.item(),
            "loss/value": value_loss.item(),
            "policy/entropy": entropy.item(),
            "grad_norm/network": self.minimise(self.adam, total, config.max_grad_norm),
        }


@pytest.mark.parametrize("actions", scene.ACTIONS)
def test_steps_are_the_plain_ones_for_every_kind_of_action(impala_agent, actions):
    options = OPTIONS | scene.NETWORKS["two tanh torsos"]
    seen = scene.check_steps(impala_agent, IMPALAReference, actions, options)
    assert seen["ratios beyond 1"] > 20 and not seen["gradients clipped"]


@pytest.mark.parametrize("variation", VARIATIONS)
def test_steps_are_the_plain_ones_for_every_setting(impala_agent, variation):
    options = OPTIONS | scene.NETWORKS["one layer-norm torso"] | VARIATIONS[variation]
    seen = scene.check_steps(impala_agent, IMPALAReference, "categorical", options, num_steps=2)
    assert bool(seen["gradients clipped"]) == (variation == "clipped gradients")
    assert bool(seen["ratios beyond 1"]) == (variation != "actors in rounds")
