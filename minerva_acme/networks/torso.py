"""The torsos that policies and critics are built on."""

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import nn

from minerva_acme import constraints
from minerva_acme.networks.linear import normal_linear, orthogonal_linear, uniform_linear

_EXPANSION = 4  # units inside a residual block for each feature
_TINY = 1e-12  # minimum norm of a unit's weights: a unit whose weights are all zero keeps them


class Torso(nn.Module):
    """A module that computes features of rows: [..., input_size] -> [..., F]."""

    output_size: int
    """F."""


class TorsoFactory(Protocol):
    """Makes a torso."""

    def __call__(
        self, input_size: int, layer_sizes: Sequence[int], *, generator: torch.Generator | None = None
    ) -> Torso:
        """Makes a torso.

        Args:
            input_size: The number of features of an input row.
            layer_sizes: The number of units in each layer.
            generator: The generator for the initial weights; None uses torch's global generator.
        """


class _Stack(nn.Sequential, Torso):
    """A torso of layers in sequence."""

    def __init__(
        self, input_size: int, layer_sizes: Sequence[int], *, generator: torch.Generator | None = None
    ) -> None:
        """Makes the layers.

        Args:
            input_size: The number of features of an input row.
            layer_sizes: The number of units in each layer, at least one. For SimBa, the number of features in
                each residual block, all equal.
            generator: The generator for the initial weights; None uses torch's global generator.

        Raises:
            ValueError: There is no layer, a size is below 1, or the sizes for SimBa differ.
        """
        sizes = _checked_sizes(input_size, layer_sizes)
        super().__init__(*self._make_layers(sizes, generator))
        self.output_size = sizes[-1]

    @staticmethod
    def _make_layers(sizes: list[int], generator: torch.Generator | None) -> list[nn.Module]:
        """Makes the layers, given the size of the input followed by the size of each layer."""
        raise NotImplementedError

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Computes [..., input_size] -> [..., F]; with batch norm in training mode, of at least two rows."""
        if x.ndim == 2:
            return super().forward(x)
        # As rows: with more axes the output of a linear layer is a view, and the gradient of an activation in
        # place would be copied.
        features: torch.Tensor = super().forward(x.reshape(-1, x.shape[-1]))
        return features.view(*x.shape[:-1], self.output_size)


class LayerNormMLP(_Stack):
    """Linear, LayerNorm and tanh, then Linear and ELU for each further size; the last layer is activated too.

    The first layer maps observations of any scale into [-1, 1], so no normaliser is needed.
    """

    @staticmethod
    def _make_layers(sizes: list[int], generator: torch.Generator | None) -> list[nn.Module]:
        layers: list[nn.Module] = [
            uniform_linear(sizes[0], sizes[1], generator),
            nn.LayerNorm(sizes[1]),
            nn.Tanh(),
        ]
        for size_in, size_out in itertools.pairwise(sizes[1:]):
            # In place: a linear layer does not need its output to compute its gradient.
            layers += [uniform_linear(size_in, size_out, generator), nn.ELU(inplace=True)]
        return layers


class TanhMLP(_Stack):
    """Linear and tanh for each size: the torso of on-policy agents.

    The weights start orthogonal times sqrt(2), the biases at zero.
    """

    @staticmethod
    def _make_layers(sizes: list[int], generator: torch.Generator | None) -> list[nn.Module]:
        layers: list[nn.Module] = []
        for size_in, size_out in itertools.pairwise(sizes):
            layers += [orthogonal_linear(size_in, size_out, math.sqrt(2.0), generator), nn.Tanh()]
        return layers


class ReLUMLP(_Stack):
    """Linear and ReLU for each size, the network of many papers, such as SAC's and TD3's.

    Features are as large as the input, so it needs inputs of a variance of about 1. With some in the
    thousands an untrained policy already acts at its bounds; the other torsos have norms, or saturate.
    """

    @staticmethod
    def _make_layers(sizes: list[int], generator: torch.Generator | None) -> list[nn.Module]:
        layers: list[nn.Module] = []
        for size_in, size_out in itertools.pairwise(sizes):
            layers += [uniform_linear(size_in, size_out, generator), nn.ReLU(inplace=True)]
        return layers


class BatchNormMLP(_Stack):
    """Batch norm of the input, then Linear without a bias, batch norm and ReLU for each size.

    In training mode, rows are normalised by their own mean and variance, over all leading axes, and these
    move the running statistics by a hundredth. In evaluation mode, they are normalised by the running ones.
    So in training mode all rows must be data: padding would change the results of the other rows.

    Source: Palenicek et al. 2026, "XQC: Well-conditioned optimization accelerates deep reinforcement
    learning", whose constants these are; the weights start orthogonal times sqrt(2). Deviation: the running
    variances are of unbiased estimates, as always in torch.
    """

    @staticmethod
    def _make_layers(sizes: list[int], generator: torch.Generator | None) -> list[nn.Module]:
        norm = functools.partial(nn.BatchNorm1d, eps=1e-3, momentum=0.01)
        layers: list[nn.Module] = [norm(sizes[0])]
        for size_in, size_out in itertools.pairwise(sizes):
            layers += [
                orthogonal_linear(size_in, size_out, math.sqrt(2.0), generator, bias=False),
                norm(size_out),
                nn.ReLU(inplace=True),
            ]
        return layers


class SimBa(_Stack):
    """A linear embedding, residual blocks, and a LayerNorm; see `ResidualBlock`.

    Source: Lee et al. 2025, "SimBa: simplicity bias for scaling up parameters in deep reinforcement
    learning", which puts running normalisation in front of it. The embedding starts orthogonal.
    """

    @staticmethod
    def _make_layers(sizes: list[int], generator: torch.Generator | None) -> list[nn.Module]:
        input_size, *layer_sizes = sizes
        if len(set(layer_sizes)) > 1:
            raise ValueError(
                "SimBa has one entry of `layer_sizes` for each residual block, and all must be equal, got "
                f"{tuple(layer_sizes)}."
            )
        return [
            orthogonal_linear(input_size, sizes[1], 1.0, generator),
            *(ResidualBlock(size, generator=generator) for size in layer_sizes),
            nn.LayerNorm(sizes[1]),
        ]


class ResidualBlock(nn.Module):
    """x + W2 relu(W1 LayerNorm(x) + b1) + b2, with four times as many units inside.

    Source: see `SimBa`. Both weights start normal with variance 2 / inputs, the biases at zero.
    """

    def __init__(self, size: int, *, generator: torch.Generator | None = None) -> None:
        """Makes the layers.

        Args:
            size: The number of features of x.
            generator: The generator for the initial weights; None uses torch's global generator.
        """
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.expand = normal_linear(size, _EXPANSION * size, math.sqrt(2.0), generator)
        self.contract = normal_linear(_EXPANSION * size, size, math.sqrt(2.0), generator)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Computes [..., size] -> [..., size]."""
        hidden = torch.relu_(self.expand(self.norm(x)))  # in place, as in `LayerNormMLP`
        added: torch.Tensor = self.contract(hidden)
        return x + added


@torch.no_grad()
def project_to_unit_norm(torso: nn.Module, online: nn.Module | None = None) -> None:
    """Scales the weights of each unit in a torso's linear layers to Euclidean norm 1, in place.

    Frozen layers stay as they are. A target network, whose layers are all frozen, takes the same layers as
    the trained network `online`: averages of weights with norm 1 have a smaller one.

    Behind a LayerNorm or before a batch norm, the scale of a layer does not change the torso's output, only
    how far a gradient step turns the weights. As weights grow, steps turn them less and less, so their norm
    is kept fixed.

    Source: Lee et al. 2025, "Hyperspherical normalization for scalable deep reinforcement learning"
    (SimbaV2), which does so after every gradient step, as XQC does (see `BatchNormMLP`).
    """
    for layer, trained in zip(torso.modules(), (online or torso).modules(), strict=True):
        if isinstance(layer, nn.Linear) and trained.weight.requires_grad:
            layer.weight.div_(torch.linalg.vector_norm(layer.weight, dim=1, keepdim=True).clamp(min=_TINY))


def _checked_sizes(input_size: int, layer_sizes: Sequence[int]) -> list[int]:
    sizes = [input_size, *layer_sizes]
    if len(sizes) < 2 or min(sizes) < 1:
        raise ValueError(
            f"`layer_sizes` must hold at least one size, all >= 1, got {tuple(layer_sizes)} for "
            f"inputs of {input_size}. For a model without hidden layers, use a `Linear`."
        )
    if not constraints.fit_into_memory(sizes):
        raise ValueError(
            f"`layer_sizes` must be {constraints.FITTING}, got {tuple(layer_sizes)} for inputs of "
            f"{input_size}."
        )
    return sizes
