"""Evaluates a target critic without gradient, faster than the critic itself.

Shapes: R rows; O observation size, D action dimensions, H units of a layer; `...` any leading axes.
"""

import functools
import os
import shutil
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import nn

from minerva_acme import networks, parallel
from minerva_acme.networks.linear import Linear, linear, uses_onednn
from minerva_acme.networks.torso import TanhInPlace

# 512 units of so many rows are 4 MB. Fewer make products slower, all at once leaves the caches.
_MAX_ROWS = 2048

Precision = Literal["float32", "bfloat16"]


def knows(critic: nn.Module) -> bool:
    """Whether this is a `networks.Critic` with the layers that it makes and nothing that changes them."""
    if type(critic) is not networks.Critic or type(critic.torso) is not networks.LayerNormMLP:
        return False
    num_hidden = len(critic.torso) // 2 - 1
    expected = [Linear, nn.LayerNorm, TanhInPlace, *([Linear, nn.ELU] * num_hidden), Linear]
    modules = [*critic.torso, critic.head]
    return [type(module) for module in modules] == expected and not any(
        module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module)
        for module in critic.modules()
    )


def by_rows(
    critic: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    observation: torch.Tensor,
    action: torch.Tensor,
    *,
    num_threads: int | None = None,
) -> torch.Tensor:
    """Evaluates a critic without gradient, on a CPU a cache's worth of rows at a time.

    Args:
        critic: ([R, O], [R, D]) -> [R].
        observation: [..., O].
        action: [..., D].
        num_threads: as of `parallel.map_rows`.

    Returns:
        Q, [...].
    """
    rows = observation.reshape(-1, observation.shape[-1]), action.reshape(-1, action.shape[-1])
    max_rows = _MAX_ROWS if observation.device.type == "cpu" else None
    q_R = parallel.map_rows(critic, *rows, max_rows=max_rows, num_threads=num_threads)
    return q_R.view(observation.shape[:-1])


def has_compiler() -> bool:
    """Whether there is a compiler for what torch.compile writes for CPUs."""
    return any(shutil.which(name) for name in (os.environ.get("CXX"), "g++", "clang++") if name)


class TargetCritic:
    """A critic of frozen weights, without gradient: packed, in bfloat16, with compiled activations.

    On a CPU the weights of the hidden layers are kept in oneDNN's own order where torch has that, and
    rows are divided between threads that each compute alone.

    In bfloat16 the products between the first and the last layer are. The first layer and its
    LayerNorm stay in float32: they are a few percent of the work, and take observations of any size.
    The last one stays too: bfloat16 has 8 bits, so that values near 100 would be rounded to halves,
    and the E-step sees nothing but differences of values.

    Compiled are the activations alone: products are faster by `networks.Linear`, and the LayerNorm by
    torch's own, than by what torch.compile makes of them.
    """

    def __init__(self, critic: nn.Module, *, precision: Precision, compile: bool) -> None:
        """Takes over the critic; call `copy_weights` whenever its weights have changed.

        Raises:
            ValueError: it is not a `networks.Critic` as that makes itself, or has hooks; or it is to be
                compiled for a CPU and there is no C++ compiler.
        """
        if not knows(critic):
            raise ValueError(
                "`target_precision` and `compile` need a critic that is a `networks.Critic`, whose layers "
                f"they know, unchanged and without hooks, got {type(critic).__name__}. Leave them at their "
                "defaults."
            )
        device = next(critic.parameters()).device
        if compile and device.type == "cpu" and not has_compiler():
            raise ValueError(
                "`compile` needs a C++ compiler on a CPU, found none of $CXX, g++ and clang++. Install one "
                "(g++, of the system's packages), or leave `compile` False."
            )
        self._critic: Any = critic
        self._dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
        self._tanh: Callable[..., torch.Tensor] = torch.compile(_tanh, dynamic=True) if compile else _tanh
        self._elu: Callable[..., torch.Tensor] = nn.functional.elu_
        if compile:
            self._elu = torch.compile(_elu_, dynamic=True)
        torso: Any = critic.torso
        layers = [layer for layer in torso if isinstance(layer, nn.Linear)]
        self._hidden = [_FrozenLinear(layer, self._dtype) for layer in layers[1:]]

    def copy_weights(self) -> None:
        """Takes the critic's weights as they are now, rounded to the precision."""
        for layer in self._hidden:
            layer.copy_weights()

    def __call__(self, observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Q of each pair in float32, without gradient: [..., O], [..., D] -> [...]."""
        return by_rows(self._evaluate, observation, action)

    def _evaluate(self, observation_RO: torch.Tensor, action_RD: torch.Tensor) -> torch.Tensor:
        critic = self._critic
        clipped = torch.clamp(action_RD, critic.low, critic.high)
        first, norm = critic.torso[0], critic.torso[1]
        features = linear(torch.cat([observation_RO, clipped], dim=-1), first.weight, first.bias)
        normed = nn.functional.layer_norm(features, features.shape[-1:], norm.weight, norm.bias, norm.eps)
        features = self._tanh(normed).to(self._dtype)
        for layer in self._hidden:
            features = self._elu(layer(features))
        q_R1: torch.Tensor = critic.head(features.float())
        return q_R1.squeeze(-1)


def _tanh(x: torch.Tensor) -> torch.Tensor:
    """On a CPU by way of the sigmoid, which torch computes much faster: within 2e-7. May overwrite x."""
    if x.device.type != "cpu":
        return torch.tanh(x)
    if torch.compiler.is_compiling():
        return 2.0 * torch.sigmoid(2.0 * x) - 1.0
    return x.mul_(2.0).sigmoid_().mul_(2.0).sub_(1.0)


def _elu_(x: torch.Tensor) -> torch.Tensor:
    """max(x, exp(min(x, 0)) - 1) in place, which is compiled into less than ELU's own expm1."""
    wide = x.float()
    return x.copy_(torch.maximum(wide, wide.clamp(max=0.0).exp() - 1.0))


class _FrozenLinear:
    """x W^T + b of weights that stay a while, kept in the order that oneDNN likes where that works."""

    def __init__(self, layer: nn.Linear, dtype: torch.dtype) -> None:
        self._layer = layer
        self._weight, self._bias = layer.weight.detach().to(dtype), layer.bias.detach().to(dtype)
        packs = self._weight.device.type == "cpu" and _packs(dtype)
        self._packed = _pack(self._weight) if packs else None

    @torch.no_grad()
    def copy_weights(self) -> None:
        """Takes the layer's weights as they are now."""
        # In place: a CUDA graph knows where they lie.
        self._weight.copy_(self._layer.weight)
        self._bias.copy_(self._layer.bias)
        if self._packed is not None:
            self._packed = _pack(self._weight)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[R, I] -> [R, O]."""
        if self._packed is None:
            return linear(x, self._weight, self._bias)
        output: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self._bias, "none", [], "")
        return output


def _pack(weight: torch.Tensor) -> torch.Tensor:
    packed: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, None)
    return packed


@functools.cache
def _packs(dtype: torch.dtype) -> bool:
    """Whether to pack: this torch has the private operators, and this CPU gains by them."""
    if dtype == torch.float32 and not uses_onednn():
        return False
    weight, x = torch.ones(16, 16, dtype=dtype), torch.ones(4, 16, dtype=dtype)
    try:
        if dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            return False
        product = torch.ops.mkldnn._linear_pointwise(x, _pack(weight), None, "none", [], "")
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):
        return False
    return torch.equal(product, torch.full((4, 16), 16.0, dtype=dtype))
