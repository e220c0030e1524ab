"""Evaluates a target critic without gradient, faster than the critic itself.

Shapes: R rows; O observation size, D action dimensions; `...` any leading axes.
"""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from torch import nn
from torch.nn import functional

from minerva_acme import networks
from minerva_acme.acceleration import cpu, fused, kernels, notes, parallel

Critic = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Precision = Literal["float32", "bfloat16"]

# 512 units of so many rows are 4 MB. Fewer make products slower, all at once leaves the caches.
_MAX_ROWS = 2048

# Multiplications of a part from which on it is compiled: a fifth of a millisecond.
_MIN_FUSED_SIZE = 2**24


class TargetCritic:
    """A critic without gradient.

    A `networks.Critic` as that makes itself, without hooks, is evaluated a cache's worth of rows at a time on
    a CPU, by threads that each compute alone, through `fused` where that pays, and in bfloat16 where that is
    asked for. Any other critic is called as it is: it may have state, give something else than values, or
    compute something else than its layers say.

    In bfloat16 the products between the first and the last layer are. The first layer and its
    LayerNorm stay in float32: they are a few percent of the work, and take observations of any size.
    The last one stays too: bfloat16 has 8 bits, so that values near 100 would be rounded to halves,
    and the E-step sees nothing but differences of values.
    """

    def __init__(
        self, critic: nn.Module, *, precision: Precision = "float32", accelerated: bool = True
    ) -> None:
        """Makes the evaluation; call `refresh` whenever the critic's weights have changed.

        Args:
            critic: (observation [..., O], action [..., D]) -> q [...], or one of another kind; kept, not
                copied.
            precision: of the hidden products. Where the CPU has no instructions for bfloat16 they stay in
                float32, and a warning says so.
            accelerated: whether any other way than calling the critic may be taken.

        Raises:
            ValueError: bfloat16 is asked for and the critic is not known.
        """
        self._critic = critic
        self._evaluate: Critic | None = None  # None: no other way than the critic itself
        self._copies: list[tuple[torch.Tensor, torch.Tensor]] = []
        reason = why_unknown(critic) if accelerated else "acceleration is off"
        if precision == "bfloat16" and reason:
            raise ValueError(
                "`target_precision` bfloat16 needs a `networks.Critic` with the layers that it makes, got "
                f"another critic: {reason}. Set `target_precision` to float32."
            )
        device = next(critic.parameters()).device
        if precision == "bfloat16" and device.type == "cpu" and not cpu.multiplies_bfloat16():
            notes.warn(
                "target critic",
                "float32, as this CPU has no instructions for bfloat16 and would emulate it, several times "
                "slower",
            )
            precision = "float32"
        if reason:
            notes.say("target critic", f"plain torch, float32: {reason}")
            return
        assert isinstance(critic, networks.Critic)
        fuses = device.type == "cpu" and fused.pays(getattr(torch, precision))
        notes.say(
            "target critic",
            f"{precision}, {'fused by oneDNN' if fuses else 'layer by layer'}, rows shared between threads",
        )
        self._evaluate = self._by_weights(critic, getattr(torch, precision), fuses)

    def _by_weights(self, critic: networks.Critic, dtype: torch.dtype, fuses: bool) -> Critic:
        """Evaluates a known critic by its weights, those of hidden layers copied where they are rounded."""
        hidden = {id(p) for layer in _linears(critic.torso)[1:] for p in layer.parameters()}
        weights = []  # of each layer, in the order of the torsos' functions
        for parameter in critic.parameters():
            weight = parameter.detach()
            if id(parameter) in hidden and dtype != weight.dtype:
                self._copies.append((weight.to(dtype), weight))
                weight = self._copies[-1][0]
            weights.append(weight)
        low, high = critic.low, critic.high
        (norm, *_) = (layer for layer in critic.torso.modules() if isinstance(layer, nn.LayerNorm))
        evaluate = functools.partial(
            _TORSOS[type(critic.torso)], dtype=dtype, shape=tuple(norm.normalized_shape), epsilon=norm.eps
        )
        graph = fused.Fused(evaluate)
        min_rows = math.ceil(_MIN_FUSED_SIZE / sum(weight.numel() for weight in weights))

        def evaluate_rows(observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
            is_worth_it = fuses and len(action) >= min_rows
            if dtype == torch.float32 and not is_worth_it:
                q: torch.Tensor = critic(observation, action)
                return q
            # Clipped here: bounds are tensors, which stops the fusing.
            pairs = torch.cat([observation, torch.clamp(action, low, high)], dim=-1)
            return (graph if is_worth_it else evaluate)(pairs, *weights).squeeze(-1)

        return evaluate_rows

    @torch.no_grad()
    def refresh(self) -> None:
        """Takes the critic's weights as they are now, where copies of them are rounded."""
        for rounded, weight in self._copies:
            rounded.copy_(weight)

    @torch.no_grad()
    def __call__(self, observation: torch.Tensor, *action: torch.Tensor) -> Any:
        """What the critic gives, without gradient.

        Args:
            observation: [..., O].
            *action: [..., D], or [N, ..., D] for N actions in each state. None where actions are discrete:
                such a critic values all of them at once.

        Returns:
            Of a `networks.Critic`, values with the leading axes of the action, float32.
        """
        if action:
            observation = observation.expand(*action[0].shape[:-1], observation.shape[-1])
        if self._evaluate is None:
            return self._critic(observation, *action)
        q_R = parallel.map_rows(
            self._evaluate,
            *(x.reshape(-1, x.shape[-1]) for x in (observation, *action)),
            max_rows=_MAX_ROWS if observation.device.type == "cpu" else None,
            num_threads=None,
        )
        return q_R.view(observation.shape[:-1])


def why_unknown(critic: nn.Module) -> str:
    """Why a critic is not a `networks.Critic` with the layers that it makes; empty if it is one."""
    if type(critic) is not networks.Critic:
        return f"{type(critic).__name__} is not a networks.Critic"
    if type(critic.torso) not in _TORSOS:
        return f"its torso, {type(critic.torso).__name__}, is not known"
    leaves = [kernels.plain_type(module) for module in critic.modules() if not [*module.children()]]
    if leaves != _leaves_as_made(critic.torso, len(leaves)):
        return "its layers were changed"
    if any(m._forward_hooks or m._forward_pre_hooks or "forward" in vars(m) for m in critic.modules()):
        return "it has hooks"
    return ""


def _leaves_as_made(torso: nn.Module, num_leaves: int) -> list[type[nn.Module]]:
    """The layers of a critic with such a torso, of so many; its own activations have no layer in a block."""
    first, repeated, last = _LEAVES[type(torso)]
    num_repeated = (num_leaves - len(first) - len(last)) // len(repeated)
    return [*first, *(repeated * num_repeated), *last]


_Layers = list[type[nn.Module]]

_LEAVES: Mapping[type[nn.Module], tuple[_Layers, _Layers, _Layers]] = {
    networks.LayerNormMLP: ([nn.Linear, nn.LayerNorm, nn.Tanh], [nn.Linear, nn.ELU], [nn.Linear]),
    networks.SimBa: ([nn.Linear], [nn.LayerNorm, nn.Linear, nn.Linear], [nn.LayerNorm, nn.Linear]),
}


def _linears(torso: nn.Module) -> list[nn.Linear]:
    return [layer for layer in torso.modules() if isinstance(layer, nn.Linear)]


# Torso and head of `networks.Critic` by given weights, the hidden layers' products in `dtype`:
# [R, O + D] -> [R, 1].


def _evaluate_mlp(
    pairs: torch.Tensor, *weights: torch.Tensor, dtype: torch.dtype, shape: tuple[int, ...], epsilon: float
) -> torch.Tensor:
    first, first_bias, norm, norm_bias, *hidden, head, head_bias = weights
    features = functional.linear(pairs, first, first_bias)
    features = torch.tanh(functional.layer_norm(features, shape, norm, norm_bias, epsilon)).to(dtype)
    for weight, bias in zip(hidden[::2], hidden[1::2], strict=True):
        features = functional.elu(functional.linear(features, weight, bias))
    return functional.linear(features.float(), head, head_bias)


def _evaluate_simba(
    pairs: torch.Tensor, *weights: torch.Tensor, dtype: torch.dtype, shape: tuple[int, ...], epsilon: float
) -> torch.Tensor:
    first, first_bias, *blocks, norm, norm_bias, head, head_bias = weights
    features = functional.linear(pairs, first, first_bias)  # what blocks add to stays in float32
    for i in range(0, len(blocks), 6):
        block_norm, block_norm_bias, expand, expand_bias, contract, contract_bias = blocks[i : i + 6]
        hidden = functional.layer_norm(features, shape, block_norm, block_norm_bias, epsilon).to(dtype)
        hidden = torch.relu(functional.linear(hidden, expand, expand_bias))
        features = features + functional.linear(hidden, contract, contract_bias).float()
    features = functional.layer_norm(features, shape, norm, norm_bias, epsilon)
    return functional.linear(features, head, head_bias)


_TORSOS: Mapping[type[nn.Module], Callable[..., torch.Tensor]] = {
    networks.LayerNormMLP: _evaluate_mlp,
    networks.SimBa: _evaluate_simba,
}
