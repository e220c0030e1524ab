"""The torsos that policies and critics share in form."""

import itertools
import math
from collections.abc import Sequence

import torch
from torch import nn

from minerva_acme.acceleration.linear import Linear, linear

_MIN_SIZE = 2**14  # elements from which on three cheap passes cost less than one dear one


class LayerNormMLP(nn.Sequential):
    """Linear, LayerNorm, tanh, then Linear and ELU for each further size; the last is activated.

    The first layer brings observations of any scale into [-1, 1], which spares a normaliser.
    Activations overwrite their input: no layer needs what it returned to compute its gradient.
    """

    output_size: int

    def __init__(
        self, input_size: int, layer_sizes: Sequence[int], *, generator: torch.Generator | None = None
    ) -> None:
        """Makes the layers.

        Args:
            input_size: features of an input row.
            layer_sizes: units of each layer, at least one.
            generator: draws the initial weights; None is torch's global one.

        Raises:
            ValueError: a size is missing or below 1.
        """
        sizes = _checked_sizes(input_size, layer_sizes)
        layers: list[nn.Module] = [
            Linear(sizes[0], sizes[1], generator=generator),
            nn.LayerNorm(sizes[1]),
            TanhInPlace(),
        ]
        for size_in, size_out in itertools.pairwise(sizes[1:]):
            layers += [Linear(size_in, size_out, generator=generator), nn.ELU(inplace=True)]
        super().__init__(*layers)
        self.output_size = sizes[-1]


class TanhMLP(nn.Sequential):
    """Linear and tanh for each size, orthogonal from the start: the torso of on-policy agents.

    Weights are orthogonal times sqrt(2), biases zero. The modules are the linear layers; `forward`
    puts a tanh in place behind each, and calls kernels rather than modules: minibatches of PPO are so
    small that a tenth of the time would go into the calls.
    """

    output_size: int

    def __init__(
        self, input_size: int, layer_sizes: Sequence[int], *, generator: torch.Generator | None = None
    ) -> None:
        """Makes the layers.

        Args:
            input_size: features of an input row.
            layer_sizes: units of each layer, at least one.
            generator: draws the initial weights; None is torch's global one.

        Raises:
            ValueError: a size is missing or below 1.
        """
        sizes = _checked_sizes(input_size, layer_sizes)
        super().__init__(
            *(
                orthogonal_linear(size_in, size_out, math.sqrt(2.0), generator)
                for size_in, size_out in itertools.pairwise(sizes)
            )
        )
        self.output_size = sizes[-1]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Features, [..., I] -> [..., output_size]."""
        for layer in self:
            assert isinstance(layer, Linear)
            x = torch.tanh_(linear(x, layer.weight, layer.bias))
        return x


def orthogonal_linear(size_in: int, size_out: int, gain: float, generator: torch.Generator | None) -> Linear:
    """A linear layer whose weight is orthogonal times `gain`, and whose bias is zero."""
    layer = Linear(size_in, size_out, generator=generator)
    nn.init.orthogonal_(layer.weight, gain=gain, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer


def _checked_sizes(input_size: int, layer_sizes: Sequence[int]) -> list[int]:
    sizes = [input_size, *layer_sizes]
    if len(sizes) < 2 or min(sizes) < 1:
        raise ValueError(
            f"`layer_sizes` must hold at least one size, all >= 1, got {tuple(layer_sizes)} for "
            f"inputs of {input_size}. A model without hidden layers is a `Linear`."
        )
    return sizes


class TanhInPlace(nn.Module):
    """tanh, which overwrites its input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if (
            x.numel() >= _MIN_SIZE
            and x.device.type == "cpu"
            and x.dtype == torch.float32
            and not torch.is_grad_enabled()
            and not torch.compiler.is_compiling()
        ):
            return tanh_by_sigmoid_(x)
        return torch.tanh_(x)


def tanh_by_sigmoid_(x: torch.Tensor) -> torch.Tensor:
    """tanh in place, without gradient, of any shape: within 2e-7 in float32.

    Torch's sigmoid takes a tenth of its tanh's time on a CPU. By way of it a tanh takes a fourth.
    """
    return x.mul_(2.0).sigmoid_().mul_(2.0).sub_(1.0)
