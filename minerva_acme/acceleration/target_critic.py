"""Evaluates a target critic without gradient, faster than the critic itself.

Shapes: R rows; O observation size, D action dimensions, H units of a layer; `...` any leading axes.
"""

import functools
import math
import os
import shutil
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import nn

from minerva_acme import networks
from minerva_acme.acceleration import fused, parallel
from minerva_acme.acceleration.linear import Linear, linear
from minerva_acme.networks.torso import TanhInPlace, tanh_by_sigmoid_

# 512 units of so many rows are 4 MB. Fewer make products slower, all at once leaves the caches.
_MAX_ROWS = 2048

# Multiplications of a part from which on it is compiled: a fifth of a millisecond.
_MIN_FUSED_SIZE = 2**24

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
    """A critic of frozen weights, without gradient: fused, in bfloat16, or with compiled activations.

    On a CPU rows are divided between threads that each compute alone. What is worth it goes through
    `networks.fused`, where that works; else, and where compiling is asked for, through `networks.linear`
    and activations in place.

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
        dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
        parameters = _parameters(critic)
        between = parameters[4:-2]  # of the layers that may be rounded
        self._copies = [] if dtype == torch.float32 else [(p.detach().to(dtype), p) for p in between]
        rounded = [copy for copy, _ in self._copies] or between
        self._weights = [weight.detach() for weight in (*parameters[:4], *rounded, *parameters[-2:])]
        torso: Any = critic.torso
        norm = torso[1]
        layer_norm = functools.partial(
            nn.functional.layer_norm, normalized_shape=norm.normalized_shape, eps=norm.eps
        )
        evaluate = functools.partial(_evaluate, dtype=dtype, layer_norm=layer_norm)
        self._plain = functools.partial(
            evaluate,
            linear=linear,
            tanh=torch.compile(_tanh, dynamic=True) if compile else _tanh,
            elu=torch.compile(_elu_, dynamic=True) if compile else nn.functional.elu_,
        )
        self._fused: Callable[..., torch.Tensor] = self._plain
        if device.type == "cpu" and not compile and fused.pays(dtype):
            self._fused = fused.Fused(
                functools.partial(
                    evaluate, linear=nn.functional.linear, tanh=torch.tanh, elu=nn.functional.elu
                )
            )
        num_weights = sum(weight.numel() for weight in self._weights)
        self._min_fused_rows = math.ceil(_MIN_FUSED_SIZE / num_weights)

    @torch.no_grad()
    def copy_weights(self) -> None:
        """Takes the critic's weights as they are now, rounded to the precision."""
        # In place: a CUDA graph knows where they lie.
        for copy, parameter in self._copies:
            copy.copy_(parameter)

    def __call__(self, observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Q of each pair in float32, without gradient: [..., O], [..., D] -> [...]."""
        return by_rows(self._evaluate, observation, action)

    def _evaluate(self, observation_RO: torch.Tensor, action_RD: torch.Tensor) -> torch.Tensor:
        clipped = torch.clamp(action_RD, self._critic.low, self._critic.high)
        pairs = torch.cat([observation_RO, clipped], dim=-1)
        evaluate = self._fused if len(pairs) >= self._min_fused_rows else self._plain
        return evaluate(pairs, *self._weights).squeeze(-1)


def _parameters(critic: Any) -> list[nn.Parameter]:
    """Weight and bias of each layer, in the order of `_evaluate`."""
    layers = [layer for layer in critic.torso if list(layer.parameters(recurse=False))]
    return [parameter for layer in (*layers, critic.head) for parameter in (layer.weight, layer.bias)]


def _evaluate(
    x: torch.Tensor,
    *weights: torch.Tensor,
    dtype: torch.dtype,
    layer_norm: Callable[..., torch.Tensor],
    linear: Callable[..., torch.Tensor],
    tanh: Callable[[torch.Tensor], torch.Tensor],
    elu: Callable[[torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """The critic's layers by the given operations: [R, O + D] -> [R, 1]. Layers between are of the dtype."""
    first, first_bias, norm, norm_bias, *hidden, head, head_bias = weights
    normed = layer_norm(linear(x, first, first_bias), weight=norm, bias=norm_bias)
    features = tanh(normed).to(dtype)
    for weight, bias in zip(hidden[::2], hidden[1::2], strict=True):
        features = elu(linear(features, weight, bias))
    return linear(features.float(), head, head_bias)


def _tanh(x: torch.Tensor) -> torch.Tensor:
    """On a CPU by way of the sigmoid. May overwrite x."""
    if x.device.type != "cpu":
        return torch.tanh(x)
    if torch.compiler.is_compiling():
        return 2.0 * torch.sigmoid(2.0 * x) - 1.0
    return tanh_by_sigmoid_(x)


def _elu_(x: torch.Tensor) -> torch.Tensor:
    """max(x, exp(min(x, 0)) - 1) in place, which is compiled into less than ELU's own expm1."""
    wide = x.float()
    return x.copy_(torch.maximum(wide, wide.clamp(max=0.0).exp() - 1.0))
