"""Acting: computes a module's output for one observation, or a few, without torch's cost per call.

A policy's forward pass for one observation is some twenty kernels of a microsecond or less, and torch
spends several microseconds on calling each. numpy spends a third of one. So if every layer of a module is
supported here, its output is computed on arrays, after a comparison has shown that the results agree; any
other module is called as it is.

Shapes: O observation size; E environments; D action dimensions; K discrete actions; F features.
"""

import copy
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
import tree
from torch import nn

from minerva_acme.acceleration import kernels, notes
from minerva_acme.acceleration.agreement import Agreement, Pair, Watch, far_weights, is_called_as_written
from minerva_acme.acceleration.array_layers import UnknownNetwork, elu
from minerva_acme.distributions import Categorical, DiagonalGaussian, SquashedGaussian, TanhSquash
from minerva_acme.distributions.categorical import log_softmax_array
from minerva_acme.distributions.gaussian import log_prob_array
from minerva_acme.distributions.limits import MAX_LOG_STD, MIN_LOG_STD
from minerva_acme.distributions.squashed import squash_array
from minerva_acme.machine import generators
from minerva_acme.networks import critic, critic_heads, encoders, normalizer, torso, weights
from minerva_acme.networks.actor_critic import (
    ActorCritic,
    CategoricalHead,
    GaussianHead,
    memory_of,
    policy_of,
)
from minerva_acme.networks.policy import CategoricalPolicy, GaussianPolicy, SquashedPolicy

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

_PART = "acting"
_FAR = np.float32(-30.0)  # factor for the first observations, to test where numbers are clipped
_NUM_DRAWS = 16  # per observation, when draws are compared

# Numpy 1 converts a single-precision number to double precision when it meets a Python float. An array
# without axes reaches a ufunc half a microsecond faster than numpy's scalar.
_ZERO, _ONE, _HALF = (np.array(number, np.float32) for number in (0.0, 1.0, 0.5))
_LOW, _HIGH = np.array(MIN_LOG_STD, np.float32), np.array(MAX_LOG_STD, np.float32)


class Choice(NamedTuple):
    """Samples from a distribution at E observations."""

    raw: Any  # [E, D] float32, or [E] int64 if actions are discrete
    log_prob: Any  # [E] float32, log-density or log-probability of `raw`
    parameters: Any  # the distribution, of arrays or tensors, [E, D] or [E, K]


class Acting:
    """Computes a module's output for observations, without gradient, and draws samples from it.

        output = acting(observations)         # the module's output
        choice = acting.sample(observations)  # drawn from the distribution that it returns

    The output is computed on arrays if every layer is supported. The result is compared with the module on
    the first observations, on the first ones after a restore, and after a part of the module was replaced;
    each time also for observations and weights that are far from these. If it differs, the module itself is
    called from then on, and a warning says so.

    Unless `module` was read, no other code has the module, so checking for replaced parts costs almost
    nothing. Afterwards each call checks all of them, which takes some microseconds.

    The noise of `sample` comes from the generator if torch draws it. If arrays draw it, it comes from numpy,
    seeded with a number drawn from the generator.
    """

    def __init__(self, module: nn.Module, generator: torch.Generator, *, accelerated: bool = True) -> None:
        """Takes the module.

        Args:
            module: The module, which gives an output for observations [E, ...]; see `policy_of` for an
                `ActorCritic`. A module with a `memory` is given the output of its `remember` instead. It is
                copied to the CPU.
            generator: The generator for the noise, on the CPU.
            accelerated: Whether arrays may be used.
        """
        self.generator = generator
        self._module: Any = copy.deepcopy(module).to("cpu").requires_grad_(False).eval()
        self._is_shared = False  # with code that asked for it
        self._random: np.random.Generator | None = None  # for arrays, after their first draw
        self._rest: tuple[list[Any], nn.Module] = [], self._module  # after a memory, and its parts
        self._agreement = Agreement(_PART)
        self._twin: _Twin | None = None
        if accelerated:
            self._compile()
        else:
            notes.say(_PART, "torch: acceleration is off")

    def __call__(self, observations: Any) -> Any:
        """Computes the module's output, as tensors, for observations that are arrays, leaves [E, ...]."""
        if (twin := self._agreed(observations)) is None:
            return self._plain(observations)
        return twin.output(observations)

    def sample(self, observations: Any) -> Choice:
        """Draws from the module's distribution at E observations."""
        twin = self._agreed(observations)
        if twin is not None and (draw := _DRAWS.get(twin.make)):
            return draw(twin.make(*twin.parts(observations)), self._random or self._begun())
        output = self._plain(observations) if twin is None else twin.output(observations)
        with torch.no_grad():
            raw = output.sample(self.generator)
            return Choice(raw.numpy(), output.log_prob(raw).numpy(), output)

    @property
    def module(self) -> nn.Module:
        """The module. Changes of its parameters and replaced parts take effect at the next call."""
        self._is_shared = True
        return self._module

    def set_variables(self, state: Mapping[str, Array]) -> None:
        """Sets weights and statistics from `state`, the module's state dict as arrays.

        Raises:
            ValueError: Its names or shapes are not the module's.
        """
        weights.set_weights(self._module, state)

    @property
    def remembers(self) -> bool:
        """True if the module has a memory of the episode."""
        return memory_of(self._module) is not None

    @torch.no_grad()
    def initial_state(self, num_environments: int) -> Any:
        """Returns the memory's state at the beginning of an episode, arrays [E, ...]; () without a memory."""
        if (memory := memory_of(self._module)) is None:
            return ()
        return tree.map_structure(torch.Tensor.numpy, memory.initial_state(num_environments))

    @torch.no_grad()
    def remember(self, observations: Any, state: Any) -> tuple[Array, Any]:
        """Returns the features of observations, from which a choice is made, and the state after the step."""
        features, after = self._module.remember(*_to_tensors((observations, state)))
        return features.numpy(), tree.map_structure(torch.Tensor.numpy, after)

    def __getstate__(self) -> dict[str, Any]:
        # A copy's arrays are still the original's: checking its own module reveals that.
        return {**vars(self), "_is_shared": True}

    @property
    def noise(self) -> Any:
        """The state of the noise, in plain containers."""
        if self._random is None:
            return {"generator": self.generator.get_state()}
        return {"random": self._random.bit_generator.state}

    @noise.setter
    def noise(self, state: Any) -> None:
        if "random" not in state:
            self._random = None
            generators.restore(self.generator, state["generator"])
            return
        self._random = np.random.default_rng()
        self._random.bit_generator.state = state["random"]
        if self._twin is None:
            self._leave_arrays()

    def restore(self, noise: Any) -> None:
        """Restores the state of the noise, and compares arrays and module at the next call."""
        self.noise = noise
        self._agreement.forget()

    @torch.no_grad()
    def _plain(self, observations: Any) -> Any:
        return policy_of(self._acts())(_to_tensors(observations))

    def _acts(self) -> nn.Module:
        """Returns the module, or the part after its memory."""
        if not self.remembers:
            return self._module
        parts = [*self._module._modules.values()]
        if parts != self._rest[0]:
            self._rest = parts, self._module.without_memory()
        return self._rest[1]

    def _compile(self) -> None:
        """Makes the array version for the module as it is now, or none if a part is not supported."""
        try:
            self._twin = _compile(self._acts())
        except UnknownNetwork as reason:
            notes.say(_PART, f"torch: {reason}")
            self._leave_arrays()
        else:
            notes.say(_PART, "arrays")
            self._watch = Watch(self._module, _parts(self._module))

    def _begun(self) -> np.random.Generator:
        """Returns the noise of arrays, and starts it at the first call."""
        if self._random is None:
            # Only now, so that torch's noise is the same whether arrays were tried or not.
            self._random = np.random.default_rng(int(torch.randint(2**63 - 1, (), generator=self.generator)))
        return self._random

    def _leave_arrays(self) -> None:
        """Leaves the rest of the run to torch, with noise that follows from what arrays have drawn."""
        self._twin = None
        if self._random is not None:
            self.generator.manual_seed(int(self._random.integers(2**63 - 1)))
            self._random = None

    def _agreed(self, observations: Any) -> "_Twin | None":
        """Returns the array version if it was seen to agree with the module as it is, else None."""
        if self._twin is None or self._agreement.holds(self._is_shared) or self._compare(observations):
            return self._twin
        return None

    def _compare(self, observations: Any) -> bool:
        """Returns whether both ways agree for observations, and for others and weights far from these."""
        if not self._watch.is_unchanged():
            self._compile()
        if (twin := self._twin) is None:
            return False
        rows = np.concatenate([observations, _FAR * observations])
        # A number near zero may be the rounding error of a number in mid-range, or of one near 1.
        ranges = [part.high - part.low for part in self._module.modules() if isinstance(part, TanhSquash)]
        scale = [torch.ones(()), *ranges]

        def compare_far_away(far: Any) -> Pair:
            return Pair((_compile(far).output(rows), scale), (policy_of(far)(_to_tensors(rows)), scale))

        # Random draws of a layer must not change the run.
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            found, wanted = twin.output(rows), self._plain(rows)
            is_alike = _kinds(found) == _kinds(wanted)
            pairs = {"outputs": Pair((found if is_alike else (), scale), (wanted, scale))}
            if is_alike:
                pairs |= far_weights("outputs", self._acts(), compare_far_away)
                if draw := _DRAWS.get(twin.make):
                    pairs |= _compare_draws(draw, wanted, self.generator)
        agrees = self._agreement.settle(self._watch, **pairs)
        if self._agreement.is_broken:
            self._leave_arrays()
        return agrees


def _parts(module: nn.Module) -> list[nn.Module]:
    """Returns the parts of a module that act: for an `ActorCritic`, without its value and its memory."""
    if not isinstance(module, ActorCritic):
        return [*module.modules()]
    acting = [module.normalizer, module.encoder, module.policy_torso, module.policy_head]
    return [module, *(part for each in acting if each is not None for part in each.modules())]


def _kinds(output: Any) -> Any:
    """Returns the types of all parts of an output, and its values that hold no tensors."""
    if isinstance(output, tuple):
        return type(output), *map(_kinds, output)
    return type(output) if isinstance(output, torch.Tensor) else output


def _compare_draws(draw: "_Draw", policy: Any, generator: torch.Generator) -> dict[str, Pair]:
    """Computes what arrays and a distribution draw with the same noise, and the densities of these draws."""
    policy = policy.at(torch.arange(len(policy[0])).repeat(_NUM_DRAWS))
    copies = [torch.Generator().set_state(generator.get_state()) for _ in range(2)]
    wanted = policy.sample(copies[0])
    found = draw(type(policy)(*(part.numpy() for part in policy)), _TorchNoise(copies[1]))
    raw, log_prob = torch.from_numpy(found.raw), torch.from_numpy(found.log_prob)
    return {"samples": Pair(raw, wanted), "densities": Pair(log_prob, policy.log_prob(raw))}


class _TorchNoise:
    """The noise of torch's distributions, under numpy's names."""

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator

    def standard_normal(self, size: Any, dtype: Any) -> Array:
        noise: Array = torch.randn(size, generator=self._generator).numpy().astype(dtype, copy=False)
        return noise

    def gumbel(self, size: Any) -> Array:
        noise: Array = torch.empty(size).exponential_(generator=self._generator).log_().neg_().numpy()
        return noise


def _draw_gaussian(policy: Any, random: Any) -> Choice:
    mean, log_std = policy
    stddev = np.exp(log_std)
    raw = random.standard_normal(mean.shape, np.float32)
    raw *= stddev
    raw += mean
    # From the rounded sample, as the learner does, and not from the noise.
    z = raw - mean
    z /= stddev
    return Choice(raw, log_prob_array(z, log_std), policy)


def _draw_category(policy: Any, random: Any) -> Choice:
    (logits,) = policy
    raw = (logits + random.gumbel(size=logits.shape)).argmax(axis=-1)
    log_p = log_softmax_array(logits)
    return Choice(raw, log_p[np.arange(len(log_p)), raw], policy)


_Draw: TypeAlias = Callable[[Any, Any], Choice]
# Keyed by what makes the distribution. They draw from numpy's generator, or an object with its methods.
_DRAWS: Mapping[Any, _Draw] = {DiagonalGaussian: _draw_gaussian, Categorical: _draw_category}


def _to_tensors(nest: Any) -> Any:
    return tree.map_structure(torch.from_numpy, nest)


# The code below computes with features first, [F, E]: BLAS's fastest product for one column, and for a few
# columns half the time of the other layout. The arrays share the parameters' memory, so there is nothing to
# refresh.

_Layer: TypeAlias = Callable[[Array], Array]


class _Twin(NamedTuple):
    """The computation of a module on arrays: layers in sequence, then heads side by side."""

    layers: list[_Layer]
    heads: list[_Layer]
    make: Callable[..., Any]  # makes the output from the heads' outputs, [E, ...] each

    def parts(self, observations: Array) -> list[Array]:
        """Computes the outputs of the heads for observations [E, O]."""
        x = observations.T
        for layer in self.layers:
            x = layer(x)
        return [head(x).T for head in self.heads]

    def output(self, observations: Array) -> Any:
        """Computes the module's output, as tensors, for observations [E, O]."""
        return self.make(*map(torch.from_numpy, self.parts(observations)))


def _compile(module: nn.Module) -> _Twin:
    """Makes the array version of a module.

    Raises:
        UnknownNetwork: A layer is not supported, or has hooks.
    """
    _check(module)
    if type(module) is GaussianPolicy:
        mean, log_std = _gaussian(module.mean_head, module.log_std_head)
        squashed = [mean, *([] if module.mean_squash is None else _layers(module.mean_squash))]
        return _Twin(
            _layers(module.torso), [functools.partial(_through, squashed), log_std], DiagonalGaussian
        )
    if type(module) is CategoricalPolicy:
        return _Twin(_layers(module.torso), [_linear(module.logits)], Categorical)
    if type(module) is ActorCritic and module.memory is None:
        parts = [module.normalizer, module.encoder, module.policy_torso]
        layers = [layer for part in parts if part is not None for layer in _layers(part)]
        return _Twin(layers, *_head(module.policy_head))
    if type(module) is SquashedPolicy:
        inner, squash = _compile(module.policy), module.squash
        return inner._replace(make=lambda *parts: SquashedGaussian(inner.make(*parts), squash))
    if type(module) is encoders.EncodedPolicy:
        if type(module.policy) is nn.Sequential:
            inner = _Twin(_layers(module.policy), [lambda action: action], lambda action: action)
        else:
            inner = _compile(module.policy)
        return inner._replace(layers=_layers(module.encoder) + inner.layers)
    if type(module) is encoders.EncodedCritic:
        return _ensemble(_layers(module.encoder), module.critic)
    has_memory = " with memory" if getattr(module, "memory", None) is not None else ""
    raise UnknownNetwork(f"{type(module).__name__}{has_memory} is not supported")


def _ensemble(encoder: list[_Layer], ensemble: nn.Module) -> _Twin:
    _check(ensemble)
    if type(ensemble) is not critic_heads.Ensemble:
        raise UnknownNetwork(f"{type(ensemble).__name__} is not supported")
    members, rule = [_critic(member) for member in ensemble.members], ensemble.rule
    # A new last axis with one number for each value.
    heads: list[_Layer] = [lambda x, q=q: q(x)[None] for q in members]  # type: ignore[misc]

    def make(*values: torch.Tensor) -> critic_heads.EnsemblePrediction:
        return critic_heads.EnsemblePrediction(tuple(map(critic_heads.ScalarPrediction, values)), rule)

    return _Twin(encoder, heads, make)


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
        raise UnknownNetwork(f"a {type(module).__name__}, or its head, is not supported")
    layers = [*_layers(module.torso), _linear(module.head)]
    return lambda x: _through(layers, x)


def _through(layers: list[_Layer], x: Array) -> Array:
    for layer in layers:
        x = layer(x)
    return x


def _head(module: nn.Module) -> tuple[list[_Layer], Callable[..., Any]]:
    _check(module)
    if type(module) is CategoricalHead:
        return [_linear(module.logits)], Categorical
    if type(module) is GaussianHead:
        log_std = module.log_std if module.log_std_head is None else module.log_std_head
        return _gaussian(module.mean_head, log_std), DiagonalGaussian
    raise UnknownNetwork(f"{type(module).__name__} is not supported")


def _gaussian(mean_head: nn.Module, log_std_head: nn.Module | nn.Parameter | None) -> list[_Layer]:
    if isinstance(log_std_head, nn.Module):
        log_std_layer = _linear(log_std_head)
    else:
        column = _array(log_std_head)[:, None]

        def log_std_layer(features: Array) -> Array:
            return column.repeat(features.shape[1], axis=1)

    def clamped(features: Array) -> Array:
        log_std = log_std_layer(features)
        np.minimum(log_std, _HIGH, out=log_std)
        np.maximum(log_std, _LOW, out=log_std)
        return log_std

    return [_linear(mean_head), clamped]


def _layers(module: nn.Module) -> list[_Layer]:
    _check(module)
    kind = kernels.plain_type(module)
    if kind in (nn.Sequential, torso.LayerNormMLP, torso.ReLUMLP, torso.SimBa, torso.TanhMLP):
        return [layer for child in module._modules.values() if child is not None for layer in _layers(child)]
    if kind is encoders.IdentityEncoder:
        return []
    if kind is normalizer.NormalizedEncoder and isinstance(module, kind):
        return _layers(module.normalizer) + _layers(module.encoder)
    if kind is torso.ResidualBlock and isinstance(module, kind):
        return [_residual([*_layers(module.norm), _linear(module.expand), _relu, _linear(module.contract)])]
    if kind not in _MAKERS:
        raise UnknownNetwork(f"{kind.__name__} is not supported")
    return [_MAKERS[kind](module)]


def _linear(module: nn.Module) -> _Layer:
    _check(module)
    if kernels.plain_type(module) not in (nn.Linear, critic_heads.ScalarHead):
        raise UnknownNetwork(f"{type(module).__name__} is not a Linear")
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
        raise UnknownNetwork("a LayerNorm without weights is not supported")
    size = module.normalized_shape[0]
    average = np.full((1, size), 1.0 / size, np.float32)
    epsilon = np.array(module.eps, np.float32)
    weight, bias = _array(module.weight)[:, None], _array(module.bias)[:, None]

    def apply(x: Array) -> Array:
        y = x - average.dot(x)
        y *= weight / np.sqrt(average.dot(y * y) + epsilon)
        y += bias
        return y

    return apply


def _residual(layers: list[_Layer]) -> _Layer:
    def apply(x: Array) -> Array:
        y = _through(layers, x)
        y += x
        return y

    return apply


def _running_norm(module: nn.Module) -> _Layer:
    mean, var = _array(module.mean)[:, None], _array(module.var)[:, None]
    low, high = (np.array(bound, np.float32) for bound in (-normalizer.CLIP, normalizer.CLIP))
    epsilon = np.array(normalizer.MIN_VARIANCE, np.float32)

    def apply(x: Array) -> Array:
        y = x - mean
        y *= _ONE / np.sqrt(var + epsilon)
        np.minimum(y, high, out=y)
        np.maximum(y, low, out=y)
        return y

    return apply


def _squash(module: nn.Module) -> _Layer:
    assert isinstance(module, TanhSquash)
    low, high = _array(module.low)[:, None], _array(module.high)[:, None]
    return lambda x: squash_array(x, low, _HALF * (high - low), high)


# Not in place: the first layer receives the observation itself.


def _relu(x: Array) -> Array:
    y: Array = np.maximum(x, _ZERO)
    return y


def _make_elu(module: nn.Module) -> _Layer:
    if module.alpha != 1.0:
        raise UnknownNetwork("an ELU with an alpha other than 1 is not supported")
    return elu


_MAKERS: Mapping[type[nn.Module], Callable[[Any], _Layer]] = {
    nn.Linear: _linear,
    nn.LayerNorm: _layer_norm,
    normalizer.RunningNorm: _running_norm,
    TanhSquash: _squash,
    nn.Tanh: lambda module: np.tanh,
    nn.ReLU: lambda module: _relu,
    nn.ELU: _make_elu,
}


def _check(module: nn.Module) -> None:
    if not is_called_as_written(module):
        raise UnknownNetwork(f"{type(module).__name__} has hooks")


def _array(parameter: Any) -> Array:
    """Returns a parameter's own memory as an array."""
    if parameter is None or parameter.device.type != "cpu" or parameter.dtype != torch.float32:
        raise UnknownNetwork("a parameter is not float32 on the CPU")
    array: Array = parameter.detach().numpy()
    return array
