"""An `ActorCritic`, with its gradient, on arrays.

Shapes: m samples; I, O features into and out of a layer; D action dimensions; K discrete actions; P all
parameters' elements.
"""

from typing import NamedTuple

import numpy as np
from torch import nn

from minerva_acme.acceleration.array_layers import (
    Array,
    Constant,
    Layer,
    Parameters,
    Take,
    UnknownNetwork,
    make_chain,
    require_just,
)
from minerva_acme.distributions.categorical import log_softmax_array
from minerva_acme.distributions.gaussian import entropy_array, log_prob_array
from minerva_acme.distributions.limits import MAX_LOG_STD, MIN_LOG_STD
from minerva_acme.networks.actor_critic import ActorCritic, CategoricalHead, GaussianHead
from minerva_acme.networks.encoders import IdentityEncoder

# Numpy 1 converts a single-precision scalar to double precision when it is combined with a Python float.
_ONE = np.float32(1.0)


class Outputs(NamedTuple):
    """The outputs of the network that a loss needs."""

    log_prob: Array  # [m] of the raw actions, nats
    entropy: Array  # [m] nats
    value: Array  # [m]


class ArrayActorCritic:
    """An `ActorCritic` on arrays, with its parameters as one vector.

        outputs = arrays.forward(observation, raw_action)
        arrays.backward(d_log_prob, d_entropy, d_value)   # of the latest `forward`, into `gradient`

    The parameters are copies, which may be overwritten.
    """

    parameters: Array  # [P] float32, in the order of the network's parameters
    gradient: Array  # [P] of the loss whose derivatives `backward` received

    def __init__(self, network: nn.Module) -> None:
        """Copies the parameters.

        Raises:
            UnknownNetwork: A part is not exactly of a supported kind.
        """
        require_just(network, ActorCritic)
        assert isinstance(network, ActorCritic)
        if network.memory is not None:
            raise UnknownNetwork(f"memory ({type(network.memory).__name__}) is not supported")
        parameters = Parameters(network)
        self.parameters, self.gradient = parameters.vector, parameters.gradient
        require_just(network.encoder, IdentityEncoder)
        take = parameters.take
        self._policy_torso = make_chain([network.policy_torso], take)
        self._value_torso = None
        if network.value_torso is not None:
            self._value_torso = make_chain([network.value_torso], take)
        self._policy_head = _make_head(network.policy_head, take)
        self._value_head = make_chain([network.value_head], take)
        parameters.require_all_taken()

    def forward(self, observation: Array, raw_action: Array) -> Outputs:
        """Computes the outputs of the network for samples.

        Args:
            observation: The normalised observations, float32 [m, O].
            raw_action: The raw actions, float32 [m, D], or integers [m].
        """
        features = value_features = self._policy_torso.forward(observation)
        if self._value_torso is not None:
            value_features = self._value_torso.forward(observation)
        log_prob, entropy = self._policy_head.forward(features, raw_action)
        return Outputs(log_prob, entropy, self._value_head.forward(value_features)[:, 0])

    def backward(self, d_log_prob: Array, d_entropy: float, d_value: Array) -> None:
        """Writes the gradient of a loss into `gradient`, given its derivatives by the outputs of `forward`.

        Args:
            d_log_prob: The derivatives by the log-probabilities, [m].
            d_entropy: The derivative by the entropy of each sample, the same for all.
            d_value: The derivatives by the values, [m].
        """
        d_features = self._policy_head.backward(d_log_prob, d_entropy)
        d_value_features = self._value_head.backward(d_value[:, None])
        if self._value_torso is None:
            d_features += d_value_features
        else:
            self._value_torso.backward(d_value_features, inputs=False)
        self._policy_torso.backward(d_features, inputs=False)


def _make_head(module: nn.Module, take: Take) -> "_Gaussian | _Categorical":
    if isinstance(module, CategoricalHead):
        require_just(module, CategoricalHead)
        return _Categorical(make_chain([module.logits], take))
    require_just(module, GaussianHead)
    assert isinstance(module, GaussianHead)
    mean = make_chain([module.mean_head], take)
    log_std: Layer
    if module.log_std_head is not None:
        log_std, shape = make_chain([module.log_std_head], take), [_num_outputs(module.log_std_head)]
    else:
        assert module.log_std is not None
        log_std, shape = Constant(module.log_std, take), [*module.log_std.shape]
    if shape != [_num_outputs(module.mean_head)]:
        raise UnknownNetwork("means and standard deviations differ in size")
    return _Gaussian(mean, log_std)


def _num_outputs(head: nn.Module) -> int:
    """Returns the number of outputs of a module that `make_chain` accepts."""
    *_, last = (layer for layer in head.modules() if isinstance(layer, nn.Linear))
    return len(last.weight)


class _Gaussian:
    """A head on arrays: `backward` follows the latest `forward`."""

    def __init__(self, mean: Layer, log_std: Layer) -> None:
        self._mean, self._log_std = mean, log_std

    def forward(self, features: Array, raw_action: Array) -> tuple[Array, Array]:
        """Computes log-probabilities and entropies, [m] each."""
        free = self._log_std.forward(features)  # [m, D]
        log_std = np.minimum(np.maximum(free, np.float32(MIN_LOG_STD)), np.float32(MAX_LOG_STD))
        self._is_within = free == log_std
        self._inverse_std = np.exp(-log_std)
        self._z = raw_action - self._mean.forward(features)
        self._z *= self._inverse_std
        return log_prob_array(self._z, log_std), entropy_array(log_std)

    def backward(self, d_log_prob: Array, d_entropy: float) -> Array:
        """Computes the derivatives by the features, a new array [m, F]."""
        # d log p / d mean = z / std,  d log p / d log std = z^2 - 1,  d H / d log std = 1
        d_log_std = self._z * self._z
        d_mean = self._z
        d_mean *= self._inverse_std
        d_mean *= d_log_prob[:, None]
        d_log_std -= _ONE
        d_log_std *= d_log_prob[:, None]
        if d_entropy:
            d_log_std += np.float32(d_entropy)
        d_log_std *= self._is_within
        d_features: Array = self._mean.backward(d_mean)
        d_features += self._log_std.backward(d_log_std)
        return d_features


class _Categorical:
    """A head on arrays, like `_Gaussian`."""

    def __init__(self, logits: Layer) -> None:
        self._logits = logits

    def forward(self, features: Array, raw_action: Array) -> tuple[Array, Array]:
        log_p = log_softmax_array(self._logits.forward(features))  # [m, K]
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
        d_features: Array = self._logits.backward(d_logits)
        return d_features
