"""PPO's gradient steps on small minibatches, on arrays: the loss with its derivatives, and Adam.

Shapes: n samples of a minibatch, P all parameters' elements.
"""

import contextlib
import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import nn
from torch.optim import optimizer as torch_optimizer

from minerva_acme import losses
from minerva_acme.acceleration import adam, notes
from minerva_acme.acceleration.agreement import Agreement, Originals, Pair
from minerva_acme.acceleration.array_actor_critic import ArrayActorCritic
from minerva_acme.acceleration.array_layers import UnknownNetwork
from minerva_acme.distributions import Categorical, DiagonalGaussian
from minerva_acme.losses.ppo import MIN_STDDEV
from minerva_acme.networks import torso
from minerva_acme.networks.actor_critic import ActorCritic, CategoricalHead, GaussianHead

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

# Makes a gradient step on a minibatch, a named tuple of tensors. Returns `losses.PPOLosses` and the norm of
# the gradient before clipping, [7].
Step = Callable[[Any], torch.Tensor]

# The number of multiply-adds in a forward pass up to which arrays are faster whatever torch's threads: 10
# times on one thread at 64 samples through 64-64, 3 at 64 through 256-256, 1.5 at 512 through 256-256. It
# depends only on sizes, so that a seed gives the same numbers with any number of threads.
_MOST_OF_ARRAYS = 2**24

# What a plain step calls and arrays do not. `written` adds the learner's own methods.
_WRITTEN = Originals(
    (losses, "ppo_loss"),
    (losses, "normalize_advantages"),
    (DiagonalGaussian, "log_prob"),
    (DiagonalGaussian, "entropy"),
    (Categorical, "log_prob"),
    (Categorical, "entropy"),
    (ActorCritic, "from_normalized"),
    *((kind, "forward") for kind in (GaussianHead, CategoricalHead)),
    *((kind, "forward") for kind in (torso._Stack, torso.LayerNormMLP, torso.ReLUMLP, torso.TanhMLP)),
    *((kind, "forward") for kind in (nn.Sequential, nn.Linear, nn.LayerNorm, nn.Tanh, nn.ReLU, nn.ELU)),
    *((nn.functional, name) for name in ("linear", "layer_norm", "relu", "elu")),
    (torch, "tanh"),
)
_NOTHING = Originals()
_steps: dict[Any, Originals] = {}  # of optimisers, by class


def _steps_of(optimizer: torch.optim.Optimizer) -> Originals:
    # Not at import: torch wraps the `step` of a class when it makes the first instance.
    kind = type(optimizer)
    if kind not in _steps:
        _steps[kind] = Originals((next(each for each in kind.__mro__ if "step" in vars(each)), "step"))
    return _steps[kind]


CLIPPING_EPSILON = 1e-6
"""The number that `torch.nn.utils.clip_grad_norm_` adds to a norm before dividing by it."""


@contextlib.contextmanager
def make_step(
    plain: Step,
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    agreement: Agreement,
    minibatch_size: int,
    normalize_advantages: bool,
    max_grad_norm: float,
    largest_norm: float,
    written: Originals = _NOTHING,
    **loss_settings: Any,
) -> Iterator[Step]:
    """Makes a gradient step on arrays that equals a plain one.

    If arrays do not pay off or are not supported, it yields the plain step.

    If the two were not yet seen to agree, the first minibatch is computed both ways. If they agree, the
    results of the arrays are used, as if the minibatch had gone only that way; otherwise this and all later
    steps are plain. So are those after a function was replaced that arrays compute in place of.

    At the end of the block, also by an exception, network and optimiser are in the state that the steps have
    produced.

    Args:
        plain: The step by autograd: a function, or a method of the learner.
        network: The network to train.
        optimizer: The optimiser of `network.parameters()`, in one group.
        agreement: The record of whether both ways agree; the learner uses one for all calls.
        minibatch_size: The number of samples in a minibatch.
        normalize_advantages: Whether a minibatch's advantages are normalised.
        max_grad_norm: The global norm to which gradients are clipped.
        largest_norm: The norm beyond which a gradient makes no step, like one that is not finite.
        written: The methods of the learner and its parts that arrays compute in place of.
        **loss_settings: The settings of `losses.ppo_loss`.
    """

    def replaced() -> str:
        name = _WRITTEN.replaced() or written.replaced() or _steps_of(optimizer).replaced()
        return f"{name} was replaced" if name else ""

    try:
        if reason := _overridden(plain) or replaced():
            raise UnknownNetwork(reason)
        if agreement.is_broken:
            raise UnknownNetwork("arrays gave other results")
        arrays = _make_arrays(network, optimizer, minibatch_size)
    except UnknownNetwork as error:
        notes.say("PPO's updates", f"autograd: {error}")
        yield plain
        return
    notes.say("PPO's updates", "arrays, with hand-written gradients")
    gradient = arrays.gradient
    updates = _Adam(optimizer, [*network.parameters()], arrays.parameters, gradient)

    def step(minibatch: Any) -> torch.Tensor:
        # Without the columns of a memory, which is not supported here.
        samples = type(minibatch)(*(column.numpy() for column in minibatch if len(column)))
        advantages = samples.advantage
        outputs = arrays.forward(samples.observation, samples.raw_action)
        loss = loss_gradients(
            log_prob=outputs.log_prob,
            behaviour_log_prob=samples.raw_log_prob,
            advantages=samples.weight * (normalize(advantages) if normalize_advantages else advantages),
            targets=samples.target,
            value=outputs.value,
            behaviour_value=samples.value,
            entropy=outputs.entropy,
            **loss_settings,
        )
        arrays.backward(loss.log_prob, loss.entropy, loss.value)
        grad_norm = math.sqrt(gradient.dot(gradient))
        if grad_norm > max_grad_norm:
            np.multiply(gradient, max_grad_norm / (grad_norm + CLIPPING_EPSILON), gradient)
        if grad_norm <= largest_norm:
            updates.step()
        return torch.tensor([*loss.losses, grad_norm], dtype=torch.float32)

    way: Step | None = step if agreement.holds() else None

    def take(minibatch: Any) -> torch.Tensor:
        nonlocal way
        if way is not plain and (reason := replaced()):
            if way is step:
                updates.finish()
            notes.say("PPO's updates", f"autograd: {reason}")
            way = plain
        if way is not None:
            return way(minibatch)
        found, before = step(minibatch), _Before(network, optimizer)
        wanted = plain(minibatch)
        if not agreement.settle(network, losses=Pair(found, wanted), **before.pairs(arrays)):
            way = plain
            return wanted
        way = step
        before.restore()
        return found

    try:
        with np.errstate(over="ignore", invalid="ignore"):  # The learner names the norms.
            yield take
    finally:
        if way is step:
            updates.finish()


def _make_arrays(
    network: nn.Module, optimizer: torch.optim.Optimizer, minibatch_size: int
) -> ArrayActorCritic:
    """Makes the network on arrays; raises `UnknownNetwork` if it or its optimiser does not suit them."""
    num_parameters = sum(parameter.numel() for parameter in network.parameters())
    if minibatch_size * num_parameters > _MOST_OF_ARRAYS:
        raise UnknownNetwork("minibatch and network are large")
    if type(optimizer) not in _OPTIMIZERS:
        raise UnknownNetwork(f"{type(optimizer).__name__} is not supported")
    arrays = ArrayActorCritic(network)  # which also refuses a GPU, for whose Adam the next would wait
    if not _is_plain(optimizer, network):
        raise UnknownNetwork("Adam has several groups, or unsupported hooks, settings or state")
    return arrays


# The learner's methods that the step on arrays does not call, but computes itself.
_METHODS = ("normalized", "loss", "_step_on")


def _overridden(plain: Step) -> str:
    """Names a method in whose place an edit of the learner has another one; empty if there is none."""
    learner = getattr(plain, "__self__", None)
    for name in _METHODS:
        owners = [kind for kind in type(learner).__mro__ if name in vars(kind)]
        if len(owners) > 1 or name in getattr(learner, "__dict__", ()):
            return f"{type(learner).__name__} has another {name}"
    return ""


class _Before:
    """A network and its optimiser before a plain step, which is compared and then undone."""

    def __init__(self, network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._parameters = [*network.parameters()]
        self._values = [parameter.detach().clone() for parameter in self._parameters]
        self._optimizer = optimizer
        self._state = {
            parameter: {name: copy.deepcopy(value) for name, value in state.items()}
            for parameter, state in optimizer.state.items()
        }

    def pairs(self, arrays: ArrayActorCritic) -> dict[str, Pair]:
        """Pairs each parameter's gradient, and the step of all of them, by arrays and by the plain step."""
        sizes = [parameter.numel() for parameter in self._parameters]
        gradients = [
            torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            for parameter in self._parameters
        ]
        before = torch.cat([value.flatten() for value in self._values])
        after = torch.cat([parameter.detach().flatten() for parameter in self._parameters])
        return {
            "gradients": Pair(
                torch.from_numpy(arrays.gradient.copy()).split(sizes),
                [gradient.flatten() for gradient in gradients],
            ),
            # Adam's first step is as large for a gradient that is only rounding as for any other.
            "steps": Pair(torch.from_numpy(arrays.parameters) - before, after - before, tolerance=0.1),
        }

    @torch.no_grad()
    def restore(self) -> None:
        """Undoes the plain step."""
        for parameter, value in zip(self._parameters, self._values, strict=True):
            parameter.copy_(value)
            parameter.grad = None
        self._optimizer.state.clear()
        self._optimizer.state.update(self._state)


class Gradients(NamedTuple):
    """The loss of a minibatch, and its derivatives with respect to what is trained, on arrays."""

    losses: tuple[float, ...]  # in the order of `PPOLosses`
    log_prob: Array  # [n]
    value: Array  # [n]
    entropy: float  # with respect to the entropy of each sample, the same for all


def loss_gradients(
    *,
    log_prob: Array,
    behaviour_log_prob: Array,
    advantages: Array,
    targets: Array,
    value: Array,
    behaviour_value: Array,
    entropy: Array,
    clip_ratio: float,
    clip_value: bool,
    entropy_coef: float,
    value_coef: float,
) -> Gradients:
    """Computes `losses.ppo_loss` on arrays, with the same derivatives as autograd.

        dL / d log pi = -rho A / n, 0 where rho is clipped
        dL / dV       = value_coef (V - R) / n, 0 where V is clipped
        dL / dH       = -entropy_coef / n

    It takes the arguments of `losses.ppo_loss`, as float32 [n]; shapes are not checked.
    """
    n = len(log_prob)
    log_ratio = log_prob - behaviour_log_prob
    ratio = np.exp(log_ratio)
    clipped_ratio = np.minimum(np.maximum(ratio, 1.0 - clip_ratio), 1.0 + clip_ratio)
    is_clipped = (ratio > clipped_ratio) & (advantages >= 0.0)
    is_clipped |= (ratio < clipped_ratio) & (advantages < 0.0)
    chosen_ratio = np.where(is_clipped, clipped_ratio, ratio)
    d_log_prob = advantages * (-1.0 / n)
    d_log_prob *= chosen_ratio
    d_log_prob[is_clipped] = 0.0

    error = value - targets
    d_value = error * (value_coef / n)
    if clip_value:
        change = value - behaviour_value
        clipped_change = np.minimum(np.maximum(change, -clip_ratio), clip_ratio)
        clipped_error = behaviour_value + clipped_change
        clipped_error -= targets
        value_is_clipped = (change != clipped_change) & (np.abs(clipped_error) > np.abs(error))
        d_value[value_is_clipped] = 0.0
        error = np.where(value_is_clipped, clipped_error, error)

    policy_loss = -_mean(chosen_ratio * advantages)
    value_loss = 0.5 * _mean(error * error)
    mean_entropy = _mean(entropy)
    return Gradients(
        losses=(
            policy_loss + value_coef * value_loss - entropy_coef * mean_entropy,
            policy_loss,
            value_loss,
            mean_entropy,
            _mean(np.expm1(log_ratio) - log_ratio),
            np.count_nonzero(ratio != clipped_ratio) / n,
        ),
        log_prob=d_log_prob,
        value=d_value,
        entropy=-entropy_coef / n,
    )


def normalize(advantages: Array) -> Array:
    """Computes `losses.normalize_advantages` for an array [n], with the sample's deviation (n - 1)."""
    centred = advantages.astype(np.float64)
    centred -= np.add.reduce(centred) / len(centred)
    stddev = math.sqrt(float(centred.dot(centred)) / (len(centred) - 1))
    centred *= 1.0 / (stddev + MIN_STDDEV)
    return centred.astype(np.float32)


def _mean(x: Array) -> float:
    # Array.mean takes several times as long for a few numbers.
    return float(np.add.reduce(x)) / len(x)


class _Adam:
    """A step of `torch.optim.Adam` on one vector, with the state of the optimiser."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        parameters: Sequence[nn.Parameter],
        vector: Array,
        gradient: Array,
    ) -> None:
        """Copies the state of an optimiser of `parameters` in one group."""
        self._optimizer = optimizer
        self._parameters = parameters
        self._vector, self._gradient = torch.from_numpy(vector), torch.from_numpy(gradient)
        states = [
            optimizer.state.get(each)
            or {"step": torch.zeros(()), **{name: torch.zeros_like(each) for name in _MOMENTS}}
            for each in parameters
        ]
        self._state = {name: torch.cat([state[name].flatten() for state in states]) for name in _MOMENTS}
        self._state["step"] = states[0]["step"].clone()

    def step(self) -> None:
        """Moves the vector by the gradient."""
        (group,) = self._optimizer.param_groups
        state, (beta1, beta2) = self._state, group["betas"]
        state["step"] += 1
        # The kernel alone: torch's checks around it take several times as long.
        kernel: Any = torch._fused_adamw_ if group["decoupled_weight_decay"] else torch._fused_adam_
        kernel(
            [self._vector],
            [self._gradient],
            [state["exp_avg"]],
            [state["exp_avg_sq"]],
            [],
            [state["step"]],
            lr=group["lr"],
            beta1=beta1,
            beta2=beta2,
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            amsgrad=False,
            maximize=group["maximize"],
        )

    @torch.no_grad()
    def finish(self) -> None:
        """Copies the vector and the state back to the parameters and the optimiser."""
        sizes = [parameter.numel() for parameter in self._parameters]
        vectors = (self._vector, *(self._state[name] for name in _MOMENTS))
        for parameter, *parts in zip(
            self._parameters, *(vector.split(sizes) for vector in vectors), strict=True
        ):
            value, *moments = (part.view_as(parameter) for part in parts)
            parameter.copy_(value)
            # They lie in memory as the parameter does: torch's kernel pairs them with it by place.
            laid_out = (torch.empty_like(parameter).copy_(moment) for moment in moments)
            self._optimizer.state[parameter] = {
                "step": self._state["step"].clone(),
                **dict(zip(_MOMENTS, laid_out, strict=True)),
            }


_OPTIMIZERS = (adam.Adam, adam.AdamW, torch.optim.Adam, torch.optim.AdamW)
_MOMENTS = ("exp_avg", "exp_avg_sq")
_KNOWN_STATE = {"step", *_MOMENTS}
_NUMBERS = ("lr", "weight_decay", "eps")
_OFF = ("amsgrad", "capturable", "differentiable")  # settings that must be off for the kernel to be used
_SETTINGS = {
    *(*_NUMBERS, *_OFF, "betas", "maximize", "decoupled_weight_decay"),
    *("params", "foreach", "fused"),  # of no consequence
}


def _is_plain(optimizer: torch.optim.Optimizer, network: nn.Module) -> bool:
    """Returns whether an optimiser treats exactly the network's parameters as `_Adam` does."""
    group, *others = optimizer.param_groups
    is_whole = [id(each) for each in group["params"]] == [id(each) for each in network.parameters()]
    states = [optimizer.state.get(parameter, {}) for parameter in group["params"]]
    numbers = [*map(group.__getitem__, _NUMBERS), *group["betas"]]
    is_known = optimizer.defaults.keys() <= _SETTINGS  # A later version of torch may have more.
    is_known &= not any(map(group.__getitem__, _OFF)) and all(isinstance(x, int | float) for x in numbers)
    is_known &= all(state.keys() == _KNOWN_STATE for state in states if state)
    is_known &= all(map(_lies_like, group["params"], states))
    # Not if a parameter was frozen for a while, or its state was reset.
    is_known &= len({float(state.get("step", 0.0)) for state in states}) == 1
    is_watched = (
        optimizer._optimizer_step_pre_hooks
        or optimizer._optimizer_step_post_hooks
        or torch_optimizer._global_optimizer_pre_hooks
        or torch_optimizer._global_optimizer_post_hooks
        # For example from a scheduler, or from a GradScaler.
        or not {"step", "found_inf", "grad_scale"}.isdisjoint(vars(optimizer))
    )
    return is_whole and is_known and not (others or is_watched)


def _lies_like(parameter: nn.Parameter, state: Mapping[str, torch.Tensor]) -> bool:
    """Returns whether a parameter's moments lie in memory as it does; torch's kernel takes them by place."""
    return all(state[name].stride() == parameter.stride() for name in _MOMENTS if name in state)
