"""Learner steps of MPO with hybrid actions against those of `reference.py`, as in `test_reference_step.py`.

Shapes: D continuous entries of an action, C choices, K values of the largest one.
"""

import dataclasses

import numpy as np
import pytest
import torch

from minerva_acme import specs, testing
from minerva_acme.agents import mpo

from . import reference, test_reference_step
from .test_reference_step import CONFIG, HIGH, LOW

SIZES, STARTS = (3, 2), torch.tensor([0, 5])  # of the choices: the number of values, and the smallest


def logits_of(weights, observation):
    """[..., O] -> [C][..., values of the choice]."""
    features = reference.torso(weights, observation)
    logits = features @ weights["choices.logits.weight"].T + weights["choices.logits.bias"]
    rows = logits.unflatten(-1, (len(SIZES), max(SIZES))).unbind(dim=-2)
    return [row[..., :size] for row, size in zip(rows, SIZES, strict=True)]


def choices_of(weights, observation):
    return [torch.distributions.Categorical(logits=logits) for logits in logits_of(weights, observation)]


class Reference(reference.Reference):
    parts = ("mean", "stddev", "discrete")

    def step(self, batch):
        choices = batch.action["discrete"] - STARTS
        joined = torch.cat([batch.action["continuous"], choices], dim=-1)
        return super().step(batch._replace(action=joined))

    def draw(self, num_samples, states):
        continuous = super().draw(num_samples, states)
        shape = num_samples, *states.shape[:-1], len(SIZES), max(SIZES)
        noise = torch.empty(shape).exponential_(generator=self._generator).log_().double()
        choices = [
            (logits - noise[..., i, : SIZES[i]]).argmax(dim=-1)
            for i, logits in enumerate(logits_of(self.modules["target_policy"], states))
        ]
        return torch.cat([continuous, torch.stack(choices, dim=-1)], dim=-1)

    def log_prob(self, states, actions):
        policies = choices_of(self.modules["target_policy"], states)
        chosen = [policy.log_prob(actions[..., 2 + i]) for i, policy in enumerate(policies)]
        return super().log_prob(states, actions[..., :2]) + sum(chosen)

    def critic_input(self, action):
        one_hot = [action[..., 2 + i, None] == torch.arange(size) for i, size in enumerate(SIZES)]
        return torch.cat([action[..., :2], *one_hot], dim=-1)

    def _likelihood_loss(self, online, weights, batch, evaluation):
        continuous = evaluation._replace(actions=evaluation.actions[..., :2])
        loss = super()._likelihood_loss(online, weights, batch, continuous)
        policies = choices_of(online, self._improved_in(batch))
        for i, policy in enumerate(policies):
            log_prob = policy.log_prob(evaluation.actions[..., 2 + i].T).T
            loss = loss - (weights * log_prob).sum() / len(weights)
        return loss

    def _kls(self, online, batch, evaluation):
        states = self._improved_in(batch)
        pairs = zip(*(choices_of(w, states) for w in (self.modules["target_policy"], online)), strict=True)
        kls = torch.stack([torch.distributions.kl_divergence(old, new).mean() for old, new in pairs])
        discrete = kls if self._config.per_dimension_constraint else kls.sum().view(1)
        return [*super()._kls(online, batch, evaluation), discrete]

    def _penalties(self, actions):
        continuous = actions[..., :2]
        beyond = continuous - torch.minimum(torch.maximum(continuous, torch.tensor(LOW)), torch.tensor(HIGH))
        return -(beyond**2).sum(dim=-1)

    def of_policy(self, batch, evaluation):
        low, high = torch.tensor(LOW), torch.tensor(HIGH)
        drawn, mean = evaluation.actions[..., :2], evaluation.mean
        policies = choices_of(self.modules["target_policy"], self._improved_in(batch))
        return {
            "policy/stddev_min": evaluation.stddev.min(),
            "policy/stddev_max": evaluation.stddev.max(),
            "policy/entropy": sum(policy.entropy() for policy in policies).mean(),
            "policy/clipped_actions": ((drawn < low) | (drawn > high)).double().mean(),
            "policy/clipped_means": ((mean < low) | (mean > high)).double().mean(),
        }


class Case(test_reference_step.Case):
    reference_class = Reference

    def make_trajectory(self, config, seed):
        target_policy = self.before["target_policy"]
        trajectory = super().make_trajectory(config, seed)
        generator = torch.Generator().manual_seed(100 + seed)
        drawn, log_prob = [], trajectory.extras.log_prob
        for logits in logits_of(target_policy, trajectory.observation[:, :-1]):
            behaviour = (logits + 0.6 * torch.randn(logits.shape, generator=generator)).softmax(dim=-1)
            choice = torch.multinomial(behaviour.flatten(0, 1), 1, generator=generator).view(log_prob.shape)
            log_prob = log_prob + behaviour.gather(-1, choice[..., None]).log().squeeze(-1)
            drawn.append(choice)
        choices = torch.stack(drawn, dim=-1)
        raw_action = torch.cat([trajectory.extras.raw_action, choices.float()], dim=-1)
        return trajectory._replace(
            action={"continuous": trajectory.action, "discrete": (choices + STARTS).int()},
            extras=trajectory.extras._replace(log_prob=log_prob, raw_action=raw_action),
        )

    def randomised(self, modules):
        """With the reference's names: those of a Gaussian policy, and the logits."""
        return super().randomised(_renamed(modules, "gaussian.", ""))

    def as_learned(self, modules):
        for name in ("policy", "target_policy"):
            policy = modules[name]
            assert {key.split(".")[0] for key in policy} >= {"torso", "mean_head", "choices"}
        return _renamed(modules, "", "gaussian.")

    def learned(self):
        return _renamed(super().learned(), "gaussian.", "")


def _renamed(modules, old, new):
    def rename(key):
        return key if key.startswith("choices.") else new + key.removeprefix(old)

    renamed = {
        name: {rename(key): tensor for key, tensor in modules[name].items()}
        for name in ("policy", "target_policy")
    }
    return {**modules, **renamed}


@pytest.fixture
def spec():
    discrete = specs.BoundedArray((2,), np.int32, STARTS, STARTS + torch.tensor(SIZES) - 1, name="discrete")
    return specs.make_environment_spec(
        testing.FakeEnvironment(
            action_spec={
                "continuous": specs.BoundedArray((2,), np.float32, LOW, HIGH, name="continuous"),
                "discrete": discrete,
            }
        )
    )


OPTIONS = {
    "defaults": {},
    "KL bounds of sums, in all states": {"per_dimension_constraint": False, "policy_loss_steps": "all"},
    "n-step, learned temperature, penalty": {
        "critic_target": "n_step",
        "critic_loss_steps": "all",
        "temperature": "learned",
        "action_penalty": True,
        "m_steps": 2,
    },
}


@pytest.mark.parametrize("overrides", OPTIONS.values(), ids=OPTIONS)
def test_steps_with_hybrid_actions_are_those_of_the_reference(spec, overrides):
    config = dataclasses.replace(CONFIG, epsilon_discrete=0.02, **overrides)
    mpo.MPOBuilder(config).check_spec(spec)
    test_reference_step.check_steps(spec, config, Case)
