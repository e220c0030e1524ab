"""The torsos that policies and critics share in form."""

import itertools
import math
from collections.abc import Sequence

import torch
from torch import nn

from minerva_acme import constraints
from minerva_acme.networks.linear import orthogonal_linear, uniform_linear


class LayerNormMLP(nn.Sequential):
    """Linear, LayerNorm, tanh, then Linear and ELU for each further size; the last is activated.

    The first layer brings observations of any scale into [-1, 1], which spares a normaliser.
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
            uniform_linear(sizes[0], sizes[1], generator),
            nn.LayerNorm(sizes[1]),
            nn.Tanh(),
        ]
        for size_in, size_out in itertools.pairwise(sizes[1:]):
            # In place: a linear layer does not need its output to compute its gradient.
            layers += [uniform_linear(size_in, size_out, generator), nn.ELU(inplace=True)]
        super().__init__(*layers)
        self.output_size = sizes[-1]


class TanhMLP(nn.Sequential):
    """Linear and tanh for each size: the torso of on-policy agents.

    Weights start orthogonal times sqrt(2), biases at zero.
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
        layers: list[nn.Module] = []
        for size_in, size_out in itertools.pairwise(sizes):
            layers += [orthogonal_linear(size_in, size_out, math.sqrt(2.0), generator), nn.Tanh()]
        super().__init__(*layers)
        self.output_size = sizes[-1]


def _checked_sizes(input_size: int, layer_sizes: Sequence[int]) -> list[int]:
    sizes = [input_size, *layer_sizes]
    if len(sizes) < 2 or min(sizes) < 1:
        raise ValueError(
            f"`layer_sizes` must hold at least one size, all >= 1, got {tuple(layer_sizes)} for "
            f"inputs of {input_size}. A model without hidden layers is a `Linear`."
        )
    if not constraints.fit_into_memory(sizes):
        raise ValueError(
            f"`layer_sizes` must be {constraints.FITTING}, got {tuple(layer_sizes)} for inputs of "
            f"{input_size}."
        )
    return sizes
