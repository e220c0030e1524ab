"""Learner steps of V-MPO do what a plain one does: all weights, multipliers, statistics and metrics."""

import itertools
import math

import pytest
import torch
from torch import distributions

from ..on_policy import reference, scene

OPTIONS = {
    **scene.OPTIONS,
    "m_steps": 2,
    "top_k_fraction": 0.6,
    "epsilon_temperature": 0.15,
    "epsilon_mean": 0.1,
    "epsilon_stddev": 0.02,
    "init_temperature": 1.3,
    "init_alpha": 2.0,
    "temperature_learning_rate": 0.05,
    "alpha_learning_rate": 0.2,
}
VARIATIONS = {  # beside those of how a rollout is prepared, as for PPO
    "plain advantages": {"normalize_advantages": False},
    "all samples": {"top_k_fraction": 1.0},
    "few samples": {"top_k_fraction": 0.2},
    "a falling learning rate": {"anneal_learning_rate": True},
    "clipped gradients": {"max_grad_norm": 0.3},
    "older weights": {"asynchronous": True},
}


class VMPOReference(reference.OnPolicyReference):
    """One step of the temperature, then a few times one of the alphas and one of policy and value.

    Song et al. 2019, "V-MPO". The alphas weigh a penalty as they were before their own step.
    """

    def __init__(self, *, generator, **parts):
        super().__init__(**parts)
        del generator  # Nothing is drawn.
        config = self.config
        self.duals = {
            name: torch.tensor(math.log(math.expm1(value)), dtype=torch.float64, requires_grad=True)
            for name, value in (
                ("temperature", config.init_temperature),
                ("alpha_mean", config.init_alpha),
                ("alpha_stddev", config.init_alpha),
            )
        }
        temperature, *alphas = self.duals.values()
        self.temperature_adam = self.make_adam([temperature], config.temperature_learning_rate)
        self.alpha_adam = self.make_adam(alphas, config.alpha_learning_rate)

    def numbers(self):
        duals = {f"{name}.raw": raw.detach().clone() for name, raw in self.duals.items()}
        return super().numbers() | duals

    def update(self, batch, rollout):
        config = self.config
        n = len(batch.advantage)
        advantage = batch.advantage
        if config.normalize_advantages:
            advantage = reference.normalized(advantage, n)
        # E-step: the best samples, weighed by the temperature as it is before its step.
        order = sorted(range(n), key=lambda i: advantage[i].item(), reverse=True)
        top = order[: math.floor(config.top_k_fraction * n)]
        eta = softplus(self.duals["temperature"])
        exponentials = [batch.weight[i] * torch.exp(advantage[i] / eta) for i in top]
        psi = [(exponential / sum(exponentials)).item() for exponential in exponentials]
        mean_exponential = sum(exponentials) / len(top)
        temperature_loss = eta * (config.epsilon_temperature + torch.log(mean_exponential))
        grad_norm = self.minimise(self.temperature_adam, temperature_loss)
        behaviour = behaviour_policy(rollout)
        if config.asynchronous:
            with torch.no_grad():
                behaviour = self.network.policy(batch.observation)
        for _ in range(config.m_steps):
            m_metrics = self._m_step(batch, behaviour, top, psi)
        return {
            **m_metrics,
            "loss/temperature": temperature_loss.item(),
            "grad_norm/temperature": grad_norm,
            "temperature": eta.item(),
            "policy/effective_sample_size": 1.0 / sum(weight**2 for weight in psi),
            "policy/selected_share": len(top) / n,
            "advantage/min": min(batch.advantage),
            "advantage/max": max(batch.advantage),
        }

    def _m_step(self, batch, behaviour, top, psi):
        config, metrics = self.config, {}
        policy, value = self.network.policy(batch.observation), self.network.value(batch.observation)
        # The KL of one part of the policy is that of a policy whose other part is the behaviour's.
        if reference.is_gaussian(policy):
            online, old = policy.base_dist, behaviour.base_dist
            kls = {
                "mean": kl(old, distributions.Normal(online.loc, old.scale)).sum(dim=1),
                "stddev": kl(old, distributions.Normal(old.loc, online.scale)).sum(dim=1),
            }
            metrics["policy/stddev_min"] = online.scale.min().item()
            metrics["policy/stddev_max"] = online.scale.max().item()
        else:
            kls = {"mean": kl(behaviour, policy)}
        epsilons = {"mean": config.epsilon_mean, "stddev": config.epsilon_stddev}
        log_prob = self.actions.log_prob(policy, batch.raw_action)
        policy_loss = -sum(weight * log_prob[i] for weight, i in zip(psi, top, strict=True))
        alpha_loss = 0.0
        for name, kl_n in kls.items():
            mean_kl = sum(kl_n[i] for i in top) / len(top)
            alpha = softplus(self.duals[f"alpha_{name}"])
            violation = epsilons[name] - mean_kl.item()
            alpha_loss = alpha_loss + alpha * violation
            policy_loss = policy_loss + alpha.item() * mean_kl
            metrics[f"kl/{name}_rel"] = mean_kl.item() / epsilons[name]
            metrics[f"alpha/{name}"] = alpha.item()
            metrics[f"loss/alpha_{name}"] = alpha.item() * violation
        n = len(value)
        value_loss = sum((value[i] - batch.target[i]) ** 2 for i in range(n)) / (2 * n)
        of_alphas = self.minimise(self.alpha_adam, alpha_loss)
        grad_norm = self.minimise(self.adam, policy_loss + value_loss, config.max_grad_norm)
        return {
            **metrics,
            "loss/policy": policy_loss.item(),
            "loss/value": value_loss.item(),
            # Of the raw action: that of a squashed one has no closed form.
            "policy/entropy": policy.entropy().mean().item(),
            "loss/network": (alpha_loss + policy_loss + value_loss).item(),
            "grad_norm/network": grad_norm,
            "grad_norm/alphas": of_alphas,
        }


def behaviour_policy(rollout):
    """The policy that the actions were drawn from, as the rollout has it."""
    parameters = rollout.extras.parameters
    if hasattr(parameters, "logits"):
        return distributions.Categorical(logits=parameters.logits.flatten(0, 1).double())
    return reference.gaussian(
        parameters.mean.flatten(0, 1).double(), parameters.log_std.flatten(0, 1).double()
    )


def softplus(raw):
    return torch.log(1.0 + torch.exp(raw))


def kl(p, q):
    return distributions.kl_divergence(p, q)


@pytest.mark.parametrize(("actions", "network"), scene.PAIRS[::2])  # of one torso or two, as for PPO
def test_steps_are_the_plain_ones_for_every_kind_of_action(vmpo_agent, actions, network):
    options = OPTIONS | scene.NETWORKS[network]
    seen = scene.check_steps(vmpo_agent, VMPOReference, actions, options, num_steps=2)
    assert not seen["gradients clipped"]


@pytest.mark.parametrize(
    ("actions", "variation"), [*zip(itertools.cycle(["squashed", "categorical"]), VARIATIONS, strict=False)]
)
def test_steps_are_the_plain_ones_for_every_setting(vmpo_agent, actions, variation):
    options = OPTIONS | scene.NETWORKS["two layer-norm torsos"] | VARIATIONS[variation]
    seen = scene.check_steps(vmpo_agent, VMPOReference, actions, options, num_steps=2)
    assert bool(seen["gradients clipped"]) == (variation == "clipped gradients")


@pytest.mark.parametrize("actions", ["squashed", "categorical"])
def test_steps_are_the_plain_ones_on_outliers(vmpo_agent, actions):
    options = OPTIONS | scene.NETWORKS["two layer-norm torsos"]
    seen = scene.check_steps(vmpo_agent, VMPOReference, actions, options, has_outliers=True)
    assert seen["observations beyond 10 deviations"] and seen["rewards beyond 10 deviations"]
