"""Layers on arrays, with hand-written gradients: the layers of this library's networks.

A minibatch of 64 samples through layers of 64 units is some fifty operations of a few microseconds each.
For every one of them, torch's overhead is longer than that: for the call, for its record of it, and for going
backwards through the record. Here an operation costs only its computation. Large products go to torch's
kernels, which use several threads.

`acting` has separate layers: with features first, and without the data for gradients, which halves the time
for a few rows. They share what they can: `elu` here, and the densities of `distributions`.

Shapes: m samples; I, O features into and out of a layer; P all parameters' elements.
"""

import abc
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn

from minerva_acme.acceleration import agreement, kernels
from minerva_acme.networks import torso

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Take: TypeAlias = Callable[[torch.Tensor], tuple[Array, Array]]
"""Returns the array of a parameter and the array to which its gradient is written."""

# Numpy 1 converts a single-precision number to double precision when it meets a Python float. An array
# without axes reaches a ufunc half a microsecond faster than numpy's scalar.
_ZERO, _ONE = np.array(0.0, np.float32), np.array(1.0, np.float32)
_MANY = 2**14  # number of elements at which a call of torch becomes faster than numpy's passes


class UnknownNetwork(Exception):
    """Raised if a network has unsupported parts, so that torch computes it."""


class Parameters:
    """The parameters of a network as one vector of copies, and their gradient as another."""

    vector: Array  # [P] in the order of the network's parameters
    gradient: Array  # [P] as written by the latest `backward` of each layer, in that order

    def __init__(self, network: nn.Module) -> None:
        """Copies the parameters.

        Raises:
            UnknownNetwork: A parameter is frozen, or is not a plain float32 parameter on the CPU.
        """
        parameters = [*network.parameters()]
        if not all(map(_is_plain, parameters)):
            raise UnknownNetwork("a parameter is not a plain float32 parameter on the CPU")
        if not all(parameter.requires_grad for parameter in parameters):
            raise UnknownNetwork("a parameter is frozen")
        self.vector = np.concatenate([parameter.detach().numpy().ravel() for parameter in parameters])
        self.gradient = np.zeros_like(self.vector)
        pairs = zip(_parts(self.vector, parameters), _parts(self.gradient, parameters), strict=True)
        self._arrays: dict[torch.Tensor, tuple[Array, Array]] = dict(zip(parameters, pairs, strict=True))

    def take(self, parameter: torch.Tensor) -> tuple[Array, Array]:
        """Returns the arrays of a parameter, for the one layer that uses it."""
        if parameter not in self._arrays:
            raise UnknownNetwork("a parameter is used twice")
        return self._arrays.pop(parameter)

    def require_all_taken(self) -> None:
        """Raises `UnknownNetwork` if a parameter is not used by any layer."""
        if self._arrays:
            raise UnknownNetwork("it has parameters that no supported layer uses")


def _parts(vector: Array, parameters: Sequence[nn.Parameter]) -> list[Array]:
    """Splits a vector into one array for each parameter."""
    ends = np.cumsum([parameter.numel() for parameter in parameters])[:-1]
    return [
        part.reshape(parameter.shape)
        for part, parameter in zip(np.split(vector, ends), parameters, strict=True)
    ]


def _is_plain(parameter: nn.Parameter) -> bool:
    has_hooks = parameter._backward_hooks or parameter._post_accumulate_grad_hooks
    is_known = type(parameter) is nn.Parameter and parameter.layout == torch.strided
    return is_known and parameter.device.type == "cpu" and parameter.dtype == torch.float32 and not has_hooks


def require_just(module: nn.Module, kind: type[nn.Module]) -> None:
    """Raises `UnknownNetwork` if a module is not exactly of a kind, or runs more code than its class."""
    if kernels.plain_type(module) is not kind:
        raise UnknownNetwork(f"{type(module).__name__} is not exactly {kind.__name__}")
    if not agreement.is_called_as_written(module):
        raise UnknownNetwork(f"{type(module).__name__} has hooks")


class Layer(abc.ABC):
    """A layer, which keeps the data from its latest `forward` that `backward` needs."""

    @abc.abstractmethod
    def forward(self, x: Array) -> Array:
        """Computes float32 [m, I] -> a new array [m, O]; an activation may write into x."""

    @abc.abstractmethod
    def backward(self, d_y: Array, *, inputs: bool = True) -> Any:
        """Computes the gradients, given a loss's derivatives with respect to the output of `forward`.

        The derivatives with respect to the layer's parameters are written to their arrays.

        Args:
            d_y: The derivatives with respect to the output, [m, O]; they may be overwritten.
            inputs: Whether to compute the derivatives with respect to the inputs.

        Returns:
            The derivatives with respect to the inputs, [m, I]; None without `inputs`.
        """


class Linear(Layer):
    """y = x W^T + b."""

    def __init__(self, module: nn.Module, take: Take) -> None:
        """Takes the parameters of an `nn.Linear`."""
        assert isinstance(module, nn.Linear)
        if module.bias is None or module.bias.shape != module.weight.shape[:1]:
            raise UnknownNetwork("a layer has no bias, or one bias for several units")
        self._weight, self._d_weight = take(module.weight)
        self._bias, self._d_bias = take(module.bias)

    def forward(self, x: Array) -> Array:
        self._x = x
        return product(x, self._weight, bias=self._bias)

    def backward(self, d_y: Array, *, inputs: bool = True) -> Any:
        product(d_y.T, self._x.T, out=self._d_weight)
        _sum_of_rows(d_y, self._d_bias)
        return product(d_y, self._weight.T) if inputs else None


class Constant(Layer):
    """A parameter [O] that is the same for every sample."""

    def __init__(self, parameter: nn.Parameter, take: Take) -> None:
        """Takes the parameter."""
        self._parameter, self._gradient = take(parameter)

    def forward(self, x: Array) -> Array:
        return self._parameter[None].repeat(len(x), axis=0)

    def backward(self, d_y: Array, *, inputs: bool = True) -> Any:
        _sum_of_rows(d_y, self._gradient)
        return 0.0 if inputs else None


class LayerNorm(Layer):
    """y = n w + b,  n = (x - mean) / sqrt(variance + epsilon), over the features of each sample."""

    def __init__(self, module: nn.Module, take: Take) -> None:
        """Takes the parameters of an `nn.LayerNorm`."""
        assert isinstance(module, nn.LayerNorm)
        if len(module.normalized_shape) != 1 or module.weight is None or module.bias is None:
            raise UnknownNetwork("a LayerNorm without weights is not supported")
        self._weight, self._d_weight = take(module.weight)
        self._bias, self._d_bias = take(module.bias)
        self._average = np.full((module.normalized_shape[0], 1), 1.0 / module.normalized_shape[0], np.float32)
        self._epsilon = np.array(module.eps, np.float32)

    def forward(self, x: Array) -> Array:
        self._n = x - x.dot(self._average)
        self._scale = _ONE / np.sqrt((self._n * self._n).dot(self._average) + self._epsilon)
        self._n *= self._scale
        y: Array = self._n * self._weight
        y += self._bias
        return y

    def backward(self, d_y: Array, *, inputs: bool = True) -> Any:
        # d x = (d n - mean(d n) - n mean(n d n)) / sqrt(variance + epsilon)
        _sum_of_rows(d_y * self._n, self._d_weight)
        _sum_of_rows(d_y, self._d_bias)
        if not inputs:
            return None
        d_y *= self._weight
        slope = (d_y * self._n).dot(self._average)
        d_y -= d_y.dot(self._average)
        d_y -= self._n * slope
        d_y *= self._scale
        return d_y


class Activation(Layer):
    """An elementwise function whose derivative is a function of its value."""

    def forward(self, x: Array) -> Array:
        self._y = self._apply(x)
        return self._y

    def backward(self, d_y: Array, *, inputs: bool = True) -> Any:
        return self._times_slope(self._y, d_y) if inputs else None

    @abc.abstractmethod
    def _apply(self, x: Array) -> Array: ...

    @abc.abstractmethod
    def _times_slope(self, y: Array, d_y: Array) -> Array: ...


class Tanh(Activation):
    """y = tanh(x)."""

    def _apply(self, x: Array) -> Array:
        np.tanh(x, x)
        return x

    def _times_slope(self, y: Array, d_y: Array) -> Array:
        slope: Array = y * y
        np.subtract(_ONE, slope, slope)
        slope *= d_y
        return slope


class ReLU(Activation):
    """y = max(x, 0)."""

    def _apply(self, x: Array) -> Array:
        torch.from_numpy(x).relu_()  # for many numbers numpy takes three times as long
        return x

    def _times_slope(self, y: Array, d_y: Array) -> Array:
        if y.size < _MANY:
            d_y *= y > _ZERO
            return d_y
        d_x: Array = torch.ops.aten.threshold_backward(torch.from_numpy(d_y), torch.from_numpy(y), 0).numpy()
        return d_x


def elu(x: Array) -> Array:
    """Computes x where x > 0, and exp(x) - 1 elsewhere, for any shape: a new array."""
    # exp(x) - 1 >= x everywhere, so the larger of x and y is right on either side of 0.
    y: Array = np.minimum(x, _ZERO)
    np.exp(y, y)
    y -= _ONE
    np.maximum(x, y, out=y)
    return y


class ELU(Activation):
    """y = elu(x)."""

    def _apply(self, x: Array) -> Array:
        return elu(x)

    def _times_slope(self, y: Array, d_y: Array) -> Array:
        slope: Array = np.minimum(y, _ZERO)
        slope += _ONE
        d_y *= slope
        return d_y


class Chain(Layer):
    """Layers in sequence."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        """Takes the layers."""
        self._layers = layers

    def forward(self, x: Array) -> Array:
        for layer in self._layers:
            x = layer.forward(x)
        return x

    def backward(self, d_y: Array, *, inputs: bool = True) -> Any:
        for layer in self._layers[:0:-1]:
            d_y = layer.backward(d_y)
        return self._layers[0].backward(d_y, inputs=inputs)


def make_chain(modules: Iterable[nn.Module], take: Take) -> Chain:
    """Makes the layers for modules that are called in sequence, such as a torso and a head.

    Raises:
        UnknownNetwork: A module is not supported, or is not as its class made it.
    """
    chain = Chain([layer for module in modules for layer in _layers(module, take)])
    if not isinstance(chain._layers[0], Linear):
        raise UnknownNetwork("the first layer is not a Linear")  # It would overwrite the observation.
    return chain


def _layers(module: nn.Module, take: Take) -> list[Layer]:
    kind = kernels.plain_type(module)
    require_just(module, kind)
    if kind in (nn.Sequential, torso.LayerNormMLP, torso.ReLUMLP, torso.TanhMLP):
        # Not `children()`, which leaves out a layer that occurs twice.
        return [
            layer for child in module._modules.values() if child is not None for layer in _layers(child, take)
        ]
    if kind is nn.Linear:
        return [Linear(module, take)]
    if kind is nn.LayerNorm:
        return [LayerNorm(module, take)]
    if kind not in _ACTIVATIONS or getattr(module, "alpha", 1.0) != 1.0:
        raise UnknownNetwork(f"{kind.__name__} is not supported")
    return [_ACTIVATIONS[kind]()]


_ACTIVATIONS: Mapping[type[nn.Module], Callable[[], Activation]] = {
    nn.Tanh: Tanh,
    nn.ReLU: ReLU,
    nn.ELU: ELU,
}


def product(a: Array, b: Array, *, bias: Array | None = None, out: Array | None = None) -> Array:
    """Computes a b^T + bias, [r, n], [s, n] and [s] -> [r, s]; the result is written to `out` if given."""
    if a.size * len(b) < kernels.MIN_SIZE:
        y: Array = np.dot(a, b.T, out)
        if bias is not None:
            y += bias
        return y
    result = kernels.linear(
        torch.from_numpy(a), torch.from_numpy(b), None if bias is None else torch.from_numpy(bias)
    )
    if out is None:
        return result.numpy()
    torch.from_numpy(out).copy_(result)
    return out


def _sum_of_rows(x: Array, out: Array) -> None:
    """Sums [m, O] -> [O] by a product, which takes a third of the time of a sum."""
    np.dot(_ones(len(x)), x, out)


@functools.cache
def _ones(size: int) -> Array:
    return np.ones(size, np.float32)
