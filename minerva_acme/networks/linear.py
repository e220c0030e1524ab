"""Linear layers whose initial weights are drawn from a given generator, so that a seed reproduces them."""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn

L = TypeVar("L", bound=nn.Module)


def unset(make: Callable[..., L], *arguments: Any, **settings: Any) -> L:
    """Makes a layer whose weights are still to be set, on the CPU.

    Torch's own initial weights would advance its global generator. To restore that generator afterwards
    (`torch.random.fork_rng`) can let threads that make networks wait for each other for ever: torch holds the
    generator's lock while it copies its state.

    Args:
        make: The class of the layer, which takes a `device`.
        *arguments: Its arguments.
        **settings: More of them.
    """
    layer = make(*arguments, **settings, device="meta")
    # `to_empty` does the same, but imports sympy: half a second in each process that makes a network.
    return layer._apply(lambda tensor: torch.empty(tensor.shape, dtype=tensor.dtype))


def uniform_linear(
    size_in: int, size_out: int, generator: torch.Generator | None, *, bias: bool = True
) -> nn.Linear:
    """Makes a linear layer with weights and bias uniform in ±1 / sqrt(size_in), as torch initialises them.

    The bias does not start at zero: in front of a LayerNorm the layer would be blind to the scale of its
    input.

    Args:
        size_in: The number of input features, >= 1.
        size_out: The number of output features.
        generator: The CPU generator for the initial weights; None uses torch's global generator.
        bias: Whether the layer has a bias.
    """
    layer = unset(nn.Linear, size_in, size_out, bias=bias)
    initialize_uniform(layer, generator)
    return layer


def initialize_uniform(layer: nn.Linear, generator: torch.Generator | None) -> None:
    """Draws the weights and bias of `uniform_linear`."""
    bound = 1.0 / math.sqrt(layer.in_features)
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, -bound, bound, generator=generator)


def orthogonal_linear(
    size_in: int, size_out: int, gain: float, generator: torch.Generator | None, *, bias: bool = True
) -> nn.Linear:
    """Makes a linear layer whose weight is orthogonal times `gain`, and whose bias, if any, is zero.

    Args:
        size_in: The number of input features, >= 1.
        size_out: The number of output features.
        gain: The factor by which the orthogonal matrix is scaled: sqrt(2) in front of a ReLU, for example.
        generator: The CPU generator for the initial weights; None uses torch's global generator.
        bias: Whether the layer has a bias.
    """
    layer = uniform_linear(size_in, size_out, generator, bias=bias)
    nn.init.orthogonal_(layer.weight, gain=gain, generator=generator)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def normal_linear(size_in: int, size_out: int, gain: float, generator: torch.Generator | None) -> nn.Linear:
    """Makes a linear layer with weights normal of variance gain^2 / size_in, and a bias of zero.

    Inputs of variance 1 become outputs with a standard deviation of `gain`.

    Args:
        size_in: The number of input features, >= 1.
        size_out: The number of output features.
        gain: sqrt(2) in front of a ReLU (He et al. 2015, "Delving deep into rectifiers"); 0.01 for a policy's
            last layer.
        generator: The CPU generator for the initial weights; None uses torch's global generator.
    """
    layer = uniform_linear(size_in, size_out, generator)
    nn.init.normal_(layer.weight, std=gain / math.sqrt(size_in), generator=generator)
    nn.init.zeros_(layer.bias)
    return layer
