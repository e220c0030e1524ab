"""A linear layer."""

import math

import torch
from torch import nn


class Linear(nn.Linear):
    """`torch.nn.Linear` whose initial weights come from a given generator.

    Weights and bias start uniform in +-1 / sqrt(in_features), as torch's do. The bias is not left at
    zero: in front of a LayerNorm the layer would be blind to the scale of its input.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        self._generator = generator
        super().__init__(in_features, out_features, bias)
        del self._generator

    def reset_parameters(self) -> None:
        bound = 1.0 / math.sqrt(self.in_features)
        nn.init.uniform_(self.weight, -bound, bound, generator=self._generator)
        if self.bias is not None:
            nn.init.uniform_(self.bias, -bound, bound, generator=self._generator)
