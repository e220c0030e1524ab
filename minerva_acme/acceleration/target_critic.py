"""Evaluates a target critic without gradient, faster than the critic itself.

Shapes: R rows; O observation size, D action dimensions; `...` any leading axes.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import nn
from torch.nn import functional

from minerva_acme import networks
from minerva_acme.acceleration import cpu, fused, kernels, notes, parallel
from minerva_acme.acceleration.agreement import Agreement, Pair, Watch, far_weights, is_called_as_written

Critic = Callable[[torch.Tensor, torch.Tensor], Any]
Torso = Callable[..., torch.Tensor]
Precision = Literal["float32", "bfloat16"]

# 512 units of this many rows are 4 MB. Fewer rows make products slower; all at once would leave the caches.
_MAX_ROWS = 2048

_ROWS = 256  # compiled parts have a multiple of this many rows: at most eight shapes

# The number of multiplications at which a part is compiled: a fifth of a millisecond.
_MIN_FUSED_SIZE = 2**24

_PART = "target critic"

# The largest difference from the critic itself, relative to the values' norm. Rounding makes 1e-6 and 1e-2.
_TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 0.05}


class _Fast(NamedTuple):
    """The evaluation of a supported critic by its weights."""

    evaluate: Critic
    copies: list[tuple[torch.Tensor, torch.Tensor]]  # rounded weights, each with the one that it is a copy of
    graph: fused.Fused  # of any critic with the same layers


class TargetCritic:
    """A critic without gradient.

    The torso of a `networks.Critic`, or of each one in an `Ensemble` of them, is evaluated in batches of rows
    that fit into the CPU's cache, by threads that each compute alone, through `fused` if it pays off, and in
    bfloat16 if requested. This requires a critic exactly as the library makes it, without hooks, and results
    that agree with the critic's own at the first call, and at the first one after each `restored` or replaced
    part. Any other critic is called itself: it may have state, or not compute what its layers say.

    In bfloat16, only the products between the first and the last layer are rounded. The first layer and the
    LayerNorms stay in float32: they are a few percent of the work, and take observations of any size.
    The last layer stays too: bfloat16 has 8 bits, so values near 100 would be rounded to halves,
    and the E-step depends only on differences of values.
    """

    def __init__(
        self, critic: nn.Module, *, precision: Precision = "float32", accelerated: bool = True
    ) -> None:
        """Prepares the evaluation; call `refresh` whenever the critic's weights have changed.

        Args:
            critic: (observation [..., O], action [..., D]) -> prediction [...], or a critic of another form;
                it is kept, not copied.
            precision: The precision of the hidden products. If the CPU has no instructions for bfloat16, they
                stay in float32, and a warning says so.
            accelerated: Whether a way other than calling the critic may be taken.

        Raises:
            ValueError: Bfloat16 is requested, and the critic is not a supported one.
        """
        self._critic = critic
        self._agreement = Agreement(_PART)
        reason = why_unknown(critic) if accelerated else "acceleration is off"
        if precision == "bfloat16" and reason:
            raise ValueError(
                "`target_precision` bfloat16 needs a critic of continuous actions with exactly the library's "
                f"layers, got another one: {reason}. Set `target_precision` to float32."
            )
        device = next(critic.parameters()).device
        if precision == "bfloat16" and device.type == "cpu" and not cpu.multiplies_bfloat16():
            notes.warn(
                _PART,
                "float32: this CPU has no instructions for bfloat16, and emulating them would be several "
                "times slower",
            )
            precision = "float32"
        self._dtype: torch.dtype = getattr(torch, precision)
        self._make(reason)

    def _make(self, reason: str) -> None:
        """Makes the faster way for the critic as it is now, or none if there is a reason against it."""
        self._fast: list[_Fast] = []  # one for each member; empty: the critic itself is called
        self._watch = Watch(self._critic)
        if reason:
            say = notes.warn if self._dtype == torch.bfloat16 else notes.say
            say(_PART, f"plain torch, float32: {reason}")
            return
        fuses = next(self._critic.parameters()).device.type == "cpu" and fused.pays(self._dtype)
        how = "fused by oneDNN" if fuses else "layer by layer"
        precision = str(self._dtype).removeprefix("torch.")
        notes.say(_PART, f"{precision}, {how}, rows shared between threads")
        self._by_weights = functools.partial(_by_weights, dtype=self._dtype, fuses=fuses)
        self._fast = [self._by_weights(member) for member in _members(self._critic)]

    @torch.no_grad()
    def refresh(self) -> None:
        """Updates the rounded copies, if any, from the critic's current weights."""
        for fast in self._fast:
            for rounded, weight in fast.copies:
                rounded.copy_(weight)

    def restored(self) -> None:
        """Calls `refresh` after a restore; the next call is compared with the critic itself again."""
        self._agreement.forget()
        self.refresh()

    @torch.no_grad()
    def __call__(self, observation: torch.Tensor, *action: torch.Tensor) -> Any:
        """Evaluates the critic, without gradient.

        Args:
            observation: The observations, [..., O].
            *action: The actions, [..., D], or [N, ..., D] for N actions in each state. Left out for discrete
                actions: such a critic evaluates all of them at once.

        Returns:
            The critic's prediction; for a `networks.Critic` in float32, with the leading axes of the action.
        """
        if action:
            observation = observation.expand(*action[0].shape[:-1], observation.shape[-1])
        if not self._fast:
            return self._critic(observation, *action)
        if self._agreement.holds():
            return self._together(self._fast, observation, *action)
        return self._compared(observation, *action)

    def _compared(self, observation: torch.Tensor, *action: torch.Tensor) -> Any:
        """Evaluates with a comparison: at first, after a restore and after a change of the critic."""
        if not self._watch.is_unchanged():
            self._make(why_unknown(self._critic))
        with torch.random.fork_rng(devices=[]):  # Random draws of a layer must not change the run.
            wanted = self._critic(observation, *action)
        if not self._fast:
            return wanted
        found = self._together(self._fast, observation, *action)
        tolerance = _TOLERANCES[self._dtype]

        def compare_far_away(far: nn.Module) -> Pair:
            members = [
                self._by_weights(member, fast.graph)
                for member, fast in zip(_members(far), self._fast, strict=True)
            ]
            return Pair(self._together(members, observation, *action), far(observation, *action), tolerance)

        with torch.random.fork_rng(devices=[]):
            far_away = far_weights("values", self._critic, compare_far_away)
        if self._agreement.settle(self._critic, values=Pair(found, wanted, tolerance), **far_away):
            return found
        if self._agreement.is_broken:
            self._fast = []
        return wanted

    def _together(self, members: Sequence[_Fast], observation: torch.Tensor, *action: torch.Tensor) -> Any:
        outputs = [member.evaluate(observation, *action) for member in members]
        if isinstance(self._critic, networks.Ensemble):
            return networks.EnsemblePrediction(tuple(outputs), self._critic.rule)
        return outputs[0]


def _by_weights(
    critic: networks.Critic, graph: fused.Fused | None = None, *, dtype: torch.dtype, fuses: bool
) -> _Fast:
    """Makes the evaluation of a supported critic from its weights; hidden ones are copied if rounded.

    Args:
        critic: The critic.
        graph: The graph of a critic with the same layers, so that nothing is compiled again; None for none.
        dtype: The dtype of the products between the first and the last layer.
        fuses: Whether the layers are compiled into one function.
    """
    layers = _LAYERS[type(critic.torso)](critic.torso)
    hidden = [layer for layer in layers if isinstance(layer, nn.Linear)][1:]
    weights = []  # of each layer, in the order that the torsos' functions take
    copies: list[tuple[torch.Tensor, torch.Tensor]] = []
    for layer in layers:
        for tensor in _tensors(layer):
            weight = tensor.detach()
            if layer in hidden and dtype != weight.dtype:
                copies.append((weight.to(dtype), weight))
                weight = copies[-1][0]
            weights.append(weight)
    low, high = critic.low, critic.high
    # Constants: a number read from a tensor while a function is traced is computed at each call.
    norms = [
        (tuple(each.weight.shape), each.eps)
        for each in layers
        if isinstance(each, nn.LayerNorm | nn.BatchNorm1d)
    ]
    evaluate = functools.partial(_TORSOS[type(critic.torso)], dtype=dtype, norms=norms)
    plain: Callable[..., Any] = critic.torso
    head: Any = critic.head
    predict: Callable[..., Any] = head
    if _is_one_number(head):
        # One more layer, with one number per row. Other heads' predictions need the features of all rows.
        evaluate = functools.partial(_evaluate_scalar, torso=evaluate)
        weights += [parameter.detach() for parameter in (head.weight, head.bias)]
        plain, predict = lambda pairs: head(critic.torso(pairs)).value, networks.ScalarPrediction
    graph = graph or fused.Fused(evaluate)
    min_rows = math.ceil(_MIN_FUSED_SIZE / sum(weight.numel() for weight in weights))

    def evaluate_rows(observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        # Clipped here: bounds are tensors, which would prevent fusing.
        pairs = torch.cat([observation, torch.clamp(action, low, high)], dim=-1)
        if fuses and len(action) >= min_rows:
            # Filled up: few shapes are compiled, and the same ones in a run that is resumed.
            filled = functional.pad(pairs, (0, 0, 0, -len(pairs) % _ROWS))
            return graph(filled, *weights)[: len(pairs)]
        if dtype != torch.float32:
            return evaluate(pairs, *weights)
        outputs: torch.Tensor = plain(pairs)
        return outputs

    def evaluate_all(observation: torch.Tensor, action: torch.Tensor) -> Any:
        rows = parallel.map_rows(
            evaluate_rows,
            *(x.reshape(-1, x.shape[-1]) for x in (observation, action)),
            max_rows=_MAX_ROWS if observation.device.type == "cpu" else None,
            num_threads=None,
        )
        return predict(rows.view(*action.shape[:-1], rows.shape[-1]))

    return _Fast(evaluate_all, copies, graph)


def why_unknown(critic: nn.Module) -> str:
    """Explains why a critic does not have exactly the library's layers; empty if it does."""
    for member in _members(critic):
        if type(member) is not networks.Critic:
            return f"{type(member).__name__} is not a networks.Critic"
        if member.low is None:
            return "it evaluates all discrete actions at once"
        if type(member.torso) not in _TORSOS:
            return f"its torso, {type(member.torso).__name__}, is not supported"
        if not _is_as_made(member):
            return "its layers were changed"
    if any(isinstance(module, nn.BatchNorm1d) and module.training for module in critic.modules()):
        return "its batch norm is in training mode"
    if not all(map(is_called_as_written, critic.modules())):
        return "it has hooks"
    read = [part for member in _members(critic) for part in _read_parts(member)]
    modules = [module for part in read for _, module in part.named_modules(remove_duplicate=False)]
    weights = [weight for part in read for _, weight in part.named_parameters(remove_duplicate=False)]
    if len({*modules}) < len(modules) or len({*weights}) < len(weights):
        return "layers share weights"
    if any(parameter.dtype != torch.float32 for parameter in critic.parameters()):
        return "its weights are not float32"
    return ""


def _members(critic: nn.Module) -> list[Any]:
    return [*critic.members] if type(critic) is networks.Ensemble else [critic]


def _read_parts(critic: networks.Critic) -> list[nn.Module]:
    """Returns the parts whose weights are read; another head is called as it is, and may share a scale."""
    return [critic.torso, critic.head] if _is_one_number(critic.head) else [critic.torso]


def _is_one_number(head: nn.Module) -> bool:
    return type(head) is networks.ScalarHead and head.num_objectives is None


def _is_as_made(critic: networks.Critic) -> bool:
    """Returns whether torso and head have exactly the library's layers and settings."""
    parts = [kernels.plain_type(module) for module in critic.torso.modules()]
    first, repeated, last = _PARTS[type(critic.torso)]
    num_repeated = (len(parts) - len(first) - len(last)) // len(repeated)
    if parts != [*first, *(repeated * num_repeated), *last]:
        return False
    has_biases = type(critic.torso) is not networks.BatchNormMLP
    return _has_known_settings(critic.head) and all(
        _has_known_settings(layer, has_biases) for layer in critic.torso.modules()
    )


def _has_known_settings(layer: nn.Module, has_bias: bool = True) -> bool:
    if isinstance(layer, nn.Linear):
        return (layer.bias is not None) == has_bias
    if isinstance(layer, nn.BatchNorm1d):  # Without running statistics, it normalises by the batch's.
        return len(_tensors(layer)) == 4
    if isinstance(layer, nn.LayerNorm):
        return layer.weight is not None and layer.bias is not None and len(layer.normalized_shape) == 1
    return not isinstance(layer, nn.ELU) or layer.alpha == 1.0


_Parts = list[type[nn.Module]]
_Norm = tuple[tuple[int, ...], float]  # shape and epsilon of a LayerNorm or a batch norm

_PARTS: Mapping[type[nn.Module], tuple[_Parts, _Parts, _Parts]] = {
    networks.LayerNormMLP: (
        [networks.LayerNormMLP, nn.Linear, nn.LayerNorm, nn.Tanh],
        [nn.Linear, nn.ELU],
        [],
    ),
    networks.SimBa: (
        [networks.SimBa, nn.Linear],
        [networks.ResidualBlock, nn.LayerNorm, nn.Linear, nn.Linear],
        [nn.LayerNorm],
    ),
    networks.BatchNormMLP: (
        [networks.BatchNormMLP, nn.BatchNorm1d],
        [nn.Linear, nn.BatchNorm1d, nn.ReLU],
        [],
    ),
}


def _layers_of_mlp(torso: nn.Module) -> list[Any]:
    return [layer for layer in torso.children() if _tensors(layer)]


def _layers_of_simba(torso: Any) -> list[Any]:
    first, *blocks, last = torso
    return [first, *(layer for block in blocks for layer in (block.norm, block.expand, block.contract)), last]


# The layers with weights, in the order in which the functions below take their weights.
_LAYERS: Mapping[type[nn.Module], Callable[[nn.Module], list[Any]]] = {
    networks.LayerNormMLP: _layers_of_mlp,
    networks.SimBa: _layers_of_simba,
    networks.BatchNormMLP: _layers_of_mlp,
}


def _tensors(layer: nn.Module) -> list[torch.Tensor]:
    """Returns what a layer computes with: weight, bias, and running mean and variance, if it has them."""
    names = ("weight", "bias", "running_mean", "running_var")
    return [tensor for name in names if (tensor := getattr(layer, name, None)) is not None]


def _evaluate_scalar(pairs: torch.Tensor, *weights: torch.Tensor, torso: Torso) -> torch.Tensor:
    """Computes torso and `networks.ScalarHead` with the given weights, [R, O + D] -> [R, 1]."""
    *of_torso, head, head_bias = weights
    return functional.linear(torso(pairs, *of_torso), head, head_bias)


# Torsos with given weights; the hidden layers' products are in `dtype`: [R, O + D] -> [R, F].


def _evaluate_mlp(
    pairs: torch.Tensor, *weights: torch.Tensor, dtype: torch.dtype, norms: Sequence[_Norm]
) -> torch.Tensor:
    first, first_bias, norm, norm_bias, *hidden = weights
    features = functional.linear(pairs, first, first_bias)
    ((shape, epsilon),) = norms
    features = functional.layer_norm(features, shape, norm, norm_bias, epsilon)
    features = torch.tanh(features).to(dtype)
    for weight, bias in zip(hidden[::2], hidden[1::2], strict=True):
        features = functional.elu(functional.linear(features, weight, bias))
    return features.float()


def _evaluate_simba(
    pairs: torch.Tensor, *weights: torch.Tensor, dtype: torch.dtype, norms: Sequence[_Norm]
) -> torch.Tensor:
    first, first_bias, *blocks, norm, norm_bias = weights
    features = functional.linear(pairs, first, first_bias)  # the sum over blocks stays in float32
    for i, (shape, epsilon) in zip(range(0, len(blocks), 6), norms[:-1], strict=True):
        block_norm, block_norm_bias, expand, expand_bias, contract, contract_bias = blocks[i : i + 6]
        hidden = functional.layer_norm(features, shape, block_norm, block_norm_bias, epsilon).to(dtype)
        hidden = torch.relu(functional.linear(hidden, expand, expand_bias))
        features = features + functional.linear(hidden, contract, contract_bias).float()
    shape, epsilon = norms[-1]
    return functional.layer_norm(features, shape, norm, norm_bias, epsilon)


def _evaluate_batch_norm(
    pairs: torch.Tensor, *weights: torch.Tensor, dtype: torch.dtype, norms: Sequence[_Norm]
) -> torch.Tensor:
    def affine(i: int, epsilon: float) -> tuple[torch.Tensor, torch.Tensor]:
        norm, norm_bias, mean, var = weights[i : i + 4]
        factor = norm * torch.rsqrt(var + epsilon)
        return factor, norm_bias - mean * factor

    (_, epsilon), *hidden = norms
    factor, shift = affine(0, epsilon)
    features = pairs * factor + shift
    # In evaluation mode, batch norm belongs to the product before it, with which oneDNN fuses what follows.
    for i, (_, epsilon) in zip(range(4, len(weights), 5), hidden, strict=True):
        weight, (factor, shift) = weights[i], affine(i + 1, epsilon)
        product = functional.linear(
            features.to(weight.dtype),
            (weight * factor.unsqueeze(-1)).to(weight.dtype),
            shift.to(weight.dtype),
        )
        features = torch.relu(product)
    return features.float()


_TORSOS: Mapping[type[nn.Module], Torso] = {
    networks.LayerNormMLP: _evaluate_mlp,
    networks.SimBa: _evaluate_simba,
    networks.BatchNormMLP: _evaluate_batch_norm,
}
