"""What PPO and V-MPO compute before their losses, written again: plain loops in double precision.

The tests of one learner step compare against this. It takes from the library only what goes in: a config,
a rollout and a network's first state dict. Networks, statistics, densities, targets and clipping are
written out, densities by `torch.distributions`; none of the library's maths is called.

Shapes: T steps of each of E environments, n = T * E samples with time first, O observation size, D action
dimensions, K discrete actions.
"""

import collections
import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import distributions

from minerva_acme import specs


class Statistics:
    """Mean and population variance of all rows ever seen, computed anew from all of them.

    The first mean and variance weigh as much as `count` rows.
    """

    def __init__(self, mean, var, count):
        self._first = (mean.double(), var.double(), float(count))
        self._rows = []
        self.mean, self.var, self.count = self._first

    def update(self, rows):
        """Takes in rows, [n, O]."""
        self._rows += list(rows.double())
        mean, var, count = self._first
        self.count = count + len(self._rows)
        self.mean = (count * mean + sum(self._rows)) / self.count
        squares = count * (var + (mean - self.mean) ** 2)
        for row in self._rows:
            squares = squares + (row - self.mean) ** 2
        self.var = squares / self.count

    def numbers(self):
        return {"mean": self.mean, "var": self.var, "count": torch.tensor(self.count).double()}


class Network:
    """An actor-critic with the weights of a state dict, whose names are read here and nowhere else."""

    def __init__(self, state: Mapping[str, torch.Tensor], torso: str) -> None:
        self._torso = torso
        self.statistics = None
        if "normalizer.mean" in state:
            self.statistics = Statistics(
                *(torch.as_tensor(state[f"normalizer.{name}"]) for name in ("mean", "var", "count"))
            )
        self.parameters = {
            name: torch.as_tensor(value).double().clone().requires_grad_()
            for name, value in state.items()
            if not name.startswith("normalizer.")
        }

    def numbers(self):
        """Parameters and statistics, by the names of the state dict."""
        numbers = {name: value.detach().clone() for name, value in self.parameters.items()}
        if self.statistics is not None:
            numbers |= {f"normalizer.{name}": value for name, value in self.statistics.numbers().items()}
        return numbers

    def normalize(self, observation, seen):
        """[n, O]: (x - mean) / sqrt(var + 1e-8), at most 10 either way."""
        if self.statistics is None:
            return observation
        normalized = (observation - self.statistics.mean) / torch.sqrt(self.statistics.var + 1e-8)
        seen["observations beyond 10 deviations"] += int((normalized.abs() > 10.0).sum())
        return normalized.clamp(-10.0, 10.0)

    def policy(self, observation):
        """The distribution of raw actions at normalised observations [n, O]."""
        features = self._features("policy_torso", observation)
        if "policy_head.logits.weight" in self.parameters:
            return distributions.Categorical(logits=self._linear("policy_head.logits", features))
        mean = self._linear("policy_head.mean_head", features)
        if "policy_head.log_std" in self.parameters:
            log_std = self.parameters["policy_head.log_std"].expand_as(mean)
        else:
            log_std = self._linear("policy_head.log_std_head", features)
        return gaussian(mean, log_std.clamp(-20.0, 2.0))

    def value(self, observation):
        """The values of normalised observations, [n, O] -> [n]."""
        is_shared = "value_torso.0.weight" not in self.parameters
        features = self._features("policy_torso" if is_shared else "value_torso", observation)
        return self._linear("value_head", features)[:, 0]

    def _features(self, name, x):
        layers = sorted(
            int(key.split(".")[1])
            for key in self.parameters
            if key.startswith(f"{name}.") and key.endswith(".weight")
        )
        if self._torso == "tanh":
            for index in layers:
                x = torch.tanh(self._linear(f"{name}.{index}", x))
            return x
        first, norm, *others = layers
        x = self._linear(f"{name}.{first}", x)
        x = x - x.mean(dim=1, keepdim=True)
        x = x / torch.sqrt((x**2).mean(dim=1, keepdim=True) + 1e-5)
        x = x * self.parameters[f"{name}.{norm}.weight"] + self.parameters[f"{name}.{norm}.bias"]
        x = torch.tanh(x)
        for index in others:
            x = self._linear(f"{name}.{index}", x)
            x = torch.where(x > 0.0, x, torch.exp(x) - 1.0)
        return x

    def _linear(self, name, x):
        return x @ self.parameters[f"{name}.weight"].T + self.parameters[f"{name}.bias"]


def gaussian(mean, log_std):
    """Independent Gaussians of D dimensions."""
    return distributions.Independent(distributions.Normal(mean, torch.exp(log_std)), 1)


def is_gaussian(policy):
    return not isinstance(policy, distributions.Categorical)


class Actions:
    """How raw actions become executed ones, and the density of these."""

    def __init__(self, spec: specs.EnvironmentSpec, squash: bool) -> None:
        self._squash = None
        self._bounds = None
        if isinstance(spec.actions, specs.DiscreteArray):
            return
        low, high = (torch.from_numpy(bound.copy()).double() for bound in specs.bounds(spec.actions))
        self._bounds = (low, high)
        if squash:
            self._squash = [
                distributions.TanhTransform(),
                distributions.AffineTransform(loc=(low + high) / 2, scale=(high - low) / 2, event_dim=1),
            ]

    def executed(self, raw):
        """[n, D], or [n] where discrete."""
        if self._bounds is None:
            return raw
        if self._squash is None:
            return torch.minimum(torch.maximum(raw, self._bounds[0]), self._bounds[1])
        for transform in self._squash:
            raw = transform(raw)
        return raw

    def log_prob(self, policy, raw):
        """The log-density of the executed action; that of the raw one where the bounds merely clip it."""
        if self._squash is None:
            return policy.log_prob(raw)
        return distributions.TransformedDistribution(policy, self._squash).log_prob(self.executed(raw))


class Batch(NamedTuple):
    """A rollout, flattened and valued."""

    observation: torch.Tensor  # [n, O] normalised
    raw_action: torch.Tensor  # [n, D], or [n] where discrete
    log_prob: torch.Tensor  # [n] of the raw action, as it was recorded; corrected: before the update
    value: torch.Tensor  # [n]
    advantage: torch.Tensor  # [n]
    target: torch.Tensor  # [n]
    weight: torch.Tensor  # [n] 1, or corrected: min(1, ratio)


class OnPolicyReference:
    """What the references of both learners are made of."""

    def __init__(self, *, state, spec, config, num_updates):
        """Takes the network's first state dict, and how many learner steps the run has, or None."""
        self.config = config
        self.network = Network(state, config.torso)
        self.actions = Actions(spec, config.squash_actions)
        self.returns = Statistics(torch.zeros(1), torch.ones(1), 1e-4) if config.scale_rewards else None
        self._num_updates = num_updates
        self._num_steps = 0
        self.adam = self.make_adam(self.network.parameters.values(), config.learning_rate)
        # How often a case met what it is there for.
        self.seen = collections.Counter()

    def make_adam(self, parameters, learning_rate):
        return torch.optim.Adam([*parameters], lr=learning_rate, eps=self.config.adam_epsilon)

    def numbers(self):
        """All that a learner step moves, by name."""
        numbers = self.network.numbers()
        if self.returns is not None:
            numbers |= {f"return_norm.{name}": value for name, value in self.returns.numbers().items()}
        return numbers

    def step(self, rollout):
        """One learner step; returns what it logs."""
        learning_rate = self.config.learning_rate
        if self.config.anneal_learning_rate and self._num_updates:
            learning_rate *= 1.0 - self._num_steps / self._num_updates
        self.adam.param_groups[0]["lr"] = learning_rate
        batch = self._evaluate(rollout)
        metrics = self.update(batch, rollout)
        # Only now: the update has seen the statistics that the actions were chosen under.
        if self.network.statistics is not None:
            self.network.statistics.update(rollout.observation.flatten(0, 1))
        self._num_steps += 1
        return {
            **metrics,
            "learning_rate": learning_rate,
            "skipped_batches": 0,
            **self._staleness(batch, rollout),
            "value/explained_variance": _explained_variance(batch.value, batch.target),
            "value/mean": batch.value.mean(),
            "value/target_mean": batch.target.mean(),
        }

    def update(self, batch, rollout):
        """Trains the network; returns the diagnostics of the agent's own."""
        raise NotImplementedError

    @torch.no_grad()
    def _evaluate(self, rollout):
        config = self.config
        num_steps, num_environments = rollout.reward.shape
        observation = self.network.normalize(rollout.observation.flatten(0, 1).double(), self.seen)
        after = self.network.normalize(rollout.next_observation.flatten(0, 1).double(), collections.Counter())
        v_t = self.network.value(observation).reshape(num_steps, num_environments)
        v_tp1 = self.network.value(after).reshape(num_steps, num_environments)
        reward = rollout.reward.double()
        if self.returns is not None:
            self.returns.update(rollout.return_so_far.reshape(-1, 1))
            reward = reward / math.sqrt(self.returns.var.item() + 1e-8)
            self.seen["rewards beyond 10 deviations"] += int((reward.abs() > 10.0).sum())
            reward = reward.clamp(-10.0, 10.0)
        advantage = torch.zeros_like(reward)
        for e in range(num_environments):
            for t in reversed(range(num_steps)):
                discount = config.discount * rollout.discount[t, e].double()
                one_step = reward[t, e] + discount * v_tp1[t, e] - v_t[t, e]
                if rollout.last[t, e]:
                    advantage[t, e] = one_step
                elif config.advantage_estimator == "gae":
                    advantage[t, e] = one_step + discount * config.gae_lambda * advantage[t + 1, e]
                elif config.advantage_estimator == "returns":
                    rest = v_t[t + 1, e] + advantage[t + 1, e]
                    advantage[t, e] = reward[t, e] + discount * rest - v_t[t, e]
                else:
                    advantage[t, e] = one_step
        raw_action = rollout.extras.raw_action.flatten(0, 1)
        raw_action = raw_action.double() if raw_action.is_floating_point() else raw_action
        log_prob = rollout.extras.log_prob.flatten().double()
        target, weight = v_t + advantage, torch.ones_like(log_prob)
        if config.asynchronous:
            new_log_prob = self.network.policy(observation).log_prob(raw_action)
            ratio = torch.exp(new_log_prob - log_prob).reshape(num_steps, num_environments)
            target, advantage = self._vtrace(rollout, reward, v_t, v_tp1, ratio)
            log_prob, weight = new_log_prob, ratio.flatten().clamp(max=1.0)
        return Batch(
            observation=observation,
            raw_action=raw_action,
            log_prob=log_prob,
            value=v_t.flatten(),
            advantage=advantage.flatten(),
            target=target.flatten(),
            weight=weight,
        )

    def _vtrace(self, rollout, reward, v_t, v_tp1, ratio):
        """Espeholt et al. 2018, eq. 1, the sum written out, with both bounds 1; advantages as in section 4.2.

        lambda weighs each c, and mixes the target after a step with the value there.
        """
        config = self.config
        num_steps, num_environments = reward.shape
        lambda_ = {"gae": config.gae_lambda, "dae": 0.0, "returns": 1.0}[config.advantage_estimator]
        discount = config.discount * rollout.discount.double()
        target, advantage = v_t.clone(), torch.zeros_like(v_t)
        for e in range(num_environments):
            for t in reversed(range(num_steps)):
                product = 1.0
                for k in range(t, num_steps):
                    delta = reward[k, e] + discount[k, e] * v_tp1[k, e] - v_t[k, e]
                    target[t, e] += product * min(1.0, ratio[k, e]) * delta
                    product *= discount[k, e] * lambda_ * min(1.0, ratio[k, e])
                    if rollout.last[k, e]:
                        break
                following = v_tp1[t, e]
                if not rollout.last[t, e]:
                    following = (1.0 - lambda_) * following + lambda_ * target[t + 1, e]
                advantage[t, e] = reward[t, e] + discount[t, e] * following - v_t[t, e]
        return target, advantage

    def _staleness(self, batch, rollout):
        if not self.config.asynchronous:
            return {}
        ratio = torch.exp(batch.log_prob - rollout.extras.log_prob.flatten().double())
        self.seen["ratios beyond 1"] += int((ratio > 1.01).sum())
        return {"stale/clipped_share": (ratio > 1.01).double().mean(), "stale/weight": batch.weight.mean()}

    def minimise(self, adam, loss, max_norm=math.inf):
        """One gradient step; returns the norm of the gradient before it was clipped."""
        parameters = adam.param_groups[0]["params"]
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = torch.zeros_like(parameter) if gradient is None else gradient
        norm = math.sqrt(sum((parameter.grad**2).sum().item() for parameter in parameters))
        if norm > max_norm:
            self.seen["gradients clipped"] += 1
            for parameter in parameters:
                parameter.grad = parameter.grad * (max_norm / norm)
        adam.step()
        return norm


def normalized(advantage, degrees_of_freedom):
    """(A - mean) / (deviation + 1e-8), the squares being divided by `degrees_of_freedom`."""
    mean = sum(advantage) / len(advantage)
    variance = sum((a - mean) ** 2 for a in advantage) / degrees_of_freedom
    return (advantage - mean) / (torch.sqrt(variance) + 1e-8)


def _explained_variance(value, target):
    residual = target - value
    return 1.0 - ((residual - residual.mean()) ** 2).mean() / ((target - target.mean()) ** 2).mean()
