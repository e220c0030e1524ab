"""Learner steps of MPO with discrete actions against those written out by hand: loops, in float64.

As in `test_reference_step.py`, three steps are made from a state in which nothing is special. Nothing is
drawn in them: expectations over actions are sums over all of them.
"""

import copy
import dataclasses
import math
from typing import NamedTuple

import numpy as np
import pytest
import torch
from scipy import optimize

from minerva_acme import builders, counting, specs, testing, types
from minerva_acme.agents import mpo

from . import reference
from .test_reference_step import CONFIG, FIRST_STEP, MASKS, NUM_STEPS, Sample, in_float64, largest, movements

NUM_ACTIONS = 4


class Evaluation(NamedTuple):
    """What the target networks say of a batch."""

    critic_targets: torch.Tensor  # [B, T]  NaN at masked steps
    prior: list[list[float]]  # [B][K]  target policy at each sequence's first state
    q_values: list[list[float]]  # [B][K]


def probabilities(weights, observation):
    """[O] -> [K]."""
    logits = weights["logits.weight"] @ reference.torso(weights, observation) + weights["logits.bias"]
    unnormalised = logits.exp()
    return unnormalised / unnormalised.sum()


def values(weights, observation):
    """[O] -> [K]."""
    return weights["head.weight"] @ reference.torso(weights, observation) + weights["head.bias"]


class Reference(reference.Reference):
    """The learner's parameters in float64, and a step on them."""

    def evaluate(self, batch):
        with torch.no_grad():
            firsts = batch.observation[:, 0]
            return Evaluation(
                self._critic_targets(batch),
                [probabilities(self.modules["target_policy"], first).tolist() for first in firsts],
                [values(self.modules["target_critic"], first).tolist() for first in firsts],
            )

    def _critic_targets(self, batch):
        batch_size, length = batch.reward.shape
        targets = torch.full((batch_size, length), math.nan, dtype=torch.float64)
        for b in range(batch_size):
            policy, q = [], []
            for t in range(length + 1):
                policy.append(probabilities(self.modules["target_policy"], batch.observation[b, t]).tolist())
                q.append(values(self.modules["target_critic"], batch.observation[b, t]).tolist())
            value = [sum(policy[t][a] * q[t][a] for a in range(NUM_ACTIONS)) for t in range(length + 1)]
            action = [int(a) for a in batch.action[b]]
            taken = [q[t][action[t]] for t in range(length)]
            ratio = [
                policy[t][action[t]] / math.exp(batch.extras.log_prob[b, t].item()) for t in range(length)
            ]
            for t in range(length):
                if batch.mask[b, t]:
                    targets[b, t] = self._critic_target(batch, b, t, taken, value, ratio)
        return targets

    def _update_critic(self, batch, evaluation):
        weights = self._leaves("critic")
        num_steps = 1 if self._config.critic_loss_steps == "first" else batch.reward.shape[1]
        errors = []
        for b in range(len(batch.reward)):
            for t in range(num_steps):
                if batch.mask[b, t]:
                    q = values(weights, batch.observation[b, t])[int(batch.action[b, t])]
                    errors.append(q - evaluation.critic_targets[b, t])
        loss = sum(error**2 for error in errors) / len(errors)
        grad_norm = self._descend(
            "critic", weights, loss, self._config.critic_learning_rate, self._config.max_grad_norm
        )
        q_values = torch.tensor(evaluation.q_values)
        return {"loss/critic": loss, "grad_norm/critic": grad_norm, **self.ranges(q_values)}

    def _update_duals_and_policy(self, batch, evaluation):
        config, num_states = self._config, len(batch.reward)
        duals = self._leaves("duals")
        temperature = reference.multiplier(duals["temperature.raw"])
        if config.temperature == "solved":
            temperature = torch.tensor(self._solved(evaluation)).clamp(min=self.floor(0))
        dual, weights, kl_to_prior, entropy = config.epsilon * temperature, [], 0.0, 0.0
        for prior, q in zip(evaluation.prior, evaluation.q_values, strict=True):
            unnormalised = [prior[a] * (q[a] / temperature).exp() for a in range(NUM_ACTIONS)]
            dual = dual + temperature * sum(unnormalised).log() / num_states
            improved = [(w / sum(unnormalised)).item() for w in unnormalised]
            weights.append(improved)
            kl_to_prior += sum(w * math.log(w / p) for w, p in zip(improved, prior, strict=True)) / num_states
            entropy -= sum(w * math.log(w) for w in improved) / num_states

        kl = self._kl(self.modules["policy"], batch, evaluation)
        alpha_loss = reference.multiplier(duals["alpha_mean.raw"])[0] * (config.epsilon_mean - kl.detach())
        of_temperature, duals_loss, norms = {"temperature": temperature}, alpha_loss, []
        if config.temperature == "learned":
            leaves = {"temperature.raw": duals["temperature.raw"]}
            norms.append(self._descend("duals", leaves, dual, config.temperature_learning_rate))
            duals_loss = duals_loss + dual
            learned = reference.multiplier(self.modules["duals"]["temperature.raw"])
            of_temperature = {"temperature": learned, "loss/temperature": dual}
        leaves = {"alpha_mean.raw": duals["alpha_mean.raw"]}
        norms.append(self._descend("duals", leaves, alpha_loss, config.alpha_learning_rate))
        alpha = reference.multiplier(self.modules["duals"]["alpha_mean.raw"])[0]

        for _ in range(config.m_steps):
            online = self._leaves("policy")
            cross_entropy = 0.0
            for b in range(num_states):
                new = probabilities(online, batch.observation[b, 0])
                cross_entropy = cross_entropy - sum(weights[b][a] * new[a].log() for a in range(NUM_ACTIONS))
            loss = cross_entropy / num_states + alpha * self._kl(online, batch, evaluation)
            rate = config.policy_learning_rate / config.m_steps
            grad_norm = self._descend("policy", online, loss, rate, config.max_grad_norm)

        prior_entropy = -sum(p * math.log(p) for prior in evaluation.prior for p in prior) / num_states
        return {
            **of_temperature,
            "loss/policy": loss,
            "loss/duals": duals_loss,
            "grad_norm/duals": sum(norm**2 for norm in norms).sqrt(),
            "loss/alpha_mean": alpha_loss,
            "kl/q_rel": torch.tensor(kl_to_prior / config.epsilon),
            "kl/mean_rel": kl / config.epsilon_mean,
            "alpha/mean": alpha,
            "policy/entropy": torch.tensor(prior_entropy),
            "policy/entropy_weights": torch.tensor(entropy),
            "policy/clipped_actions": torch.tensor(0.0),
            "policy/clipped_means": torch.tensor(0.0),
            "grad_norm/policy": grad_norm,
        }

    def _solved(self, evaluation):
        """The temperature at which the weights' KL to the prior is epsilon."""

        def excess(log_temperature):
            total = 0.0
            for prior, q in zip(evaluation.prior, evaluation.q_values, strict=True):
                unnormalised = [
                    p * math.exp(v / math.exp(log_temperature)) for p, v in zip(prior, q, strict=True)
                ]
                improved = [w / sum(unnormalised) for w in unnormalised]
                total += sum(w * math.log(w / p) for w, p in zip(improved, prior, strict=True))
            return total / len(evaluation.prior) - self._config.epsilon

        return math.exp(optimize.brentq(excess, -5.0, 5.0))

    def _kl(self, online, batch, evaluation):
        """KL(target || online), mean over the first states."""
        total = 0.0
        for b, prior in enumerate(evaluation.prior):
            new = probabilities(online, batch.observation[b, 0])
            total = total + sum(p * (math.log(p) - new[a].log()) for a, p in enumerate(prior))
        return total / len(evaluation.prior)


@pytest.fixture
def spec():
    return specs.EnvironmentSpec(
        observations=specs.Array((3,), np.float32, name="observation"),
        actions=specs.DiscreteArray(NUM_ACTIONS, name="action"),
        rewards=specs.Array((), np.float32, name="reward"),
        discounts=specs.BoundedArray((), np.float32, 0.0, 1.0, name="discount"),
    )


def make_trajectory(target_policy, seed):
    """Random sequences of a behaviour around the target policy; what masked rows hold is random, too."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.tensor(MASKS, dtype=torch.float32)
    batch_size, length = mask.shape
    observation = torch.randn(batch_size, length + 1, 3, generator=generator)
    for b in range(batch_size):
        last = int(mask[b].nonzero().max()) + 1
        observation[b, last:] = observation[b, last]
    policy = torch.stack([probabilities(target_policy, row) for row in observation[:, :-1].flatten(0, 1)])
    behaviour = (policy.log() + 0.6 * torch.randn(policy.shape, generator=generator)).softmax(dim=-1)
    action = torch.multinomial(behaviour, 1, generator=generator)
    log_prob = behaviour.gather(-1, action).log().view(batch_size, length)
    action = action.view(batch_size, length)
    kinds = torch.tensor([1.0, 1.0, 1.0, 0.6, 0.0])
    return types.Trajectory(
        observation=observation,
        action=action.int(),
        reward=torch.randn(batch_size, length, generator=generator),
        discount=kinds[torch.randint(len(kinds), mask.shape, generator=generator)],
        mask=mask,
        extras=mpo.BehaviourExtras(log_prob=log_prob, raw_action=action),
    )


def randomised(modules):
    generator = torch.Generator().manual_seed(0)

    def normal(tensor, scale):
        return scale * torch.randn(tensor.shape, generator=generator)

    modules = copy.deepcopy(modules)
    for name in ("policy", "critic"):
        for key, tensor in modules[f"target_{name}"].items():
            if key.endswith("bias"):
                new = normal(tensor, 0.3)
            elif tensor.ndim == 1:
                new = 1.0 + normal(tensor, 0.3)
            else:
                new = normal(tensor, 1.5 / tensor.shape[1] ** 0.5)
            modules[f"target_{name}"][key] = new
            modules[name][key] = new + normal(tensor, 0.1)
    for key, tensor in modules["duals"].items():
        modules["duals"][key] = 0.2 + torch.rand(tensor.shape, generator=generator)
    return modules


def check_steps(spec, config):
    """Compares all parameters and all logged numbers after each step; returns the rows."""
    generator = torch.Generator().manual_seed(0)
    builder = mpo.MPOBuilder(config)
    builder.check_spec(spec)
    batches, logger = [], testing.FakeLogger()
    learner = builder.make_learner(
        builders.LearnerParts(
            networks=builder.make_networks(spec, generator),
            dataset=(Sample(batch) for batch in batches),
            spec=spec,
            counter=counting.Counter(),
            logger=logger,
            generator=generator,
            device=torch.device("cpu"),
        )
    )
    state = learner.save()
    before = randomised(state["modules"])
    learner.restore({**state, "modules": before, "num_steps": FIRST_STEP})
    batches += [make_trajectory(before["target_policy"], seed) for seed in range(NUM_STEPS)]
    expected = Reference(before, config=config, num_steps=FIRST_STEP, num_updates=100, generator=generator)
    noise = generator.get_state()
    for step, batch in enumerate(batches):
        learner.step()
        metrics = expected.step(in_float64(batch))
        row = dict(logger.rows[-1])
        assert (row.pop("steps"), row.pop("skipped_batches")) == (step + 1, 0)
        del row["walltime"]
        assert row.keys() == metrics.keys()
        for name, value in metrics.items():
            assert float(row[name]) == pytest.approx(value, rel=1e-4, abs=1e-5), name
        moved = movements(learner.save()["modules"], before)
        for (module, name), movement in movements(expected.modules, before).items():
            error = largest(moved[module, name] - movement)
            bound = 1e-4 * largest(movement) + 1e-7 * largest(before[module][name])
            assert error <= bound, f"{module}/{name} has moved {error:.2g} off after step {step}"
    assert torch.equal(generator.get_state(), noise)
    return logger.rows


@pytest.mark.parametrize(
    ("critic_target", "critic_loss_steps"),
    [("retrace", "first"), ("retrace", "all"), ("n_step", "all"), ("one_step", "first")],
)
def test_steps_are_those_of_the_reference(spec, critic_target, critic_loss_steps):
    config = dataclasses.replace(CONFIG, critic_target=critic_target, critic_loss_steps=critic_loss_steps)
    rows = check_steps(spec, config)
    assert max(float(row["grad_norm/critic"]) for row in rows) < CONFIG.max_grad_norm
    assert max(float(row["kl/mean_rel"]) for row in rows) > 0.1


def test_several_steps_within_one_bound_are_those_of_the_reference(spec):
    check_steps(spec, dataclasses.replace(CONFIG, m_steps=2, per_dimension_constraint=False))
