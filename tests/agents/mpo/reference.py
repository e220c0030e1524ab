"""A learner step of MPO written out by hand, which `test_reference_step.py` holds the learner to.

None of the library's maths is used: float64, loops over sequences, steps and actions, sums where the library
has recursions, `torch.distributions` for densities and divergences, optimisers and clipping in full.

Shapes: B batch, T transitions, M and N sampled actions, O observation size, D action dimensions. A network
is its state dict, with the names that `networks.GaussianPolicy` and `networks.Critic` give.
"""

import math
from typing import NamedTuple

import torch
from scipy import optimize
from torch import distributions

Weights = dict[str, torch.Tensor]

_BOUNDS = ("low", "high")  # of actions and means, which nothing trains
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")  # of batch norm, which nothing trains


class Evaluation(NamedTuple):
    """What the target networks say of a batch."""

    critic_targets: torch.Tensor  # [B, T]  NaN at masked steps
    mean: torch.Tensor  # [S, D]  of the target policy in the states in which the policy is improved
    stddev: torch.Tensor  # [S, D]
    actions: torch.Tensor  # [S, N, D]
    q_values: torch.Tensor  # [S, N]


def normed(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """LayerNorm."""
    centred = x - x.mean(dim=-1, keepdim=True)
    variance = centred.square().mean(dim=-1, keepdim=True)
    return centred / (variance + 1e-5).sqrt() * weight + bias


def simba(weights: Weights, x: torch.Tensor) -> torch.Tensor:
    """Linear, residual blocks, LayerNorm.

    What enters or leaves a product inside a block is rounded; what the blocks add to is not.
    """

    def parameters(name: str) -> tuple[torch.Tensor, torch.Tensor]:
        return weights[f"torso.{name}.weight"], weights[f"torso.{name}.bias"]

    weight, bias = parameters("0")
    x = x @ weight.T + bias
    last = max(int(name.split(".")[1]) for name in weights if name.startswith("torso."))
    for block in range(1, last):
        weight, bias = parameters(f"{block}.expand")
        hidden = normed(x, *parameters(f"{block}.norm")) @ weight.T + bias
        weight, bias = parameters(f"{block}.contract")
        x = x + hidden.clamp(min=0.0) @ weight.T + bias
    return normed(x, *parameters(f"{last}"))


def is_trained(name: str) -> bool:
    return name.split(".")[-1] not in _BOUNDS and not name.endswith(_STATISTICS)


def batch_norm_mlp(weights: Weights, x: torch.Tensor, moments: Weights | None) -> torch.Tensor:
    """Batch norm, then Linear, batch norm and ReLU for each layer; see `torso`."""
    numbers = sorted({int(name.split(".")[1]) for name in weights if name.endswith("running_mean")})
    for i in numbers:
        if i > 0:
            x = x @ weights[f"torso.{i - 1}.weight"].T
        mean, variance = weights[f"torso.{i}.running_mean"], weights[f"torso.{i}.running_var"]
        if moments is not None:
            mean = sum(x) / len(x)
            variance = sum((row - mean) ** 2 for row in x) / len(x)
            moments[f"torso.{i}.running_mean"] = mean.detach()
            moments[f"torso.{i}.running_var"] = variance.detach() * len(x) / (len(x) - 1)
        x = (x - mean) / (variance + 1e-3).sqrt() * weights[f"torso.{i}.weight"] + weights[f"torso.{i}.bias"]
        x = x.clamp(min=0.0) if i > 0 else x
    return x


def torso(weights: Weights, x: torch.Tensor, moments: Weights | None = None) -> torch.Tensor:
    """SimBa's, or Linear, LayerNorm, tanh, then Linear and ELU for each further layer; or with batch norm.

    Batch norm uses its running statistics or, if `moments` is a dict, those of the rows x, which are added
    to it.

    Whatever enters or leaves one of the further layers is rounded: features, weights, biases, the product
    with the bias added, the activation.
    """
    if "torso.1.expand.weight" in weights:
        return simba(weights, x)
    if "torso.0.running_mean" in weights:
        return batch_norm_mlp(weights, x, moments)
    numbers = sorted({int(name.split(".")[1]) for name in weights if name.startswith("torso.")})
    first, norm, *further = [(weights[f"torso.{i}.weight"], weights[f"torso.{i}.bias"]) for i in numbers]
    x = torch.tanh(normed(x @ first[0].T + first[1], *norm))
    for weight, bias in further:
        x = x @ weight.T + bias
        x = torch.where(x > 0.0, x, x.clamp(max=0.0).exp() - 1.0)
    return x


def policy_of(weights: Weights, observation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and standard deviation, [..., O] -> 2 x [..., D]."""
    features = torso(weights, observation)
    mean = features @ weights["mean_head.weight"].T + weights["mean_head.bias"]
    if "mean_squash.low" in weights:
        low, high = weights["mean_squash.low"], weights["mean_squash.high"]
        mean = (low + high) / 2 + (high - low) / 2 * torch.tanh(mean)
    log_std = features @ weights["log_std_head.weight"].T + weights["log_std_head.bias"]
    return mean, log_std.exp()  # far within the bounds that it is clamped to


def critic_of(
    weights: Weights,
    observation: torch.Tensor,
    action: torch.Tensor,
    moments: Weights | None = None,
) -> torch.Tensor:
    """Q at the action clipped to the bounds, [..., O], [..., D] -> [...]."""
    clipped = torch.minimum(torch.maximum(action, weights["low"]), weights["high"])
    features = torso(weights, torch.cat([observation, clipped], dim=-1), moments)
    return (features * weights["head.weight"][0]).sum(dim=-1) + weights["head.bias"][0]


def multiplier(raw: torch.Tensor) -> torch.Tensor:
    """softplus(max(raw, -18)) + 1e-8."""
    return torch.log1p(raw.clamp(min=-18.0).exp()) + 1e-8


class Reference:
    """The learner's parameters in float64, and a step on them."""

    parts: tuple[str, ...] = ("mean", "stddev")  # of the policy, each with its own bound

    def __init__(
        self,
        modules: dict[str, Weights],
        *,
        config,
        num_steps: int,
        num_updates: int,
        generator: torch.Generator,
    ):
        """Copies the parameters.

        Args:
            modules: state dicts of `policy`, `critic`, `target_policy`, `target_critic` and `duals`, and of
                `temperature_floor` if temperatures are solved for.
            config: an `MPOConfig`.
            num_steps: learner steps that were made before.
            num_updates: those of the whole run.
            generator: in the state of the learner's. The order, shapes and dtype of what is drawn in a
                step are part of the contract: [M, B, T, D] for the values of the states 1..T, then
                [N, B, D] for the E-step at state 0, both float32.
        """
        self.modules = {
            name: {key: tensor.double().clone() for key, tensor in weights.items()}
            for name, weights in modules.items()
        }
        self._config = config
        self._num_steps = num_steps
        self._num_updates = num_updates
        self._generator = generator
        self._momenta: dict[tuple[str, str], dict[str, torch.Tensor | float]] = {}
        self._improved: dict[str, torch.Tensor] = {}  # what was logged of the last improvement

    def step(self, batch) -> dict[str, float]:
        """A step on a `Trajectory` of float64 with `BehaviourExtras`; returns what is to be logged."""
        self.sync_targets()
        return self.learn(batch, self.evaluate(batch))

    def sync_targets(self) -> None:
        for name, period in (
            ("policy", self._config.target_policy_update_period),
            ("critic", self._config.target_critic_update_period),
        ):
            target, rate = self.modules[f"target_{name}"], self._config.target_rate
            if rate < 1.0:  # moved at every step
                for key, online in self.modules[name].items():
                    moved = (1.0 - rate) * target[key] + rate * online
                    moved = units(moved) if self._has_units(target, key) else moved
                    target[key] = moved if is_trained(key) else online
            elif self._num_steps % period == 0:
                self.modules[f"target_{name}"] = dict(self.modules[name])

    def learn(self, batch, evaluation: Evaluation) -> dict[str, float]:
        self._num_steps += 1
        self._see(batch)
        of_critic = self._update_critic(batch, evaluation)
        if self._improves():
            self._improved = {**of_critic, **self._update_duals_and_policy(batch, evaluation)}
        metrics = {**self._improved, **of_critic}
        return {name: value.item() for name, value in metrics.items()}

    def _improves(self) -> bool:
        return self._num_steps % self._config.policy_period == 0

    def _see(self, batch) -> None:
        """Remembers the largest reward, of each objective that is one."""
        if self._config.temperature == "solved":
            largest = self.modules["temperature_floor"]["largest"]
            seen = [
                max(
                    [
                        old,
                        *(abs(r) for r, m in zip(rewards.flatten(), batch.mask.flatten(), strict=True) if m),
                    ]
                )
                for old, rewards in zip(largest.view(-1), self.rewards(batch), strict=True)
            ]
            self.modules["temperature_floor"]["largest"] = torch.stack(seen).view(largest.shape)

    def rewards(self, batch) -> list[torch.Tensor]:
        """The rewards that are objectives, [B, T] each."""
        return [batch.reward]

    def floor(self, objective: int) -> float:
        """The smallest temperature of an objective that is a reward."""
        largest = self.modules["temperature_floor"]["largest"].view(-1)[objective].item()
        return self._config.temperature_floor * largest

    def features(self, weights: Weights, batch) -> torch.Tensor:
        """What networks see of each state, by the weights of critic and encoder: here, the observation."""
        return batch.observation

    def evaluate(self, batch) -> Evaluation:
        with torch.no_grad():
            critic_targets = self._critic_targets(batch)
            if (self._num_steps + 1) % self._config.policy_period:
                return Evaluation(critic_targets, *[torch.zeros(())] * 4)  # and draws no actions
            states = self._improved_in(batch)
            mean, stddev = policy_of(self.modules["target_policy"], states)
            actions = self.draw(self._config.num_samples, states).transpose(0, 1)
            q_values = torch.stack(
                [
                    self._target_q(state.expand(len(points), -1), points)
                    for state, points in zip(states, actions, strict=True)
                ]
            )
        return Evaluation(critic_targets, mean, stddev, actions, q_values)

    def _improved_in(self, batch) -> torch.Tensor:
        """The states in which the policy is improved: the first ones, or all that happened; [S, F]."""
        if self._config.policy_loss_steps == "first":
            return batch.observation[:, 0]
        happened = [(b, t) for b, row in enumerate(batch.mask) for t, step in enumerate(row) if step]
        return torch.stack([batch.observation[b, t] for b, t in happened])

    def draw(self, num_samples: int, states: torch.Tensor) -> torch.Tensor:
        """Raw actions of the target policy, [..., F] -> [N, ..., D]."""
        mean, stddev = policy_of(self.modules["target_policy"], states)
        return mean + stddev * torch.randn(num_samples, *mean.shape, generator=self._generator).double()

    def log_prob(self, states: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        """Of raw actions under the target policy, [..., F], [..., D] -> [...]."""
        policy = distributions.Normal(*policy_of(self.modules["target_policy"], states))
        return policy.log_prob(actions).sum(dim=-1)

    def critic_input(self, action: torch.Tensor) -> torch.Tensor:
        return action

    def _target_q(self, observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        weights = self.modules["target_critic"]
        return critic_of(weights, observation, self.critic_input(action))

    def _critic_targets(self, batch) -> torch.Tensor:
        batch_size, length = batch.reward.shape
        num_samples = self._config.retrace_mc_actions
        sampled = self.draw(num_samples, batch.observation[:, 1:])  # [M, B, T, D]
        targets = torch.full((batch_size, length), math.nan, dtype=torch.float64)
        for b in range(batch_size):
            value = [math.nan]  # V(s_t), which nothing asks at t = 0
            for t in range(1, length + 1):
                states = batch.observation[b, t].expand(num_samples, -1)
                value.append(self._target_q(states, sampled[:, b, t - 1]).mean())
            q = self._target_q(batch.observation[b, :-1], batch.action[b])  # [T]
            ratio = []  # pi(a_t | s_t) / b(a_t | s_t)
            for t in range(length):
                log_prob = self.log_prob(batch.observation[b, t], batch.extras.raw_action[b, t])
                ratio.append((log_prob - batch.extras.log_prob[b, t]).exp().item())
            for t in range(length):
                if batch.mask[b, t]:
                    targets[b, t] = self._critic_target(batch, b, t, q, value, ratio)
        return targets

    def _critic_target(self, batch, b: int, t: int, q, value, ratio) -> torch.Tensor:
        config = self._config
        reward, discount = batch.reward[b], config.discount * batch.discount[b]
        end = t + 1  # of the steps that happened one after the other, from t on
        while end < len(reward) and batch.mask[b, end]:
            end += 1

        if config.critic_target == "one_step":
            return reward[t] + discount[t] * value[t + 1]

        if config.critic_target == "n_step":
            # r_t + d_t r_{t+1} + d_t d_{t+1} r_{t+2} + .. + d_t .. d_{end-1} V(s_end)
            rewards = sum(reward[k] * discount[t:k].prod() for k in range(t, end))
            return rewards + discount[t:end].prod() * value[end]

        # Munos et al. 2016, equation 3, with the discounts of the steps in place of powers of gamma:
        # Q(s_t, a_t) + sum_k (prod_{i=t+1..k} discount_{i-1} c_i) delta_k
        target = q[t]
        for k in range(t, end):
            trace = math.prod(
                discount[i - 1] * config.retrace_lambda * min(1.0, ratio[i]) for i in range(t + 1, k + 1)
            )
            target = target + trace * (reward[k] + discount[k] * value[k + 1] - q[k])
        return target

    def _update_critic(self, batch, evaluation: Evaluation) -> dict[str, torch.Tensor]:
        weights = self._leaves("critic")
        num_steps = 1 if self._config.critic_loss_steps == "first" else batch.mask.shape[1]
        places = [(b, t) for b in range(len(batch.mask)) for t in range(num_steps) if batch.mask[b, t]]
        observations, actions = (
            torch.stack([x[place] for place in places]) for x in (self.features(weights, batch), batch.action)
        )
        moments: Weights = {}

        def loss_of(weights: Weights, targets: torch.Tensor) -> torch.Tensor:
            q_values = critic_of(weights, observations, self.critic_input(actions), moments=moments)
            errors = [q - targets[place] for q, place in zip(q_values, places, strict=True)]
            return sum(error**2 for error in errors) / len(errors)

        loss = self.critic_loss(weights, evaluation.critic_targets, loss_of)
        grad_norm = self._descend(
            "critic", weights, loss, self._config.critic_learning_rate, self._config.max_grad_norm
        )
        critic = self.modules["critic"]
        for name, tensor in [*critic.items()]:
            if name in moments:
                critic[name] = 0.99 * tensor + 0.01 * moments[name]
            elif name.endswith("num_batches_tracked"):
                critic[name] = tensor + 1
        q_values = evaluation.q_values
        metrics = {"loss/critic": loss, "grad_norm/critic": grad_norm}
        if not self._improves():
            return metrics
        metrics |= self.ranges(q_values)
        return metrics

    def critic_loss(self, weights: Weights, targets: torch.Tensor, loss_of) -> torch.Tensor:
        return loss_of(weights, targets)

    def ranges(self, q_values: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"q/min": q_values.min(), "q/max": q_values.max()}

    def improve(self, q_values: torch.Tensor, temperature: torch.Tensor):
        """The weights by the values, the temperature's loss, and what is logged of both."""
        return self.objective("q", q_values, self._config.epsilon, temperature, 0)

    def objective(self, name: str, values: torch.Tensor, epsilon: float, learned: torch.Tensor, reward):
        """The same for one objective: `reward` is its number among the rewards, or None if it is none."""
        temperature, metrics = learned, {}
        if self._config.temperature == "solved":
            temperature = solved(values, epsilon)
            if reward is not None:
                temperature = temperature.clamp(min=self.floor(reward))
            metrics[self.name_of_temperature(name)] = temperature
        weights, loss, kl = e_step(values, temperature, epsilon)
        metrics[f"kl/{name}_rel"] = kl / epsilon
        metrics["policy/entropy_weights" if name == "q" else f"policy/entropy_{name}_weights"] = entropy(
            weights
        )
        return weights, loss, metrics

    def name_of_temperature(self, objective: str) -> str:
        return "penalty_temperature" if objective == "penalty" else "temperature"

    def temperatures(self, temperature: torch.Tensor) -> dict[str, torch.Tensor]:
        """What is logged of the learned temperatures."""
        return {"temperature": temperature}

    def _update_duals_and_policy(self, batch, evaluation: Evaluation) -> dict[str, torch.Tensor]:
        config = self._config
        duals = self._leaves("duals")
        weights, temperature_loss, metrics = self.improve(
            evaluation.q_values, multiplier(duals["temperature.raw"])
        )
        if config.action_penalty:
            penalty_weights, penalty_loss, of_penalty = self.objective(
                "penalty",
                self._penalties(evaluation.actions),
                config.epsilon_penalty,
                multiplier(duals["penalty_temperature.raw"]),
                None,
            )
            weights = weights + penalty_weights
            temperature_loss = temperature_loss + penalty_loss
            metrics |= of_penalty

        # The duals: the KLs are those of the online policy before it moves.
        alpha_losses = {}
        for part, kl in zip(self.parts, self._kls(self.modules["policy"], batch, evaluation), strict=True):
            epsilon = getattr(config, f"epsilon_{part}")
            alpha_losses[part] = (multiplier(duals[f"alpha_{part}.raw"]) * (epsilon - kl.detach())).sum()
            metrics |= {f"loss/alpha_{part}": alpha_losses[part], f"kl/{part}_rel": kl.mean() / epsilon}
        alphas = {name: raw for name, raw in duals.items() if "alpha" in name}
        duals_loss, norms = sum(alpha_losses.values()), []
        if config.temperature == "learned":
            temperatures = {name: raw for name, raw in duals.items() if "temperature" in name}
            rate = config.temperature_learning_rate
            norms.append(self._descend("duals", temperatures, temperature_loss, rate))
            duals_loss = duals_loss + temperature_loss
        norms.append(self._descend("duals", alphas, sum(alpha_losses.values()), config.alpha_learning_rate))
        new_duals = {name: multiplier(raw) for name, raw in self.modules["duals"].items()}
        if config.temperature == "learned":
            metrics["loss/temperature"] = temperature_loss
            metrics |= self.temperatures(new_duals["temperature.raw"])
            if config.action_penalty:
                metrics["penalty_temperature"] = new_duals["penalty_temperature.raw"]

        for _ in range(config.m_steps):
            online = self._leaves("policy")
            loss = self._likelihood_loss(online, weights, batch, evaluation)
            for part, kls in zip(self.parts, self._kls(online, batch, evaluation), strict=True):
                loss = loss + (new_duals[f"alpha_{part}.raw"] * kls).sum()
            learning_rate = config.policy_learning_rate / config.m_steps
            grad_norm = self._descend("policy", online, loss, learning_rate, config.max_grad_norm)

        metrics |= {f"alpha/{part}": new_duals[f"alpha_{part}.raw"].mean() for part in self.parts}
        return metrics | {
            "loss/policy": loss,
            "loss/duals": duals_loss,
            "grad_norm/duals": sum(norm**2 for norm in norms).sqrt(),
            "grad_norm/policy": grad_norm,
            **self.of_policy(batch, evaluation),
        }

    def of_policy(self, batch, evaluation: Evaluation) -> dict[str, torch.Tensor]:
        """What is logged of the policy that is improved."""
        low, high = (self.modules["critic"][name] for name in _BOUNDS)
        drawn, mean = evaluation.actions, evaluation.mean
        return {
            "policy/stddev_min": evaluation.stddev.min(),
            "policy/stddev_max": evaluation.stddev.max(),
            "policy/clipped_actions": ((drawn < low) | (drawn > high)).double().mean(),
            "policy/clipped_means": ((mean < low) | (mean > high)).double().mean(),
        }

    def _penalties(self, actions: torch.Tensor) -> torch.Tensor:
        """Minus the squared distance to the bounds, [B, N, D] -> [B, N]."""
        low, high = (self.modules["critic"][name] for name in _BOUNDS)
        too_low, too_high = (low - actions).clamp(min=0.0), (actions - high).clamp(min=0.0)
        return -(too_low**2 + too_high**2).sum(dim=-1)

    def _likelihood_loss(self, online: Weights, weights, batch, evaluation: Evaluation) -> torch.Tensor:
        """Of mean and standard deviation, each beside the target's other one."""
        new_mean, new_stddev = policy_of(online, self._improved_in(batch))
        total = 0.0
        for b in range(len(new_mean)):
            with_new_mean = distributions.Normal(new_mean[b], evaluation.stddev[b])
            with_new_stddev = distributions.Normal(evaluation.mean[b], new_stddev[b])
            for policy in (with_new_mean, with_new_stddev):
                total -= (weights[b] * policy.log_prob(evaluation.actions[b]).sum(dim=-1)).sum()
        return total / len(new_mean)

    def _kls(self, online: Weights, batch, evaluation: Evaluation) -> list[torch.Tensor]:
        """KL(target || online) by a change of the mean alone, and of the standard deviation: [K] each."""
        new_mean, new_stddev = policy_of(online, self._improved_in(batch))
        totals = [0.0, 0.0]
        for b in range(len(new_mean)):
            old = distributions.Normal(evaluation.mean[b], evaluation.stddev[b])
            for i, new in enumerate(
                (
                    distributions.Normal(new_mean[b], evaluation.stddev[b]),
                    distributions.Normal(evaluation.mean[b], new_stddev[b]),
                )
            ):
                totals[i] = totals[i] + distributions.kl_divergence(old, new) / len(new_mean)
        return totals if self._config.per_dimension_constraint else [kl.sum().view(1) for kl in totals]

    def _has_units(self, weights: Weights, name: str) -> bool:
        """Whether the rows of a tensor are kept at norm 1."""
        has_norms = "torso.1.expand.weight" in weights or "torso.0.running_mean" in weights
        is_of_torso = name.startswith("torso.") and weights[name].ndim == 2
        return self._config.unit_norm_weights and has_norms and is_of_torso

    def _leaves(self, module: str) -> Weights:
        return {
            name: tensor.clone().requires_grad_(is_trained(name))
            for name, tensor in self.modules[module].items()
        }

    def _descend(
        self,
        module: str,
        leaves: Weights,
        loss: torch.Tensor,
        learning_rate: float,
        max_norm: float = math.inf,
    ) -> torch.Tensor:
        """Replaces the module's parameters by those after a gradient step; returns the gradients' norm."""
        config = self._config
        is_network = module in ("policy", "critic")
        if is_network:
            share_done = (self._num_steps - 1) / self._num_updates
            learning_rate = learning_rate * (1.0 - share_done * (1.0 - config.final_learning_rate))
        names = [name for name in leaves if is_trained(name)]
        gradients = torch.autograd.grad(loss, [leaves[name] for name in names])
        norm = sum((gradient**2).sum() for gradient in gradients).sqrt()
        for name, gradient in zip(names, gradients, strict=True):
            if norm > max_norm:
                gradient = gradient * (max_norm / norm)
            momenta = self._momenta.setdefault((module, name), {"steps": 0, "first": 0.0, "second": 0.0})
            momenta["steps"] += 1
            if config.optimizer == "sgd":
                momenta["first"] = step = config.sgd_momentum * momenta["first"] + gradient
            else:
                momenta["first"] = 0.9 * momenta["first"] + 0.1 * gradient
                momenta["second"] = 0.999 * momenta["second"] + 0.001 * gradient**2
                first = momenta["first"] / (1.0 - 0.9 ** momenta["steps"])
                second = momenta["second"] / (1.0 - 0.999 ** momenta["steps"])
                step = first / (second.sqrt() + config.adam_epsilon)
            moved = leaves[name].detach() - learning_rate * step
            if is_network and gradient.ndim == 2:
                moved = moved - learning_rate * config.weight_decay * leaves[name].detach()
                moved = units(moved) if self._has_units(leaves, name) else moved
            self.modules[module][name] = moved
        return norm


def units(weights: torch.Tensor) -> torch.Tensor:
    """The rows at norm 1."""
    return torch.stack([unit / unit.square().sum().sqrt() for unit in weights])


def e_step(
    q_values: torch.Tensor, temperature: torch.Tensor, epsilon: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Weights [B, N], the temperature's loss and the weights' KL to uniform ones, of values [B, N]."""
    num_states, num_actions = q_values.shape
    weights, dual, kl = [], epsilon * temperature, 0.0
    for values in q_values:
        unnormalised = (values / temperature).exp()
        dual = dual + temperature * (unnormalised.sum() / num_actions).log() / num_states
        weights.append((unnormalised / unnormalised.sum()).detach())
        kl = kl + sum(w * (w * num_actions).log() for w in weights[-1]) / num_states
    return torch.stack(weights), dual, kl


def solved(q_values: torch.Tensor, epsilon: float) -> torch.Tensor:
    """The temperature at which the weights' KL to uniform ones is epsilon."""

    def excess(log_temperature: float) -> float:
        weights = (q_values / math.exp(log_temperature)).softmax(dim=1)
        kls = torch.special.xlogy(weights, weights * q_values.shape[1]).sum(dim=1)
        return kls.mean().item() - epsilon

    return torch.tensor(math.exp(optimize.brentq(excess, -20.0, 20.0)), dtype=torch.float64)


def entropy(weights: torch.Tensor) -> torch.Tensor:
    """Nats, mean over states: [B, N] -> []."""
    return sum(distributions.Categorical(probs=of_state).entropy() for of_state in weights) / len(weights)
