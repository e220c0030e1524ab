"""Gradient steps of a learner: all steps for a batch, or none."""

import contextlib
import copy
import logging
import operator
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from minerva_acme import acceleration, core, types
from minerva_acme.learners import finite, optimizers
from minerva_acme.learners import ranks as learner_ranks

_logger = logging.getLogger(__name__)

Metrics = dict[str, Any]


class Group(NamedTuple):
    """The parameters that one loss trains."""

    optimizer: torch.optim.Optimizer
    max_norm: float  # to which the global norm of the gradient is clipped

    def parameters(self) -> list[nn.Parameter]:
        """Returns all parameters, in the optimiser's order."""
        return [parameter for part in self.optimizer.param_groups for parameter in part["params"]]


class Updates(core.Saveable):
    """Makes gradient steps, and reverts the steps of a batch that turns out not to be finite.

        with updates.whole_or_nothing(step, batch) as metrics:
            finite.require_finite({"targets": targets})       # before the first change
            metrics["norm"] = updates.minimise("critic", loss)

    If something in the block raises `NonFinite`, or the norm of a gradient in it was not finite or beyond
    `finite.LARGEST`, all modules and optimisers are restored to their state before the block, and the batch
    is counted as skipped. To make this possible, the parameters and the optimisers' state are copied once per
    step, into the same memory each time.

    Other threads read the same copies while a step is in progress:

        with updates.as_completed() as read:
            weight = read(module.weight)                      # its value after the last completed step

    A reader never waits for a step. A step waits, at its first change and at its end, for readers that are
    copying.

    Attributes:
        ranks: The learners that make the same steps, or None if there is one.
    """

    def __init__(
        self,
        groups: Mapping[str, Group],
        *,
        modules: Sequence[nn.Module],
        max_skipped_batches: int,
        ranks: learner_ranks.Ranks | None = None,
    ) -> None:
        """Makes the updates.

        Args:
            groups: The groups by name; no parameter may be in two of them.
            modules: All modules that a step changes: trained networks, multipliers, running statistics.
            max_skipped_batches: The number of consecutive batches that may be skipped; one more is an error.
            ranks: The learners that make the same steps, each from its share of the batch: gradients are
                averaged before they are clipped, and all skip a batch that is not finite for one of them.
                None if there is one learner.
        """
        self.ranks = ranks
        self._groups = groups
        self._modules = [part for module in modules for part in module.modules()]
        self._max_skipped = max_skipped_batches
        self._num_skipped = 0
        self._num_skipped_in_a_row = 0
        self._norms: list[tuple[str, torch.Tensor]] = []  # norms of the gradients in a block, in order
        self._lock = threading.Lock()  # held only briefly: by readers, and for changes of `_kept`
        self._kept: dict[torch.Tensor, torch.Tensor] = {}  # copies of what the current step may have changed
        self._copies = _Copies()

    def minimise(self, name: str, loss: torch.Tensor) -> torch.Tensor:
        """Makes one gradient step of a group, by autograd: `differentiate` and `descend`.

        Args:
            name: The group's name.
            loss: The loss to minimise, [].

        Returns:
            The norm of the gradient before clipping, [].
        """
        differentiate(loss, self._groups[name].parameters())
        return self.descend(name)

    def descend(self, name: str) -> torch.Tensor:
        """Makes one step of a group along the gradients in `.grad` of its parameters, clipped by global norm.

        Args:
            name: The group's name.

        Returns:
            The norm of the gradient before clipping, [].
        """
        group = self._groups[name]
        if self.ranks is not None:
            gradients = [parameter.grad for parameter in group.parameters()]
            self.ranks.average_([gradient for gradient in gradients if gradient is not None])
        norm = _clip(group.parameters(), group.max_norm)
        self._norms.append((f"gradients of the {name}", norm))
        group.optimizer.step()
        return norm

    @contextlib.contextmanager
    def whole_or_nothing(self, learner_step: int, batch: types.NestedTensor = ()) -> Iterator[Metrics]:
        """Makes the steps within the block take effect together or not at all.

        Args:
            learner_step: The number of the learner step, for the log.
            batch: The batch to learn from; if it is skipped, the message names the field that caused it.

        Yields:
            Metrics to fill. At the end they hold `skipped_batches`, and nothing else if the batch was
            skipped.

        Raises:
            FloatingPointError: At the end, if too many consecutive batches were skipped.
        """
        metrics: Metrics = {}
        self._norms.clear()
        restore = self._snapshot()
        try:
            yield metrics
            finite.require_finite(self._norms)
            if self.ranks is not None:
                self.ranks.agree()
            self._num_skipped_in_a_row = 0
        except finite.NonFinite as error:
            is_elsewhere = isinstance(error, learner_ranks.NonFiniteElsewhere)
            if self.ranks is not None and not is_elsewhere:
                self.ranks.agree(False)
            restore()
            metrics.clear()
            self._skip(learner_step, error, "" if is_elsewhere else finite.describe_largest(batch))
        metrics["skipped_batches"] = self._num_skipped

    def keep(self, *modules: nn.Module) -> None:
        """Copies other modules, such as target networks, that a step changes outside of `whole_or_nothing`.

        Call it before the change. The copies are for `as_completed`.
        """
        tensors = _tensors([part for module in modules for part in module.modules()])
        self._keep(tensors, _Copies().take(tensors))

    @contextlib.contextmanager
    def as_completed(self) -> Iterator[Callable[[torch.Tensor], torch.Tensor]]:
        """Yields a function from a tensor to its value after the last completed step, which is to be copied.

        It may be called from any thread. Within the block no step can change anything or end.
        """
        with self._lock:
            yield lambda tensor: self._kept.get(tensor, tensor)

    @contextlib.contextmanager
    def completing(self) -> Iterator[None]:
        """Marks the end of a step: after this block, all tensors are read as they are."""
        with self._lock:
            yield
            self._kept = {}

    def _snapshot(self) -> Callable[[], None]:
        """Copies everything that a step changes, for readers too; returns a function that restores it."""
        modules = _tensors(self._modules)
        schedulers = [optimizers.schedulers_of(group.optimizer) for group in self._groups.values()]
        places = [optimizers.save_schedulers(each) for each in schedulers]
        owned = [group.optimizer for group in self._groups.values()]
        # An optimiser changes tensors of its state and its groups in place, or puts others in their place.
        states = [_containers(optimizer.state) for optimizer in owned]
        settings = [
            [
                _containers({key: value for key, value in group.items() if key != "params"})
                for group in optimizer.param_groups
            ]
            for optimizer in owned
        ]
        tensors = modules + _tensors_in(states, settings)
        if not self._kept.keys().isdisjoint(modules):
            self._copies = _Copies()  # The copies of a step that ended with an exception are still read.
        copies = self._copies.take(tensors)
        self._keep(modules, copies)

        def restore() -> None:
            with torch.no_grad():
                for tensor, before in zip(tensors, copies, strict=True):
                    tensor.copy_(before)
            for optimizer, state, of_groups in zip(owned, states, settings, strict=True):
                optimizer.state.clear()
                optimizer.state.update(state)
                # A group that the step has added stays.
                for group, before in zip(optimizer.param_groups, of_groups, strict=False):
                    parameters = group["params"]
                    group.clear()
                    group.update(before, params=parameters)
            for each, place in zip(schedulers, places, strict=True):
                optimizers.place_schedulers(each, place)

        return restore

    def _keep(self, tensors: Sequence[torch.Tensor], copies: Sequence[torch.Tensor]) -> None:
        with self._lock:
            # A step that ended with an exception was not completed: its copies stay.
            self._kept = dict(zip(tensors, copies, strict=False)) | self._kept

    def _skip(self, learner_step: int, reason: finite.NonFinite, blame: str) -> None:
        self._num_skipped += 1
        self._num_skipped_in_a_row += 1
        is_first = self._num_skipped == 1
        _logger.warning(
            "learner step %d skipped: %s%s%s", learner_step, reason, blame, f". {finite.WAY_OUT}" * is_first
        )
        if self._num_skipped_in_a_row > self._max_skipped:
            raise FloatingPointError(
                f"{reason}{blame}, {self._num_skipped_in_a_row} learner steps in a row "
                f"(`max_skipped_batches` is {self._max_skipped}). Training has diverged: lower the learning "
                f"rates. {finite.WAY_OUT}"
            )

    def save(self) -> core.State:
        state: dict[str, Any] = {
            "optimizers": {name: group.optimizer.state_dict() for name, group in self._groups.items()},
            "skipped": [self._num_skipped, self._num_skipped_in_a_row],
        }
        if schedulers := {
            name: optimizers.save_schedulers(found)
            for name, group in self._groups.items()
            if (found := optimizers.schedulers_of(group.optimizer))
        }:
            state["schedulers"] = schedulers
        return state

    def restore(self, state: core.State) -> None:
        for name, group in self._groups.items():
            saved = state["optimizers"][name]
            _check_fits(name, saved, group)
            group.optimizer.load_state_dict(copy.deepcopy(saved))  # It keeps the tensors that it gets.
            schedulers = optimizers.schedulers_of(group.optimizer)
            optimizers.restore_schedulers(name, schedulers, state.get("schedulers", {}).get(name))
            if not schedulers and any("initial_lr" in part for part in group.optimizer.param_groups):
                _logger.warning(
                    "a scheduler sets the learning rate of '%s', and a checkpoint does not hold where it "
                    "was: unless you restore it, the rate starts from the beginning of its schedule. "
                    "`learners.scheduled(optimizer, scheduler)` steps it and has it saved",
                    name,
                )
        self._num_skipped, self._num_skipped_in_a_row = state["skipped"]


def differentiate(loss: torch.Tensor, parameters: Sequence[nn.Parameter]) -> None:
    """Sets the `.grad` of parameters to the gradient of a loss, [], by autograd.

    Frozen parameters (`requires_grad` False) get None, so that no optimiser moves them, whether they were
    frozen before or during training.
    """
    for parameter in parameters:
        parameter.grad = None  # faster than `zero_grad`
    trainable = [parameter for parameter in parameters if parameter.requires_grad]
    if trainable:
        # Only for these: a policy's loss needs the gradient through a critic, not for the critic's weights.
        loss.backward(inputs=trainable)


@torch.no_grad()
def _clip(parameters: list[nn.Parameter], max_norm: float) -> torch.Tensor:
    """Scales the gradients to a global norm of at most `max_norm`, in place; returns the norm before, [].

    The result equals that of `torch.nn.utils.clip_grad_norm_`, bit for bit; torch's function calls each
    operation once per tensor.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not gradients:
        return torch.zeros((), device=parameters[0].device)
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    share: torch.Tensor | float
    if norm.device.type == "cpu" and norm.dtype == torch.float32:
        # The same computation. Reading the norm costs nothing here, and most norms are small enough.
        one, size = np.float32(1.0), np.float32(norm.item())
        share = float(one / (size + np.float32(acceleration.CLIPPING_EPSILON)) * np.float32(max_norm))
        if share >= 1.0:
            return norm
    else:
        share = (max_norm / (norm + acceleration.CLIPPING_EPSILON)).clamp(max=1.0)
    torch._foreach_mul_(gradients, share)
    return norm


_TORCHS = (acceleration.Adam, acceleration.AdamW, torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD)
"""The optimisers of `make_optimizer`, of which it is known what they keep."""


def _check_fits(name: str, saved: core.State, group: Group) -> None:
    """Checks the optimiser state to restore; torch itself only counts the parameters.

    What a new optimiser has in its groups must be in the saved ones. Those of others than `_TORCHS` may have
    more, since some, such as Prodigy, add to their groups when they step, and may keep anything for a
    parameter: Adafactor keeps rows and columns, Prodigy a slice. What these need, their own step tells.

    Raises:
        ValueError: It belongs to another kind of optimiser, or to parameters of other shapes.
    """

    groups, parameters = group.optimizer.state_dict()["param_groups"], group.parameters()
    is_torchs = type(group.optimizer) in _TORCHS
    differences = [] if len(groups) == len(saved["param_groups"]) else ["another number of groups"]
    for own, its in zip(groups, saved["param_groups"], strict=False):
        names = own.keys() | its.keys() if is_torchs else own.keys()
        names = sorted(names - {optimizers.SHARE, optimizers.OF_SCHEDULER})
        differences += [f"another `{key}`" for key in names if not _is_alike(own, its, key)]
    for index, state in saved["state"].items() if is_torchs else ():
        for key, value in state.items():
            shape = torch.Size() if key == "step" else parameters[index].shape
            if value is not None and not (isinstance(value, torch.Tensor) and value.shape == shape):
                differences.append(f"another `{key}` of parameter {index}")
    if differences:
        raise ValueError(
            f"The state to restore for the optimiser '{name}' must come from the same kind of optimiser, "
            f"with parameters of the same shapes, got {differences[0]}."
        )


def _is_alike(own: Mapping[str, Any], saved: Mapping[str, Any], key: str) -> bool:
    """Returns whether a setting is saved as a value of its own kind, or as what a step may make of it."""

    def is_number(value: Any) -> bool:
        return type(value) in (int, float) or (isinstance(value, torch.Tensor) and value.numel() == 1)

    if key not in own or key not in saved:
        return False
    if own[key] is None or type(own[key]) is type(saved[key]):
        return True
    return is_number(own[key]) and is_number(saved[key])


class _Copies:
    """Copies of tensors, in the same memory as the last ones while the tensors are the same."""

    def __init__(self) -> None:
        self._tensors: list[torch.Tensor] = []
        self._copies: list[torch.Tensor] = []

    @torch.no_grad()
    def take(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """Copies the tensors; this overwrites the copies last returned for the same tensors."""
        are_same = len(tensors) == len(self._tensors) and all(map(operator.is_, tensors, self._tensors))
        if tensors and are_same:
            torch._foreach_copy_(self._copies, tensors)  # one call for all tensors
        else:
            self._tensors, self._copies = tensors, [tensor.clone() for tensor in tensors]
        return self._copies


def _tensors(modules: Sequence[nn.Module]) -> list[torch.Tensor]:
    """Returns the modules' own tensors, not their parts'."""
    # Asking each module for its tensors would take longer than copying them.
    tensors = [x for module in modules for x in (*module._parameters.values(), *module._buffers.values())]
    return [tensor for tensor in tensors if tensor is not None]


def _containers(value: Any) -> Any:
    """Copies nested dicts and lists, but not what is in them."""
    if isinstance(value, dict):
        # Nearly all values are tensors: without a call for each, since this runs at each step.
        return {
            key: each if isinstance(each, torch.Tensor) else _containers(each) for key, each in value.items()
        }
    return [*map(_containers, value)] if type(value) is list else value


def _tensors_in(*nests: Any) -> list[torch.Tensor]:
    """Returns the tensors in nested dicts and lists."""
    tensors: list[torch.Tensor] = []
    left = [*nests]
    for value in left:  # which grows
        if isinstance(value, torch.Tensor):
            tensors.append(value)
        elif isinstance(value, dict):
            left += value.values()
        elif isinstance(value, list | tuple):
            left += value
    return tensors
