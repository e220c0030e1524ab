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

Critic = Callable[[torch.Tensor, torch.Tensor], Any]
Torso = Callable[..., torch.Tensor]
Precision = Literal["float32", "bfloat16"]

# 512 units of so many rows are 4 MB. Fewer make products slower, all at once leaves the caches.
_MAX_ROWS = 2048

# Multiplications of a part from which on it is compiled: a fifth of a millisecond.
_MIN_FUSED_SIZE = 2**24

_KNOWN = (networks.Critic, networks.CriticWithHead)
_Known = networks.Critic | networks.CriticWithHead


class TargetCritic:
    """A critic without gradient.

    The torso of a `networks.Critic`, of a `networks.CriticWithHead`, or of each in an `Ensemble` of these, is
    evaluated a cache's worth of rows at a time on a CPU, by threads that each compute alone, through `fused`
    where that pays, and in bfloat16 where that is asked for. That is so if it is as the library makes it,
    without hooks. Any other critic is called as it is: it may have state, give something else than values, or
    compute something else than its layers say.

    In bfloat16 the products between the first and the last layer are. The first layer and the
    LayerNorms stay in float32: they are a few percent of the work, and take observations of any size.
    The last one stays too: bfloat16 has 8 bits, so that values near 100 would be rounded to halves,
    and the E-step sees nothing but differences of values.
    """

    def __init__(
        self, critic: nn.Module, *, precision: Precision = "float32", accelerated: bool = True
    ) -> None:
        """Makes the evaluation; call `refresh` whenever the critic's weights have changed.

        Args:
            critic: (observation [..., O], action [..., D]) -> q [...] or a prediction, or another one;
                kept, not copied.
            precision: of the hidden products. Where the CPU has no instructions for bfloat16 they stay in
                float32, and a warning says so.
            accelerated: whether any other way than calling the critic may be taken.

        Raises:
            ValueError: bfloat16 is asked for and the critic is not known.
        """
        self._critic = critic
        self._evaluate: list[Critic] = []  # of each critic in it; none: no other way than the critic itself
        self._copies: list[tuple[torch.Tensor, torch.Tensor]] = []
        reason = why_unknown(critic) if accelerated else "acceleration is off"
        if precision == "bfloat16" and reason:
            raise ValueError(
                "`target_precision` bfloat16 needs a critic of continuous actions with the layers that the "
                f"library makes, got another one: {reason}. Set `target_precision` to float32."
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
        fuses = device.type == "cpu" and fused.pays(getattr(torch, precision))
        notes.say(
            "target critic",
            f"{precision}, {'fused by oneDNN' if fuses else 'layer by layer'}, rows shared between threads",
        )
        dtype = getattr(torch, precision)
        self._evaluate = [self._by_weights(member, dtype, fuses) for member in _members(critic)]

    def _by_weights(self, critic: _Known, dtype: torch.dtype, fuses: bool) -> Critic:
        """Evaluates a known critic by its weights, those of hidden layers copied where they are rounded."""
        hidden = {id(p) for layer in _linears(critic.torso)[1:] for p in layer.parameters()}
        weights = []  # of each layer, in the order of the torsos' functions
        for parameter in critic.torso.parameters():
            weight = parameter.detach()
            if id(parameter) in hidden and dtype != weight.dtype:
                self._copies.append((weight.to(dtype), weight))
                weight = self._copies[-1][0]
            weights.append(weight)
        has_values = isinstance(critic, networks.Critic)
        if has_values:  # Their head is one more layer; what other heads give is made of all their outputs.
            weights += [parameter.detach() for parameter in critic.head.parameters()]
        low, high = critic.low, critic.high
        (norm, *_) = (layer for layer in critic.torso.modules() if isinstance(layer, nn.LayerNorm))
        torso = functools.partial(
            _TORSOS[type(critic.torso)], dtype=dtype, shape=tuple(norm.normalized_shape), epsilon=norm.eps
        )
        evaluate = functools.partial(_values, torso=torso) if has_values else torso
        graph = fused.Fused(evaluate)
        min_rows = math.ceil(_MIN_FUSED_SIZE / sum(weight.numel() for weight in weights))

        def evaluate_rows(observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
            # Clipped here: bounds are tensors, which stops the fusing.
            pairs = torch.cat([observation, torch.clamp(action, low, high)], dim=-1)
            if fuses and len(action) >= min_rows:
                return graph(pairs, *weights)
            if dtype != torch.float32:
                return evaluate(pairs, *weights)
            features: torch.Tensor = critic.torso(pairs)
            return critic.head(features) if has_values else features

        def evaluate_all(observation: torch.Tensor, action: torch.Tensor) -> Any:
            rows = parallel.map_rows(
                evaluate_rows,
                *(x.reshape(-1, x.shape[-1]) for x in (observation, action)),
                max_rows=_MAX_ROWS if observation.device.type == "cpu" else None,
                num_threads=None,
            )
            outputs = rows.view(*action.shape[:-1], rows.shape[-1])
            return outputs.squeeze(-1) if has_values else critic.head(outputs)

        return evaluate_all

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
        if not self._evaluate:
            return self._critic(observation, *action)
        outputs = [evaluate(observation, *action) for evaluate in self._evaluate]
        if isinstance(self._critic, networks.Ensemble):
            return networks.EnsemblePrediction(tuple(outputs), self._critic.rule)
        return outputs[0]


def why_unknown(critic: nn.Module) -> str:
    """Why a critic is not one with the layers that the library makes; empty if it is one."""
    for member in _members(critic):
        if type(member) not in _KNOWN:
            return f"{type(member).__name__} is not a networks.Critic"
        if not hasattr(member, "low"):
            return "it values all discrete actions at once"
        if type(member.torso) not in _TORSOS:
            return f"its torso, {type(member.torso).__name__}, is not known"
        leaves = [kernels.plain_type(module) for module in member.torso.modules() if not [*module.children()]]
        if leaves != _leaves_as_made(member.torso, len(leaves)) or not isinstance(member.head, nn.Linear):
            return "its layers were changed"
    if any(m._forward_hooks or m._forward_pre_hooks or "forward" in vars(m) for m in critic.modules()):
        return "it has hooks"
    return ""


def _members(critic: nn.Module) -> list[Any]:
    return [*critic.members] if type(critic) is networks.Ensemble else [critic]


def _leaves_as_made(torso: nn.Module, num_leaves: int) -> list[type[nn.Module]]:
    """The layers of such a torso, of so many; activations in a block have none."""
    first, repeated, last = _LEAVES[type(torso)]
    num_repeated = (num_leaves - len(first) - len(last)) // len(repeated)
    return [*first, *(repeated * num_repeated), *last]


_Layers = list[type[nn.Module]]

_LEAVES: Mapping[type[nn.Module], tuple[_Layers, _Layers, _Layers]] = {
    networks.LayerNormMLP: ([nn.Linear, nn.LayerNorm, nn.Tanh], [nn.Linear, nn.ELU], []),
    networks.SimBa: ([nn.Linear], [nn.LayerNorm, nn.Linear, nn.Linear], [nn.LayerNorm]),
}


def _linears(torso: nn.Module) -> list[nn.Linear]:
    return [layer for layer in torso.modules() if isinstance(layer, nn.Linear)]


def _values(pairs: torch.Tensor, *weights: torch.Tensor, torso: Torso) -> torch.Tensor:
    """Torso and head of `networks.Critic` by given weights, [R, O + D] -> [R, 1]."""
    *of_torso, head, head_bias = weights
    return functional.linear(torso(pairs, *of_torso), head, head_bias)


# Torsos by given weights, the hidden layers' products in `dtype`: [R, O + D] -> [R, F].


def _evaluate_mlp(
    pairs: torch.Tensor, *weights: torch.Tensor, dtype: torch.dtype, shape: tuple[int, ...], epsilon: float
) -> torch.Tensor:
    first, first_bias, norm, norm_bias, *hidden = weights
    features = functional.linear(pairs, first, first_bias)
    features = torch.tanh(functional.layer_norm(features, shape, norm, norm_bias, epsilon)).to(dtype)
    for weight, bias in zip(hidden[::2], hidden[1::2], strict=True):
        features = functional.elu(functional.linear(features, weight, bias))
    return features.float()


def _evaluate_simba(
    pairs: torch.Tensor, *weights: torch.Tensor, dtype: torch.dtype, shape: tuple[int, ...], epsilon: float
) -> torch.Tensor:
    first, first_bias, *blocks, norm, norm_bias = weights
    features = functional.linear(pairs, first, first_bias)  # what blocks add to stays in float32
    for i in range(0, len(blocks), 6):
        block_norm, block_norm_bias, expand, expand_bias, contract, contract_bias = blocks[i : i + 6]
        hidden = functional.layer_norm(features, shape, block_norm, block_norm_bias, epsilon).to(dtype)
        hidden = torch.relu(functional.linear(hidden, expand, expand_bias))
        features = features + functional.linear(hidden, contract, contract_bias).float()
    return functional.layer_norm(features, shape, norm, norm_bias, epsilon)


_TORSOS: Mapping[type[nn.Module], Torso] = {
    networks.LayerNormMLP: _evaluate_mlp,
    networks.SimBa: _evaluate_simba,
}
