"""Gradient steps of a learner: all that a batch asks for, or none."""

import contextlib
import logging
import operator
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from minerva_acme import acceleration, core, types
from minerva_acme.learners import finite

_logger = logging.getLogger(__name__)

Metrics = dict[str, Any]


class Group(NamedTuple):
    """Parameters that one loss trains."""

    optimizer: torch.optim.Optimizer
    max_norm: float  # to which the global norm of their gradient is clipped

    def parameters(self) -> list[nn.Parameter]:
        """All of them, in the optimiser's order."""
        return [parameter for part in self.optimizer.param_groups for parameter in part["params"]]


class Updates(core.Saveable):
    """Makes gradient steps, and takes back those of a batch that turns out not to be finite.

        with updates.whole_or_nothing(step, batch) as metrics:
            finite.require_finite({"targets": targets})       # before the first change
            metrics["norm"] = updates.minimise("critic", loss)

    If something in the block raises `NonFinite`, or the norm of a gradient in it was not finite or beyond
    `finite.LARGEST`, all modules and optimisers are as they were before the block, and the batch is
    counted as skipped. For that they are copied first: a memory copy of the parameters and their optimiser's
    state once a step, to the same place each time.

    The same copies are what other threads read while a step is under way:

        with updates.as_completed() as read:
            weight = read(module.weight)                      # as the last completed step left it

    A reader waits for no step. A step waits, at its first change and at its end, for readers in the middle
    of their copies.
    """

    def __init__(
        self, groups: Mapping[str, Group], *, modules: Sequence[nn.Module], max_skipped_batches: int
    ) -> None:
        """Makes the updates.

        Args:
            groups: by name; no parameter is in two of them.
            modules: all that a step changes: trained networks, multipliers, running statistics.
            max_skipped_batches: batches in a row that may be skipped; one more is an error.
        """
        self._groups = groups
        self._modules = [part for module in modules for part in module.modules()]
        self._max_skipped = max_skipped_batches
        self._num_skipped = 0
        self._num_skipped_in_a_row = 0
        self._norms: list[tuple[str, torch.Tensor]] = []  # of the gradients in a block, in their order
        self._lock = threading.Lock()  # held only by what ends by itself: readers, and changes of `_kept`
        self._kept: dict[torch.Tensor, torch.Tensor] = {}  # what the step in progress may have changed
        self._copies = _Copies()

    def minimise(self, name: str, loss: torch.Tensor) -> torch.Tensor:
        """One gradient step of a group, by autograd: `differentiate` and `descend`.

        Args:
            name: The group's name.
            loss: [], to be minimised.

        Returns:
            The norm of the gradient before clipping, [].
        """
        differentiate(loss, self._groups[name].parameters())
        return self.descend(name)

    def descend(self, name: str) -> torch.Tensor:
        """One step of a group along the gradients in its parameters' `.grad`, clipped by global norm.

        Args:
            name: The group's name.

        Returns:
            The norm of the gradient before clipping, [].
        """
        group = self._groups[name]
        norm = _clip(group.parameters(), group.max_norm)
        self._norms.append((f"gradients of the {name}", norm))
        group.optimizer.step()
        return norm

    @contextlib.contextmanager
    def whole_or_nothing(self, learner_step: int, batch: types.NestedTensor = ()) -> Iterator[Metrics]:
        """Makes the steps within the block count together.

        Args:
            learner_step: for the log.
            batch: what is learned from; where it is skipped, the message names the field to blame.

        Yields:
            Metrics to fill. At the end they hold `skipped_batches`, and nothing else if the batch was
            skipped.

        Raises:
            FloatingPointError: At the end, if too many batches in a row were skipped.
        """
        metrics: Metrics = {}
        self._norms.clear()
        restore = self._snapshot()
        try:
            yield metrics
            finite.require_finite(self._norms)
            self._num_skipped_in_a_row = 0
        except finite.NonFinite as error:
            restore()
            metrics.clear()
            self._skip(learner_step, error, finite.describe_largest(batch))
        metrics["skipped_batches"] = self._num_skipped

    def keep(self, *modules: nn.Module) -> None:
        """Says that a step changes other modules too, outside of `whole_or_nothing`, such as target networks.

        To be called before the change. It copies them, for `as_completed`.
        """
        tensors = _tensors([part for module in modules for part in module.modules()])
        self._keep(tensors, _Copies().take(tensors))

    @contextlib.contextmanager
    def as_completed(self) -> Iterator[Callable[[torch.Tensor], torch.Tensor]]:
        """Gives a function from a tensor to what it held after the last completed step, to be copied.

        May be called by any thread, and lets no step change anything or end within the block.
        """
        with self._lock:
            yield lambda tensor: self._kept.get(tensor, tensor)

    @contextlib.contextmanager
    def completing(self) -> Iterator[None]:
        """Around what ends a step: from here on all tensors are read as they are."""
        with self._lock:
            yield
            self._kept = {}

    def _snapshot(self) -> Callable[[], None]:
        """Copies all that a step changes, for readers too; returns a function that puts it back."""
        modules = _tensors(self._modules)
        optimizers = [group.optimizer for group in self._groups.values()]
        # An optimiser changes the tensors of its state in place. Its other values are immutable.
        states = [{key: dict(state) for key, state in optimizer.state.items()} for optimizer in optimizers]
        tensors = modules + _state_tensors(states)
        if not self._kept.keys().isdisjoint(modules):
            self._copies = _Copies()  # Those of a step that an exception ended are still read.
        copies = self._copies.take(tensors)
        self._keep(modules, copies)

        def restore() -> None:
            with torch.no_grad():
                for tensor, before in zip(tensors, copies, strict=True):
                    tensor.copy_(before)
            for optimizer, state in zip(optimizers, states, strict=True):
                optimizer.state.clear()
                optimizer.state.update(state)

        return restore

    def _keep(self, tensors: Sequence[torch.Tensor], copies: Sequence[torch.Tensor]) -> None:
        with self._lock:
            # A step that an exception ended was not completed: what was kept in it stays.
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
        return {
            "optimizers": {name: group.optimizer.state_dict() for name, group in self._groups.items()},
            "skipped": [self._num_skipped, self._num_skipped_in_a_row],
        }

    def restore(self, state: core.State) -> None:
        for name, group in self._groups.items():
            saved = state["optimizers"][name]
            _check_fits(name, saved, group)
            group.optimizer.load_state_dict(saved)
        self._num_skipped, self._num_skipped_in_a_row = state["skipped"]


def differentiate(loss: torch.Tensor, parameters: Sequence[nn.Parameter]) -> None:
    """Sets the `.grad` of parameters to the gradient of a loss, [], by autograd.

    A frozen one (`requires_grad` False) gets None, so that no optimiser moves it, whether it was frozen
    before or during training.
    """
    for parameter in parameters:
        parameter.grad = None  # as `zero_grad` does, which takes longer
    trainable = [parameter for parameter in parameters if parameter.requires_grad]
    if trainable:
        # Theirs alone: a policy's loss needs the gradient through a critic, not that of its weights.
        loss.backward(inputs=trainable)


@torch.no_grad()
def _clip(parameters: list[nn.Parameter], max_norm: float) -> torch.Tensor:
    """Scales their gradients to a global norm of at most `max_norm`, in place; returns the norm before, [].

    To the bit what `torch.nn.utils.clip_grad_norm_` does, which calls each operation once for each tensor.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not gradients:
        return torch.zeros((), device=parameters[0].device)
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    share: torch.Tensor | float
    if norm.device.type == "cpu" and norm.dtype == torch.float32:
        # By the same steps. To read the norm costs nothing here, and most are small enough.
        one, size = np.float32(1.0), np.float32(norm.item())
        share = float(one / (size + np.float32(acceleration.CLIPPING_EPSILON)) * np.float32(max_norm))
        if share >= 1.0:
            return norm
    else:
        share = (max_norm / (norm + acceleration.CLIPPING_EPSILON)).clamp(max=1.0)
    torch._foreach_mul_(gradients, share)
    return norm


def _check_fits(name: str, saved: core.State, group: Group) -> None:
    """Checks the state of an optimiser to restore, of which torch itself only counts the parameters.

    Raises:
        ValueError: It is another optimiser's, or of parameters of other shapes.
    """

    def kinds(groups: Sequence[dict[str, Any]]) -> list[dict[str, type]]:
        return [{key: type(value) for key, value in group.items()} for group in groups]

    parameters = group.parameters()
    fits = kinds(saved["param_groups"]) == kinds(group.optimizer.state_dict()["param_groups"])
    for index, state in saved["state"].items():
        for key, value in state.items():
            shape = torch.Size() if key == "step" else parameters[index].shape
            fits = fits and (value is None or (isinstance(value, torch.Tensor) and value.shape == shape))
    if not fits:
        raise ValueError(f"The optimiser '{name}' must be restored from a state of its kind and shapes.")


class _Copies:
    """Copies of tensors, in the memory of the last ones while the tensors are the same."""

    def __init__(self) -> None:
        self._tensors: list[torch.Tensor] = []
        self._copies: list[torch.Tensor] = []

    @torch.no_grad()
    def take(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """Copies them; what it returned for the same ones before changes too."""
        are_same = len(tensors) == len(self._tensors) and all(map(operator.is_, tensors, self._tensors))
        if tensors and are_same:
            torch._foreach_copy_(self._copies, tensors)  # all by one call
        else:
            self._tensors, self._copies = tensors, [tensor.clone() for tensor in tensors]
        return self._copies


def _tensors(modules: Sequence[nn.Module]) -> list[torch.Tensor]:
    """The modules' own tensors, not their parts'."""
    # To ask each module for them takes longer than to copy them.
    tensors = [x for module in modules for x in (*module._parameters.values(), *module._buffers.values())]
    return [tensor for tensor in tensors if tensor is not None]


def _state_tensors(states: Sequence[Mapping[torch.Tensor, Mapping[str, Any]]]) -> list[torch.Tensor]:
    """The tensors in the state of optimisers."""
    values = [value for state in states for entry in state.values() for value in entry.values()]
    return [value for value in values if isinstance(value, torch.Tensor)]
