"""Policies for acting: one observation, or a few, through a network without torch's cost per call.

A policy's forward pass for one observation is some twenty kernels of a microsecond or less, and torch
spends several microseconds on calling each. numpy spends a third of one. So where every layer of a
policy is known here, arrays do what the module does; any other policy acts by its module as it is.

Shapes: O observation size; E environments; D action dimensions; K discrete actions; F features.
"""

import abc
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
import torch
import tree
from torch import nn

from minerva_acme.acceleration import kernels, notes
from minerva_acme.acceleration.array_layers import elu
from minerva_acme.distributions import Categorical, DiagonalGaussian, SquashedGaussian, TanhSquash
from minerva_acme.distributions.categorical import log_softmax_array
from minerva_acme.distributions.gaussian import log_prob_array
from minerva_acme.distributions.limits import MAX_LOG_STD, MIN_LOG_STD
from minerva_acme.networks import critic, critic_heads, encoders, normalizer, torso
from minerva_acme.networks.actor_critic import ActorCritic, CategoricalHead, GaussianHead
from minerva_acme.networks.policy import CategoricalPolicy, GaussianPolicy, SquashedPolicy

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Distribution: TypeAlias = DiagonalGaussian | Categorical  # here, of arrays instead of tensors

# Numpy 1 widens a single-precision scalar that meets one of Python's.
_ZERO = np.float32(0.0)
_ONE, _HALF = np.float32(1.0), np.float32(0.5)
_LOW, _HIGH = np.float32(MIN_LOG_STD), np.float32(MAX_LOG_STD)


class Choice(NamedTuple):
    """What a policy drew at E observations."""

    raw: Any  # [E, D] float32, or [E] int64 where actions are discrete
    log_prob: Any  # [E] float32, log-density or log-probability of `raw`
    parameters: Distribution  # of arrays or tensors, [E, D] or [E, K]


class ActingPolicy(abc.ABC):
    """A policy network with noise of its own. Its state is that of the noise."""

    @abc.abstractmethod
    def sample(self, observations: Any) -> Choice:
        """Draws from the policy at E observations."""

    @abc.abstractmethod
    def mode(self, observations: Any) -> Any:
        """The likeliest raw action at each of E observations."""

    @abc.abstractmethod
    def save(self) -> Any:
        """Returns the state of the noise, in plain containers."""

    @abc.abstractmethod
    def restore(self, state: Any) -> None:
        """Restores a state that `save` returned."""


def make_acting_policy(
    network: nn.Module, generator: torch.Generator, *, accelerated: bool = True
) -> ActingPolicy:
    """Makes the quickest way to act by a network.

    Args:
        network: a policy, or an `ActorCritic`, of which the policy acts. Kept, not copied: what is written
            into its parameters is acted on from then on.
        generator: of the noise; numpy's, where that acts, is seeded with a number drawn from it.
        accelerated: whether arrays may act.
    """
    try:
        if not accelerated:
            raise UnknownPolicy("acceleration is off")
        forward = compile_policy(network)
    except UnknownPolicy as reason:
        notes.say("acting", f"torch: {reason}")
        return _TorchPolicy(network, generator)
    notes.say("acting", "arrays")
    return _ArrayPolicy(forward, generator)


def make_acting_module(module: nn.Module, *, accelerated: bool = True) -> Callable[[Any], Any]:
    """Makes the quickest way to call a module of an agent over replay, without gradient.

    Args:
        module: of observations [E, ...]. Kept, not copied: what is written into its parameters is acted on
            from then on.
        accelerated: whether arrays may compute.

    Returns:
        A function from arrays to what the module returns, of tensors.
    """
    try:
        if not accelerated:
            raise UnknownPolicy("acceleration is off")
        call = _compile_module(module)
        if not _agrees(call, module):
            raise UnknownPolicy(f"arrays do not give what {type(module).__name__} gives")
    except UnknownPolicy as reason:
        notes.say("acting", f"torch: {reason}")
        return torch.no_grad()(lambda observations: module(_to_tensors(observations)))
    notes.say("acting", "arrays")
    return call


def compile_policy(network: nn.Module) -> Callable[[Array], Distribution]:
    """Makes a function that computes on arrays what a policy network computes on tensors.

    The arrays are those of the network's parameters: there is nothing to refresh. Numbers agree with
    the network's but for float32 rounding, 1e-6 in relation to their size.

    Args:
        network: a policy or an `ActorCritic`, on the CPU in float32.

    Returns:
        A function from observations [E, O] to a distribution of arrays.

    Raises:
        UnknownPolicy: a layer is not known, is not what it was when this was written, or has hooks.
    """
    forward = _policy(network)
    if not _agrees(forward, network):
        raise UnknownPolicy(f"arrays do not give what {type(network).__name__} gives")
    return forward


class _ArrayPolicy(ActingPolicy):
    def __init__(self, forward: Callable[[Array], Distribution], generator: torch.Generator) -> None:
        seed = int(torch.randint(2**63 - 1, (), generator=generator, device=generator.device))
        self._forward = forward
        self._random = np.random.default_rng(seed)

    def sample(self, observations: Array) -> Choice:
        policy = self._forward(observations)
        return (
            _draw_gaussian(policy, self._random) if len(policy) == 2 else _draw_category(policy, self._random)
        )

    def mode(self, observations: Array) -> Any:
        policy: Any = self._forward(observations)
        return policy[0] if len(policy) == 2 else policy[0].argmax(axis=-1)

    def save(self) -> Any:
        return {"random": self._random.bit_generator.state}

    def restore(self, state: Any) -> None:
        self._random.bit_generator.state = state["random"]


def _draw_gaussian(policy: Any, random: np.random.Generator) -> Choice:
    mean, log_std = policy
    stddev = np.exp(log_std)
    raw = random.standard_normal(mean.shape, np.float32)
    raw *= stddev
    raw += mean
    # From the rounded sample, as the learner sees it, and not from the noise.
    z = raw - mean
    z /= stddev
    return Choice(raw, log_prob_array(z, log_std), policy)


def _draw_category(policy: Any, random: np.random.Generator) -> Choice:
    (logits,) = policy
    raw = (logits + random.gumbel(size=logits.shape)).argmax(axis=-1)
    log_p = log_softmax_array(logits)
    return Choice(raw, log_p[np.arange(len(log_p)), raw], policy)


class _TorchPolicy(ActingPolicy):
    def __init__(self, network: nn.Module, generator: torch.Generator) -> None:
        self._policy = network.policy if isinstance(network, ActorCritic) else network
        self._generator = generator

    @torch.no_grad()
    def sample(self, observations: Any) -> Choice:
        policy: Any = self._policy(_to_tensors(observations))
        raw = policy.sample(self._generator)
        log_prob = policy.log_prob(raw)
        return Choice(raw.numpy(), log_prob.numpy(), policy)

    @torch.no_grad()
    def mode(self, observations: Any) -> Any:
        return self._policy(_to_tensors(observations)).mode().numpy()

    def save(self) -> Any:
        return {"generator": self._generator.get_state()}

    def restore(self, state: Any) -> None:
        self._generator.set_state(state["generator"].cpu())  # a checkpoint is loaded to the learner's device


def _to_tensors(nest: Any) -> Any:
    return tree.map_structure(torch.from_numpy, nest)


# What follows computes with features first, [F, E]: that is the quickest product that BLAS has for one
# column, and for a few half the time of the other way round.

_Layer: TypeAlias = Callable[[Array], Array]


class UnknownPolicy(Exception):
    """A policy is not made of what is known here; torch computes it."""


def _policy(network: nn.Module) -> Callable[[Array], Distribution]:
    layers, head = _layers_and_head(network)

    return lambda observations: head(_through(layers, observations.T))


def _layers_and_head(network: nn.Module) -> tuple[list[_Layer], Callable[[Array], Distribution]]:
    _check(network)
    if type(network) is GaussianPolicy:
        return _layers(network.torso), _gaussian(network.mean_head, network.log_std_head)
    if type(network) is CategoricalPolicy:
        return _layers(network.torso), _categorical(network.logits)
    if type(network) is ActorCritic and network.memory is None:
        parts = [network.normalizer, network.encoder, network.policy_torso]
        layers = [layer for part in parts if part is not None for layer in _layers(part)]
        return layers, _head(network.policy_head)
    if type(network) is encoders.EncodedPolicy:
        layers, head = _layers_and_head(network.policy)
        return [*_layers(network.encoder), *layers], head
    memory = " with memory" if getattr(network, "memory", None) is not None else ""
    raise UnknownPolicy(f"{type(network).__name__}{memory} is not known")


def _compile_module(module: nn.Module) -> Callable[[Array], Any]:
    _check(module)
    if type(module) is encoders.EncodedCritic:
        return _critics(_layers(module.encoder), module.critic)
    if type(module) is not encoders.EncodedPolicy:
        raise UnknownPolicy(f"{type(module).__name__} is not known")
    _check(module.policy)
    if type(module.policy) is SquashedPolicy:
        squash: TanhSquash = module.policy.squash
        layers, head = _layers_and_head(module.policy.policy)
        layers = _layers(module.encoder) + layers
        return lambda x: SquashedGaussian(
            DiagonalGaussian(*map(_tensor, head(_through(layers, x.T)))), squash
        )
    layers = _layers(module.encoder) + _layers(module.policy)
    return lambda x: _tensor(_through(layers, x.T).T)


def _critics(encoder: list[_Layer], ensemble: nn.Module) -> Callable[[Array], Any]:
    _check(ensemble)
    if type(ensemble) is not critic_heads.Ensemble:
        raise UnknownPolicy(f"{type(ensemble).__name__} is not known")
    members, rule = [_critic(member) for member in ensemble.members], ensemble.rule

    def call(x: Array) -> Any:
        features = _through(encoder, x.T)
        return critic_heads.EnsemblePrediction(
            tuple(critic_heads.ScalarPrediction(_tensor(q(features).T[..., None])) for q in members), rule
        )

    return call


def _critic(module: nn.Module) -> _Layer:
    _check(module)
    if type(module) is critic.DuelingCritic:
        value, advantage = _critic(module.value), _critic(module.advantage)

        def dueling(x: Array) -> Array:
            q = advantage(x)
            q -= q.mean(axis=0)
            q += value(x)
            return q

        return dueling
    if type(module) is not critic.Critic or type(module.head) is not critic_heads.ScalarHead:
        raise UnknownPolicy(f"a {type(module).__name__}, or its head, is not known")
    layers = [*_layers(module.torso), _linear(module.head)]
    return lambda x: _through(layers, x)


def _through(layers: list[_Layer], x: Array) -> Array:
    for layer in layers:
        x = layer(x)
    return x


def _tensor(array: Any) -> torch.Tensor:
    return torch.from_numpy(array)


def _head(module: nn.Module) -> Callable[[Array], Distribution]:
    _check(module)
    if type(module) is CategoricalHead:
        return _categorical(module.logits)
    if type(module) is GaussianHead:
        return _gaussian(
            module.mean_head, module.log_std if module.log_std_head is None else module.log_std_head
        )
    raise UnknownPolicy(f"{type(module).__name__} is not known")


def _categorical(logits_head: nn.Module) -> Callable[[Array], Distribution]:
    logits = _linear(logits_head)
    return lambda features: Categorical(cast(torch.Tensor, logits(features).T))


def _gaussian(
    mean_head: nn.Module, log_std_head: nn.Module | nn.Parameter | None
) -> Callable[[Array], Distribution]:
    mean_layer = _linear(mean_head)
    if isinstance(log_std_head, nn.Module):
        log_std_layer = _linear(log_std_head)
    else:
        column = _array(log_std_head)[:, None]

        def log_std_layer(features: Array) -> Array:
            return column.repeat(features.shape[1], axis=1)

    def head(features: Array) -> Distribution:
        log_std = log_std_layer(features)
        np.minimum(log_std, _HIGH, out=log_std)
        np.maximum(log_std, _LOW, out=log_std)
        return DiagonalGaussian(cast(torch.Tensor, mean_layer(features).T), cast(torch.Tensor, log_std.T))

    return head


def _layers(module: nn.Module) -> list[_Layer]:
    _check(module)
    kind = kernels.plain_type(module)
    if kind in (nn.Sequential, torso.LayerNormMLP, torso.ReLUMLP, torso.SimBa, torso.TanhMLP):
        return [layer for child in module._modules.values() if child is not None for layer in _layers(child)]
    if kind is encoders.IdentityEncoder:
        return []
    if isinstance(module, normalizer.NormalizedEncoder):
        return _layers(module.normalizer) + _layers(module.encoder)
    if isinstance(module, torso.ResidualBlock):
        return [_residual([*_layers(module.norm), _linear(module.expand), _relu, _linear(module.contract)])]
    if kind not in _MAKERS:
        raise UnknownPolicy(f"{kind.__name__} is not known")
    return [_MAKERS[kind](module)]


def _linear(module: nn.Module) -> _Layer:
    _check(module)
    if kernels.plain_type(module) not in (nn.Linear, critic_heads.ScalarHead):
        raise UnknownPolicy(f"{type(module).__name__} is not a Linear")
    weight = _array(module.weight)
    if module.bias is None:
        return weight.dot
    bias = _array(module.bias)[:, None]

    def apply(x: Array) -> Array:
        y = weight.dot(x)
        y += bias
        return y

    return apply


def _layer_norm(module: nn.Module) -> _Layer:
    assert isinstance(module, nn.LayerNorm)
    if len(module.normalized_shape) != 1 or module.weight is None or module.bias is None:
        raise UnknownPolicy("a LayerNorm without weights is not known")
    size = module.normalized_shape[0]
    average = np.full((1, size), 1.0 / size, np.float32)
    epsilon = np.float32(module.eps)
    weight, bias = _array(module.weight)[:, None], _array(module.bias)[:, None]

    def apply(x: Array) -> Array:
        y = x - average.dot(x)
        y *= weight / np.sqrt(average.dot(y * y) + epsilon)
        y += bias
        return y

    return apply


def _residual(layers: list[_Layer]) -> _Layer:
    def apply(x: Array) -> Array:
        y = x
        for layer in layers:
            y = layer(y)
        y += x
        return y

    return apply


def _running_norm(module: nn.Module) -> _Layer:
    mean, var = _array(module.mean)[:, None], _array(module.var)[:, None]
    clip, epsilon = np.float32(normalizer.CLIP), np.float32(normalizer.MIN_VARIANCE)

    def apply(x: Array) -> Array:
        y = x - mean
        y *= _ONE / np.sqrt(var + epsilon)
        np.minimum(y, clip, out=y)
        np.maximum(y, -clip, out=y)
        return y

    return apply


def _squash(module: nn.Module) -> _Layer:
    assert isinstance(module, TanhSquash)
    low, high = _array(module.low)[:, None], _array(module.high)[:, None]
    half_range = _HALF * (high - low)

    def apply(x: Array) -> Array:
        y: Array = np.tanh(x)
        y += _ONE
        y *= half_range
        y += low
        np.minimum(y, high, out=y)
        np.maximum(y, low, out=y)
        return y

    return apply


# Not in place: what comes first is handed the observation itself.


def _tanh(x: Array) -> Array:
    y: Array = np.tanh(x)
    return y


def _relu(x: Array) -> Array:
    y: Array = np.maximum(x, _ZERO)
    return y


def _make_elu(module: nn.Module) -> _Layer:
    if module.alpha != 1.0:
        raise UnknownPolicy("an ELU of another alpha is not known")
    return elu


_MAKERS: Mapping[type[nn.Module], Callable[[Any], _Layer]] = {
    nn.Linear: _linear,
    nn.LayerNorm: _layer_norm,
    normalizer.RunningNorm: _running_norm,
    TanhSquash: _squash,
    nn.Tanh: lambda module: _tanh,
    nn.ReLU: lambda module: _relu,
    nn.ELU: _make_elu,
}


def _check(module: nn.Module) -> None:
    if module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module):
        raise UnknownPolicy(f"{type(module).__name__} has hooks")


def _array(parameter: Any) -> Array:
    """A parameter's own memory as an array."""
    if parameter is None or parameter.device.type != "cpu" or parameter.dtype != torch.float32:
        raise UnknownPolicy("a parameter is not float32 on the CPU")
    array: Array = parameter.detach().numpy()
    return array


@torch.no_grad()
def _agrees(forward: Callable[[Array], Any], network: nn.Module) -> bool:
    """Whether both say the same of some observations: the last guard against a change made elsewhere."""
    first = next(layer for layer in network.modules() if isinstance(layer, nn.Linear))
    rows = np.random.default_rng(0).standard_normal((4, first.in_features), np.float32)
    expected = (network.policy if isinstance(network, ActorCritic) else network)(torch.from_numpy(rows))
    pairs = zip(tree.flatten(forward(rows)), tree.flatten(expected), strict=True)
    return all(
        np.allclose(np.asarray(found), wanted.numpy(), rtol=1e-4, atol=1e-4)
        for found, wanted in pairs
        if isinstance(wanted, torch.Tensor)
    )
