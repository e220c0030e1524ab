"""An `ActorCritic` of tanh layers, with its gradient, on arrays.

A minibatch of 64 samples through layers of 64 units is some fifty operations of a few microseconds each.
Torch spends more than that on every one: on the call, on its record of it, and on going through the
record backwards. Here the gradient is written down, and an operation costs what it computes.

Shapes: m samples; I, O features into and out of a layer; D action dimensions; K discrete actions; P all
parameters' elements.
"""

import abc
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import nn

from minerva_acme.acceleration import kernels
from minerva_acme.distributions.limits import MAX_LOG_STD, MIN_LOG_STD
from minerva_acme.networks.actor_critic import ActorCritic, CategoricalHead, GaussianHead
from minerva_acme.networks.encoders import IdentityEncoder
from minerva_acme.networks.torso import TanhMLP

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

# Numpy 1 widens a single-precision scalar that meets one of Python's.
_ONE, _HALF = np.float32(1.0), np.float32(0.5)
_LOG_SQRT_2PI = np.float32(0.5 * math.log(2.0 * math.pi))
_ENTROPY_OF_ONE = np.float32(0.5 * math.log(2.0 * math.pi) + 0.5)  # nats, of standard deviation 1


class Outputs(NamedTuple):
    """What a loss needs of the network."""

    log_prob: Array  # [m] of the raw actions, nats
    entropy: Array  # [m] nats
    value: Array  # [m]


class ArrayActorCritic:
    """The parameters of an `ActorCritic` as one vector, and what is computed with them.

        outputs = arrays.forward(observation, raw_action)
        arrays.backward(d_log_prob, d_entropy, d_value)   # of the latest `forward`, into `gradient`

    The parameters are copies, which may be written into.
    """

    parameters: Array  # [P] float32, in the order of the network's
    gradient: Array  # [P] of the loss that `backward` was told

    def __init__(self, network: nn.Module) -> None:
        """Copies the parameters.

        Raises:
            UnknownNetwork: a part is not exactly one that is known here.
        """
        _check(network, ActorCritic)
        assert isinstance(network, ActorCritic)
        if network.memory is not None:
            raise UnknownNetwork(f"memory ({type(network.memory).__name__}) is not known")
        parameters = [*network.parameters()]
        if not all(map(_is_plain, parameters)):
            raise UnknownNetwork("a parameter is not a plain one in float32 on the CPU")
        self.parameters = np.concatenate([parameter.detach().numpy().ravel() for parameter in parameters])
        self.gradient = np.zeros_like(self.parameters)
        ends = np.cumsum([parameter.numel() for parameter in parameters])[:-1]
        self._views = {
            id(parameter): [part.reshape(parameter.shape) for part in parts]
            for parameter, *parts in zip(
                parameters, np.split(self.parameters, ends), np.split(self.gradient, ends), strict=True
            )
        }
        if type(network.encoder) is not IdentityEncoder:
            raise UnknownNetwork(f"{type(network.encoder).__name__} is not known")
        _check(network.encoder, IdentityEncoder)
        self._policy_torso = self._torso(network.policy_torso)
        self._value_torso = None if network.value_torso is None else self._torso(network.value_torso)
        self._policy_head = self._head(network.policy_head)
        self._value_head = self._layer(network.value_head)
        if self._views:
            raise UnknownNetwork("it has parameters that nothing here trains")

    def forward(self, observation: Array, raw_action: Array) -> Outputs:
        """Computes what the network says of samples.

        Args:
            observation: normalised, float32 [m, O].
            raw_action: float32 [m, D], or integers [m].
        """
        features = value_features = self._policy_torso.forward(observation)
        if self._value_torso is not None:
            value_features = self._value_torso.forward(observation)
        log_prob, entropy = self._policy_head.forward(features, raw_action)
        return Outputs(log_prob, entropy, self._value_head.forward(value_features)[:, 0])

    def backward(self, d_log_prob: Array, d_entropy: float, d_value: Array) -> None:
        """Writes into `gradient` that of a loss, given its derivatives by what `forward` returned.

        Args:
            d_log_prob: [m].
            d_entropy: by the entropy of each sample, the same for all.
            d_value: [m].
        """
        d_features = self._policy_head.backward(d_log_prob, d_entropy)
        d_value_features = self._value_head.backward(d_value[:, None])
        if self._value_torso is None:
            d_features += d_value_features
        else:
            self._value_torso.backward(d_value_features)
        self._policy_torso.backward(d_features)

    def _torso(self, module: nn.Module) -> "_Torso":
        _check(module, TanhMLP)
        layers = [*module.children()]
        for activation in layers[1::2]:
            _check(activation, nn.Tanh)
        return _Torso([self._layer(layer) for layer in layers[::2]])

    def _head(self, module: nn.Module) -> "_Head":
        if isinstance(module, CategoricalHead):
            _check(module, CategoricalHead)
            return _Categorical(self._layer(module.logits))
        _check(module, GaussianHead)
        assert isinstance(module, GaussianHead)
        mean = self._layer(module.mean_head)
        if module.log_std_head is not None:
            return _Gaussian(mean, self._layer(module.log_std_head))
        assert module.log_std is not None
        return _Gaussian(mean, _Constant(*self._take(module.log_std)))

    def _layer(self, module: nn.Module) -> "_Linear":
        _check(module, nn.Linear)
        assert isinstance(module, nn.Linear)
        if module.bias is None:
            raise UnknownNetwork("a layer has no bias")
        return _Linear(*self._take(module.weight), *self._take(module.bias))

    def _take(self, parameter: torch.Tensor) -> list[Array]:
        """The views of a parameter and of its gradient, which one place alone writes."""
        if id(parameter) not in self._views:
            raise UnknownNetwork("a parameter is used twice")
        return self._views.pop(id(parameter))


class UnknownNetwork(Exception):
    """A network is not made of what is known here; autograd differentiates it."""


def _is_plain(parameter: nn.Parameter) -> bool:
    return (
        parameter.device.type == "cpu"
        and parameter.dtype == torch.float32
        and parameter.requires_grad
        and not (parameter._backward_hooks or parameter._post_accumulate_grad_hooks)
    )


def _check(module: nn.Module, kind: type[nn.Module]) -> None:
    """Also of what would be called on the way, and is not here."""
    hooks = (
        module._forward_hooks,
        module._forward_pre_hooks,
        module._backward_hooks,
        module._backward_pre_hooks,
    )
    if kernels.plain_type(module) is not kind:
        raise UnknownNetwork(f"a {type(module).__name__} is not just a {kind.__name__}")
    if any(hooks) or "forward" in vars(module):
        raise UnknownNetwork(f"a {type(module).__name__} has hooks")


# Each part keeps of `forward` what its `backward` needs, which takes the loss's derivatives by its outputs,
# writes those by its parameters, and returns those by its inputs.


class _Linear:
    """y = x W^T + b."""

    def __init__(self, weight: Array, d_weight: Array, bias: Array, d_bias: Array) -> None:
        self._weight, self._d_weight = weight, d_weight
        self._bias, self._d_bias = bias, d_bias

    def forward(self, x: Array) -> Array:
        self._x = x
        y: Array = x.dot(self._weight.T)
        y += self._bias
        return y

    def backward(self, d_y: Array) -> Array:
        self.backward_to_parameters(d_y)
        return d_y.dot(self._weight)

    def backward_to_parameters(self, d_y: Array) -> None:
        np.dot(d_y.T, self._x, self._d_weight)
        np.add.reduce(d_y, 0, None, self._d_bias)


class _Constant:
    """A parameter [D] that is the same for every sample."""

    def __init__(self, parameter: Array, gradient: Array) -> None:
        self._parameter, self._gradient = parameter, gradient

    def forward(self, x: Array) -> Array:
        return self._parameter[None].repeat(len(x), axis=0)

    def backward(self, d_y: Array) -> float:
        np.add.reduce(d_y, 0, None, self._gradient)
        return 0.0


class _Torso:
    """h = tanh(x W^T + b), layer by layer."""

    def __init__(self, layers: Sequence[_Linear]) -> None:
        self._layers = layers

    def forward(self, x: Array) -> Array:
        self._outputs = []
        for layer in self._layers:
            x = layer.forward(x)
            np.tanh(x, x)
            self._outputs.append(x)
        return x

    def backward(self, d_h: Array) -> None:
        for index in reversed(range(len(self._layers))):
            h = self._outputs[index]
            slope = h * h
            np.subtract(_ONE, slope, slope)
            slope *= d_h
            if index:
                d_h = self._layers[index].backward(slope)
            else:
                self._layers[0].backward_to_parameters(slope)


class _Head(abc.ABC):
    @abc.abstractmethod
    def forward(self, features: Array, raw_action: Array) -> tuple[Array, Array]:
        """Log-probabilities and entropies, [m] each."""

    @abc.abstractmethod
    def backward(self, d_log_prob: Array, d_entropy: float) -> Array:
        """Derivatives by the features, a new array [m, F]."""


class _Gaussian(_Head):
    def __init__(self, mean: _Linear, log_std: _Linear | _Constant) -> None:
        self._mean, self._log_std = mean, log_std

    def forward(self, features: Array, raw_action: Array) -> tuple[Array, Array]:
        free = self._log_std.forward(features)  # [m, D]
        log_std = np.minimum(np.maximum(free, np.float32(MIN_LOG_STD)), np.float32(MAX_LOG_STD))
        self._is_within = free == log_std
        self._inverse_std = np.exp(-log_std)
        self._z = raw_action - self._mean.forward(features)
        self._z *= self._inverse_std
        self._z_squared = self._z * self._z
        log_p = self._z_squared * -_HALF
        log_p -= log_std
        log_p -= _LOG_SQRT_2PI
        log_std += _ENTROPY_OF_ONE
        return np.add.reduce(log_p, 1), np.add.reduce(log_std, 1)

    def backward(self, d_log_prob: Array, d_entropy: float) -> Array:
        # d log p / d mean = z / std,  d log p / d log std = z^2 - 1,  d H / d log std = 1
        d_mean = self._z
        d_mean *= self._inverse_std
        d_mean *= d_log_prob[:, None]
        d_log_std = self._z_squared
        d_log_std -= _ONE
        d_log_std *= d_log_prob[:, None]
        if d_entropy:
            d_log_std += np.float32(d_entropy)
        d_log_std *= self._is_within
        d_features = self._mean.backward(d_mean)
        d_features += self._log_std.backward(d_log_std)
        return d_features


class _Categorical(_Head):
    def __init__(self, logits: _Linear) -> None:
        self._logits = logits

    def forward(self, features: Array, raw_action: Array) -> tuple[Array, Array]:
        log_p = self._logits.forward(features)  # [m, K]
        log_p -= np.maximum.reduce(log_p, 1)[:, None]
        log_p -= np.log(np.add.reduce(np.exp(log_p), 1))[:, None]
        self._chosen = np.arange(len(log_p)), raw_action
        self._log_p, self._p = log_p, np.exp(log_p)
        self._entropy = -np.add.reduce(self._p * log_p, 1)
        return log_p[self._chosen], self._entropy

    def backward(self, d_log_prob: Array, d_entropy: float) -> Array:
        # d log p_a / d logits_k = [a = k] - p_k,  d H / d logits_k = -p_k (log p_k + H)
        d_logits = self._p * -d_log_prob[:, None]
        d_logits[self._chosen] += d_log_prob
        if d_entropy:
            d_logits -= (self._log_p + self._entropy[:, None]) * self._p * np.float32(d_entropy)
        return self._logits.backward(d_logits)
