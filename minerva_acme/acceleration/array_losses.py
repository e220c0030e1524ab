"""The losses of DQN, TD3 and SAC with their gradients, on arrays.

An update of such an agent is two or three small networks, and a formula of some fifty operations on a number
for each sample. Torch takes as long to call, record and go back through the formula as the networks take.

Each class computes one loss of `agents`, where its formula and source are, and the derivatives that autograd
finds, for networks that are made of what is known here: observations as one vector, torsos of linear layers,
scalar heads.

Shapes: B batch; O observation size; D action dimensions; K discrete actions.
"""

import abc
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from minerva_acme.acceleration import notes
from minerva_acme.acceleration.array_layers import (
    Array,
    Chain,
    Parameters,
    Squash,
    Take,
    UnknownNetwork,
    has_hooks,
    hooks_of,
    make_chain,
    require_just,
    require_no_encoder,
)
from minerva_acme.distributions.limits import MAX_LOG_STD, MIN_LOG_STD
from minerva_acme.networks.critic import CriticWithHead, DuelingCritic
from minerva_acme.networks.critic_heads import Ensemble, ScalarHead
from minerva_acme.networks.encoders import EncodedCritic, EncodedPolicy
from minerva_acme.networks.policy import GaussianPolicy, SquashedPolicy

_MAX_PRIORITY = np.float32(1.0)  # of `off_policy.regress`
_LOG_SQRT_2PI = np.float32(0.5 * math.log(2.0 * math.pi))
_TWO_LOG_2 = np.float32(2.0 * math.log(2.0))

# Multiply-adds of a forward pass of one network from which on autograd's cost no longer matters, and numpy's
# one thread would: 1,024 samples through 512-512.
_MOST_OF_ARRAYS = 2**28


class Result(NamedTuple):
    """What a loss function returns: the fields of `learners.Loss`."""

    value: torch.Tensor
    metrics: Mapping[str, Any]
    priorities: torch.Tensor | None
    gradients: Mapping[nn.Parameter, torch.Tensor]


class ArrayLoss(abc.ABC):
    """A loss function on arrays.

        result = loss(networks, data, weights, generator)   # None: the networks are not known here

    It draws what the plain one draws from the generator. Networks are looked at when they first come, and
    computed by autograd for good if they are not known; while a part has a hook, so that the hook is called.
    """

    def __init__(self, name: str) -> None:
        """Args: name: of the updates, for the log."""
        self.name = name
        self._networks: Any = None
        self._is_known = False
        self._hooks: list[Mapping[int, Any]] = []  # of all modules
        self._parameters: list[nn.Parameter] = []

    def __call__(
        self, networks: Any, data: Any, weights: torch.Tensor | float, generator: torch.Generator
    ) -> Result | None:
        """Args: networks: a named tuple of modules. data: a `types.Transition`. weights: [B], or 1.0."""
        if networks is not self._networks:
            self._look_at(networks, data)
        if not self._is_known:
            return None
        if any(self._hooks) or any(map(has_hooks, self._parameters)):
            notes.say(self.name, "autograd: a module or a parameter has hooks")
            return None
        # A learner looks at the norms. Without a gradient to record, torch's kernels cost less.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"), torch.no_grad():
            return self._compute(networks, data, weights, generator)

    def _look_at(self, networks: Any, data: Any) -> None:
        self._networks, self._is_known = networks, False
        try:
            observation = data.observation
            if not isinstance(observation, torch.Tensor) or observation.ndim != 2:
                raise UnknownNetwork("observations are not vectors")
            for module in networks:
                size = len(observation) * sum(parameter.numel() for parameter in module.parameters())
                if size > _MOST_OF_ARRAYS:
                    raise UnknownNetwork("minibatch and network are large")
            self._compile(networks)
        except UnknownNetwork as reason:
            notes.say(self.name, f"autograd: {reason}")
            return
        parts = [part for module in networks for part in module.modules()]
        self._hooks = [hooks for part in parts for hooks in hooks_of(part)]
        self._parameters = [parameter for module in networks for parameter in module.parameters()]
        notes.say(self.name, "arrays, the gradient written down")
        self._is_known = True

    @abc.abstractmethod
    def _compile(self, networks: Any) -> None:
        """Makes arrays of the networks, or raises `UnknownNetwork`."""

    @abc.abstractmethod
    def _compute(
        self, networks: Any, data: Any, weights: torch.Tensor | float, generator: torch.Generator
    ) -> Result: ...


class DQNLoss(ArrayLoss):
    """`agents.dqn.learner.DQNLosses.q_network`."""

    def __init__(self, name: str, *, double: bool, max_td_error: float | None) -> None:
        """Args: name: for the log. double, max_td_error: as of `DQNConfig`."""
        super().__init__(name)
        self._double = double
        self._max_td_error = max_td_error

    def _compile(self, networks: Any) -> None:
        self._q = _Critics(networks.q_network)
        self._target_q = _Critics(networks.target_network)

    def _compute(
        self, networks: Any, data: Any, weights: torch.Tensor | float, generator: torch.Generator
    ) -> Result:
        next_observation = data.next_observation.numpy()
        target_values = self._target_q.combined(self._target_q.forward(next_observation))  # [B, K]
        chooser = target_values
        if self._double:
            chooser = self._q.combined(self._q.forward(next_observation))
        rows = np.arange(len(chooser))
        target = data.reward.numpy() + data.discount.numpy() * target_values[rows, chooser.argmax(axis=1)]
        chosen = rows, data.action.numpy()
        values = self._q.forward(data.observation.numpy())
        predictions = [value[chosen] for value in values]  # [B] of each critic
        if self._max_td_error is not None:
            largest = np.float32(self._max_td_error)
            target = predictions[0] + np.minimum(np.maximum(target - predictions[0], -largest), largest)
        loss, d_predictions = _squared_error(predictions, target, weights)
        for index, d_prediction in enumerate(d_predictions):
            d_values = np.zeros_like(values[index])
            d_values[chosen] = d_prediction
            self._q.backward_to_parameters(index, d_values)
        return _regression(self._q, loss, predictions, target)


class TD3CriticLoss(ArrayLoss):
    """`agents.td3.learner.TD3Losses.critic`."""

    def __init__(self, name: str, smooth: Callable[[torch.Tensor, torch.Generator], torch.Tensor]) -> None:
        """Args: name: for the log. smooth: adds target policy noise to actions [B, D]."""
        super().__init__(name)
        self._smooth = smooth

    def _compile(self, networks: Any) -> None:
        self._q = _Critics(networks.critic)
        self._target_q = _Critics(networks.target_critic)
        self._target_policy = _make_deterministic(networks.target_policy)[0]

    def _compute(
        self, networks: Any, data: Any, weights: torch.Tensor | float, generator: torch.Generator
    ) -> Result:
        next_observation = data.next_observation.numpy()
        exact = torch.from_numpy(self._target_policy.forward(next_observation))
        action = self._smooth(exact, generator).numpy()
        next_value = self._target_q.combined(self._target_q.forward(next_observation, action))[:, 0]
        target = data.reward.numpy() + data.discount.numpy() * next_value
        return _regress(self._q, data, weights, target)


class TD3PolicyLoss(ArrayLoss):
    """`agents.td3.learner.TD3Losses.policy`."""

    def _compile(self, networks: Any) -> None:
        self._q = _Critics(networks.critic)
        self._policy, self._gradients = _make_deterministic(networks.policy)

    def _compute(
        self, networks: Any, data: Any, weights: torch.Tensor | float, generator: torch.Generator
    ) -> Result:
        observation = data.observation.numpy()
        value = self._q.forward_one(0, observation, self._policy.forward(observation))
        d_value = np.full_like(value, -1.0 / len(value))
        self._policy.backward(self._q.backward_to_action(0, d_value), inputs=False)
        return Result(torch.tensor(-_mean(value)), {}, None, self._gradients)


class SACCriticLoss(ArrayLoss):
    """`agents.sac.learner.SACLosses.critic`."""

    def _compile(self, networks: Any) -> None:
        self._q = _Critics(networks.critic)
        self._target_q = _Critics(networks.target_critic)
        self._policy = _SquashedGaussian(networks.policy)

    def _compute(
        self, networks: Any, data: Any, weights: torch.Tensor | float, generator: torch.Generator
    ) -> Result:
        next_observation, discount = data.next_observation.numpy(), data.discount.numpy()
        action, log_prob = self._policy.forward(next_observation, generator)
        next_value = self._target_q.combined(self._target_q.forward(next_observation, action))[:, 0]
        bonus = np.float32(-networks.temperature().item()) * log_prob
        target = data.reward.numpy() + discount * bonus + discount * next_value
        return _regress(self._q, data, weights, target)


class SACPolicyLoss(ArrayLoss):
    """`agents.sac.learner.SACLosses.policy`."""

    def __init__(self, name: str, target_entropy: float) -> None:
        """Args: name: for the log. target_entropy: nats."""
        super().__init__(name)
        self._target_entropy = target_entropy

    def _compile(self, networks: Any) -> None:
        parameters = [*networks.temperature.parameters()]
        if len(parameters) != 1 or networks.temperature.log is not parameters[0]:
            raise UnknownNetwork("the temperature has other parameters than its logarithm")
        self._q = _Critics(networks.critic)
        self._policy = _SquashedGaussian(networks.policy)

    def _compute(
        self, networks: Any, data: Any, weights: torch.Tensor | float, generator: torch.Generator
    ) -> Result:
        observation = data.observation.numpy()
        log_temperature = networks.temperature.log
        temperature = networks.temperature()
        action, log_prob = self._policy.forward(observation, generator)
        values = self._q.forward(observation, action)
        d_action = np.zeros_like(action)
        for index, d_value in enumerate(self._q.split(values, np.float32(-1.0 / len(action)))):
            d_action += self._q.backward_to_action(index, d_value)
        self._policy.backward(d_action, np.float32(temperature.item() / len(action)))
        mean_log_prob = _mean(log_prob)
        missing = -mean_log_prob - self._target_entropy
        temperature_loss = log_temperature * missing
        policy_loss = temperature * mean_log_prob - _mean(self._q.combined(values))
        return Result(
            policy_loss + temperature_loss,
            {
                "loss/temperature": temperature_loss,
                "policy/entropy": torch.tensor(-mean_log_prob),
                "temperature": temperature,
            },
            None,
            {**self._policy.gradients, log_temperature: torch.full_like(log_temperature, missing)},
        )


def _regress(critics: "_Critics", data: Any, weights: torch.Tensor | float, target: Array) -> Result:
    """Every critic towards the target [B], at the actions that were taken."""
    values = critics.forward(data.observation.numpy(), data.action.numpy())
    predictions = [value[:, 0] for value in values]
    loss, d_predictions = _squared_error(predictions, target, weights)
    for index, d_prediction in enumerate(d_predictions):
        critics.backward_to_parameters(index, d_prediction[:, None])
    return _regression(critics, loss, predictions, target)


def _squared_error(
    predictions: Sequence[Array], target: Array, weights: torch.Tensor | float
) -> tuple[float, list[Array]]:
    """The sum of `losses.critic_loss` of all predictions [B], and its derivatives by each."""
    scale: Any = np.float32(1.0 / len(target))
    if isinstance(weights, torch.Tensor):
        array = weights.numpy()
        scale = array / np.float32(max(np.count_nonzero(array > 0.0), 1))
    loss, derivatives = 0.0, []
    for prediction in predictions:
        error = prediction - target
        weighted = error * scale
        loss += float(weighted.dot(error))
        derivatives.append(weighted + weighted)
    return loss, derivatives


def _regression(critics: "_Critics", loss: float, predictions: Sequence[Array], target: Array) -> Result:
    """As `off_policy.regress` returns it."""
    value = critics.combined(predictions)
    return Result(
        torch.tensor(loss),
        {"q/mean": _mean(value), "q/target": _mean(target)},
        torch.from_numpy(np.minimum(np.abs(target - value), _MAX_PRIORITY)),
        critics.gradients,
    )


class _Critics:
    """An ensemble of critics with scalar heads, behind an encoder that does nothing."""

    def __init__(self, module: nn.Module) -> None:
        ensemble = _behind_identity(module, EncodedCritic, "critic")
        require_just(ensemble, Ensemble)
        parameters = Parameters(module)
        self.gradients = parameters.gradients
        self._members = [_make_member(member, parameters.take) for member in ensemble.members]
        self._bounds = [_bounds(member) for member in ensemble.members]
        self._is_within: dict[int, Array] = {}  # by critic, of the latest actions
        self._rule = ensemble.rule
        parameters.require_all_taken()

    def forward(self, observation: Array, *action: Array) -> list[Array]:
        """What each critic says, [B, K], or with an action [B, 1]."""
        return [self.forward_one(index, observation, *action) for index in range(len(self._members))]

    def forward_one(self, index: int, observation: Array, *action: Array) -> Array:
        """What one says, [B, K], or with an action [B, 1]."""
        if not action:
            return self._members[index].forward(observation)
        low, high = self._bounds[index]
        clipped = np.minimum(np.maximum(action[0], low), high)
        self._is_within[index] = clipped == action[0]
        return self._members[index].forward(np.concatenate([observation, clipped], axis=1))

    def backward_to_parameters(self, index: int, d_values: Array) -> None:
        """Writes to `gradients` those of one critic, given the derivatives by what it said."""
        self._members[index].backward(d_values, inputs=False)

    def backward_to_action(self, index: int, d_values: Array) -> Array:
        """The derivatives by the action [B, D], given those by what one critic said of it."""
        d_inputs = self._members[index].backward(d_values, parameters=False)
        is_within = self._is_within[index]
        d_action: Array = d_inputs[:, -is_within.shape[1] :] * is_within
        return d_action

    def combined(self, values: Sequence[Array]) -> Array:
        """What all say as one."""
        if len(values) == 1:
            return values[0]
        return np.mean(values, axis=0) if self._rule == "mean" else np.minimum.reduce(values)

    def split(self, values: Sequence[Array], d_combined: np.float32) -> list[Array]:
        """The derivatives by what each says, where those by `combined` are one number."""
        if self._rule == "mean":
            return [np.full_like(value, d_combined / len(values)) for value in values]
        smallest = np.argmin(values, axis=0)
        return [np.where(smallest == index, d_combined, np.float32(0.0)) for index in range(len(values))]


def _make_member(module: nn.Module, take: Take) -> Any:
    if isinstance(module, DuelingCritic):
        require_just(module, DuelingCritic)
        return _Dueling(*(_make_member(part, take) for part in (module.value, module.advantage)))
    require_just(module, CriticWithHead)
    assert isinstance(module, CriticWithHead)
    require_just(module.head, ScalarHead)
    return make_chain([module.torso, module.head], take)


def _bounds(module: nn.Module) -> tuple[Any, Any]:
    low, high = getattr(module, "low", None), getattr(module, "high", None)
    return (None, None) if low is None or high is None else (low.numpy(), high.numpy())


class _Dueling:
    """`networks.DuelingCritic`."""

    def __init__(self, value: Chain, advantage: Chain) -> None:
        self._value, self._advantage = value, advantage

    def forward(self, x: Array) -> Array:
        q = self._advantage.forward(x)
        q -= q.mean(axis=1, keepdims=True)
        q += self._value.forward(x)
        return q

    def backward(self, d_q: Array, *, inputs: bool) -> None:
        d_value = np.add.reduce(d_q, 1, keepdims=True)
        self._value.backward(d_value, inputs=inputs)
        d_q -= d_value / np.float32(d_q.shape[1])
        self._advantage.backward(d_q, inputs=inputs)


def _make_deterministic(module: nn.Module) -> tuple[Chain, Mapping[nn.Parameter, torch.Tensor]]:
    parameters = Parameters(module)
    chain = make_chain([_behind_identity(module, EncodedPolicy, "policy")], parameters.take)
    parameters.require_all_taken()
    return chain, parameters.gradients


class _SquashedGaussian:
    """A Gaussian policy, squashed into the bounds of the action, whose actions are reparameterised."""

    def __init__(self, module: nn.Module) -> None:
        squashed = _behind_identity(module, EncodedPolicy, "policy")
        require_just(squashed, SquashedPolicy)
        policy = squashed.policy
        require_just(policy, GaussianPolicy)
        parameters = Parameters(module)
        self.gradients = parameters.gradients
        self._torso = make_chain([policy.torso], parameters.take)
        self._mean = make_chain([policy.mean_head], parameters.take)
        self._log_std = make_chain([policy.log_std_head], parameters.take)
        self._squash = Squash(squashed.squash)
        self._log_half_range = np.add.reduce(np.log(self._squash.half_range))
        parameters.require_all_taken()

    def forward(self, observation: Array, generator: torch.Generator) -> tuple[Array, Array]:
        """Draws actions [B, D]; returns them and their log-densities [B]."""
        features = self._torso.forward(observation)
        raw = self._mean.forward(features)
        free = self._log_std.forward(features)
        log_std = np.minimum(np.maximum(free, np.float32(MIN_LOG_STD)), np.float32(MAX_LOG_STD))
        self._is_free = log_std == free
        noise = torch.randn(raw.shape, generator=generator).numpy()
        self._spread = np.exp(log_std) * noise
        raw += self._spread
        # log p = -noise^2 / 2 - log std - log sqrt(2 pi) - log |d action / d raw|, the last of which is
        # log half the range + 2 (log 2 - raw - softplus(-2 raw)).
        terms = noise * noise
        terms *= np.float32(-0.5)
        terms -= log_std
        terms -= _LOG_SQRT_2PI + _TWO_LOG_2
        softplus = np.logaddexp(np.float32(0.0), np.float32(-2.0) * raw)
        softplus += raw
        softplus += softplus
        terms += softplus
        log_prob = np.add.reduce(terms, 1)
        log_prob -= self._log_half_range
        return self._squash.forward(raw), log_prob

    def backward(self, d_action: Array, d_log_prob: np.float32) -> None:
        """Writes to `gradients` those of a loss.

        Args:
            d_action: its derivatives by the actions, [B, D].
            d_log_prob: that by the log-density of each sample, the same for all.
        """
        # raw = mean + std noise,  d log p / d raw = 2 tanh(raw),  d log p / d log std = -1 beside it
        d_raw: Array = self._squash.backward(d_action)
        d_raw += (d_log_prob + d_log_prob) * self._squash.tanh
        d_log_std = d_raw * self._spread
        d_log_std -= d_log_prob
        d_log_std *= self._is_free
        d_features: Array = self._mean.backward(d_raw)
        d_features += self._log_std.backward(d_log_std)
        self._torso.backward(d_features, inputs=False)


def _behind_identity(module: nn.Module, kind: type[nn.Module], name: str) -> Any:
    """What stands behind an encoder that does nothing."""
    require_just(module, kind)
    require_no_encoder(module.encoder)  # type: ignore[arg-type]
    return getattr(module, name)


def _mean(x: Array) -> float:
    # Array.mean takes several times as long for a few numbers.
    return float(np.add.reduce(x, axis=None)) / x.size
