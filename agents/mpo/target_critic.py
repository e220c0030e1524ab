"""Evaluates a target critic without gradient, faster than the critic itself.

Shapes: R rows; O observation size, D action dimensions, H units of a layer; `...` any leading axes.
"""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import nn

from minerva_acme import networks
from minerva_acme.networks.linear import linear

Precision = Literal["float32", "bfloat16"]


class TargetCritic:
    """A critic of frozen weights, without gradient, in bfloat16 or with compiled activations or both.

    In bfloat16 the products between the first and the last layer are. The first layer and its
    LayerNorm stay in float32: they are a few percent of the work, and take observations of any size.
    The last one stays too: bfloat16 has 8 bits, so that values near 100 would be rounded to halves,
    and the E-step sees nothing but differences of values.

    Compiled are the activations and the LayerNorm alone: products are faster by `networks.Linear`
    than by what torch.compile makes of them.
    """

    def __init__(self, critic: nn.Module, *, precision: Precision, compile: bool) -> None:
        """Takes over the critic; call `copy_weights` whenever its weights have changed.

        Raises:
            ValueError: it is not a `networks.Critic`.
        """
        if not isinstance(critic, networks.Critic):
            raise ValueError(
                "`target_precision` and `compile` need a critic that is a `networks.Critic`, whose layers "
                f"they know, got {type(critic).__name__}. Leave them at their defaults."
            )
        self._critic = critic
        self._dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
        self._norm_and_tanh: Callable[..., torch.Tensor] = _norm_and_tanh
        self._elu: Callable[..., torch.Tensor] = nn.functional.elu_
        if compile:
            self._norm_and_tanh = torch.compile(_norm_and_tanh, dynamic=True)
            self._elu = torch.compile(_elu, dynamic=True)
        self._hidden: list[Callable[[torch.Tensor], torch.Tensor]] = []
        self.copy_weights()

    def copy_weights(self) -> None:
        """Takes the critic's weights as they are now, rounded to the precision."""
        layers = [layer for layer in self._critic.torso if isinstance(layer, nn.Linear)]
        make = _BFloat16Linear if self._dtype == torch.bfloat16 else _identity
        self._hidden = [make(layer) for layer in layers[1:]]

    @torch.no_grad()
    def __call__(self, observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Q of each pair in float32, without gradient: [..., O], [..., D] -> [...]."""
        critic = self._critic
        clipped = torch.clamp(action, critic.low, critic.high)
        first: Any = critic.torso[0]
        norm: Any = critic.torso[1]
        features = linear(torch.cat([observation, clipped], dim=-1), first.weight, first.bias)
        features = self._norm_and_tanh(features, norm.weight, norm.bias, norm.eps, self._dtype)
        for layer in self._hidden:
            features = self._elu(layer(features))
        q: torch.Tensor = critic.head(features.float())
        return q.squeeze(-1)


def _norm_and_tanh(
    x_RH: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float, dtype: torch.dtype
) -> torch.Tensor:
    normed = nn.functional.layer_norm(x_RH, x_RH.shape[-1:], weight, bias, eps)
    # A tanh by way of the sigmoid, which torch computes much faster: within 2e-7.
    return normed.mul_(2.0).sigmoid_().mul_(2.0).sub_(1.0).to(dtype)


def _elu(x: torch.Tensor) -> torch.Tensor:
    """max(x, exp(min(x, 0)) - 1), which is compiled into less than ELU's own expm1."""
    wide = x.float()
    return torch.maximum(wide, wide.clamp(max=0.0).exp() - 1.0).to(x.dtype)


def _identity(layer: nn.Linear) -> Callable[[torch.Tensor], torch.Tensor]:
    return layer


class _BFloat16Linear:
    """x W^T + b in bfloat16, by oneDNN with the weights in its own order where torch has that."""

    def __init__(self, layer: nn.Linear) -> None:
        self._weight, self._bias = layer.weight.detach().bfloat16(), layer.bias.detach().bfloat16()
        packs = _PACKS and self._weight.device.type == "cpu"
        self._packed = _pack(self._weight) if packs else None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self._packed is None:
            return nn.functional.linear(x, self._weight, self._bias)
        rows = x.reshape(-1, x.shape[-1])
        output: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
            rows, self._packed, self._bias, "none", [], ""
        )
        return output.view(*x.shape[:-1], -1)


def _pack(weight: torch.Tensor) -> torch.Tensor:
    packed: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, None)
    return packed


def _packing_works() -> bool:
    """Whether this build of torch has these private operators, and this CPU the instructions."""
    weight, x = torch.ones(16, 16, dtype=torch.bfloat16), torch.ones(4, 16, dtype=torch.bfloat16)
    try:
        if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            return False
        product = torch.ops.mkldnn._linear_pointwise(x, _pack(weight), None, "none", [], "")
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):
        return False
    return torch.equal(product, torch.full((4, 16), 16.0, dtype=torch.bfloat16))


_PACKS = _packing_works()
