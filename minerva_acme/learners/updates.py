"""Gradient steps of a learner, each made as a whole or not at all."""

import contextlib
import copy
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from minerva_acme import acceleration, core, types
from minerva_acme.learners import finite, optimizers, turns
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
    """Makes gradient steps, each as a whole or not at all, and skips batches that turn out not to be finite.

        with updates.guarded(step, batch) as metrics:
            updates.require_finite({"targets": targets})      # before the first change
            metrics["norm"] = updates.minimise("critic", loss)

    If something in the block raises `NonFinite`, the block ends there. If the norm of a gradient is not
    finite or beyond `finite.LARGEST`, its optimiser makes no step, and the block continues. In both cases the
    batch is counted as skipped, and the buffers of all modules, such as running statistics, return to their
    values before the block. Steps that other losses have made on the same batch stay.

    A GPU decides this itself if all optimisers are torch's fused Adam, and the host does not wait for it: the
    block runs to its end, its optimisers make no step, and target networks move. The metrics are those of the
    batch, `skipped_batches` among them. Every 100th step the host looks, warns, and raises.

    Other threads read between steps:

        with updates.reading():
            weight = module.weight.detach().clone()

    Attributes:
        groups: The groups by name.
        ranks: The learners that make the same steps, or None if there is one.
        is_ahead: Whether the last step is made but not counted yet, by `completing`.
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
            modules: All modules with buffers that a step changes, such as running statistics.
            max_skipped_batches: The number of consecutive batches that may be skipped; one more is an error.
            ranks: The learners that make the same steps, each from its share of the batch: gradients are
                averaged before they are clipped, and all skip a batch that is not finite for one of them.
                None if there is one learner.
        """
        self.ranks = ranks
        self.is_ahead = False
        self.groups = groups
        self._modules = modules
        self._max_skipped = max_skipped_batches
        self._num_skipped = 0
        self._num_skipped_in_a_row = 0
        self._bad: list[finite.NonFinite] = []  # of the gradients in a block
        self._judged: list[finite.Sizes] = []  # of what a GPU has judged in a block
        self._is_fit: torch.Tensor | None = None  # [] whether what the block has started from is finite
        # What the host has not seen yet: skipped batches, those in a row until now, the most in a row: [3].
        self._unseen: torch.Tensor | None = None
        self._largest: dict[tuple[str, ...], torch.Tensor] = {}  # of all that was judged, [n], by its names
        self._turns = turns.Turns()

    def require_finite(self, tensors: Mapping[str, types.NestedTensor]) -> None:
        """Checks what a step starts from, as `finite.require_finite`, without waiting for a GPU if it can."""
        sizes = finite.sizes(tensors)
        if sizes is None:
            return
        every = self.groups.values()
        if self.ranks is None and all(_decides_itself(group.optimizer, sizes.values) for group in every):
            self._judged.append(sizes)
            is_fit = sizes.are_finite()
            self._is_fit = is_fit if self._is_fit is None else self._is_fit & is_fit
        else:
            sizes.check()

    def minimise(self, name: str, loss: torch.Tensor) -> torch.Tensor:
        """Makes one gradient step of a group, by autograd: `differentiate` and `descend`.

        Args:
            name: The group's name.
            loss: The loss to minimise, [].

        Returns:
            The norm of the gradient before clipping, [].
        """
        differentiate(loss, self.groups[name].parameters())
        return self.descend(name)

    def descend(self, name: str) -> torch.Tensor:
        """Makes one step of a group along the gradients in `.grad` of its parameters, clipped by global norm.

        It makes none if the norm is not finite.

        Args:
            name: The group's name.

        Returns:
            The norm of the gradient before clipping, [].
        """
        group = self.groups[name]
        if self.ranks is not None:
            gradients = [parameter.grad for parameter in group.parameters()]
            self.ranks.average_([gradient for gradient in gradients if gradient is not None])
        norm = _clip(group.parameters(), group.max_norm)
        sizes = finite.Sizes([f"gradients of the {name}"], norm.view(1))
        if _decides_itself(group.optimizer, norm):
            self._judged.append(sizes)
            may_step = sizes.are_finite()
            _step_if(group.optimizer, may_step if self._is_fit is None else may_step & self._is_fit)
            return norm
        try:
            sizes.check()
        except finite.NonFinite as error:
            self._bad.append(error)
        else:
            group.optimizer.step()
        return norm

    @contextlib.contextmanager
    def guarded(self, learner_step: int, batch: types.NestedTensor = ()) -> Iterator[Metrics]:
        """Makes the steps within the block, unless they turn out not to be finite.

        Other threads read the modules before or after the block. So it must not wait for anything that they
        do, such as writing data.

        Args:
            learner_step: The number of the learner step, for the log.
            batch: The batch to learn from; if it is skipped, the message names the field that caused it.

        Yields:
            Metrics to fill. At the end they hold `skipped_batches`, and nothing else if the host has skipped
            the batch.

        Raises:
            FloatingPointError: At the end, if too many consecutive batches were skipped.
        """
        metrics: Metrics = {}
        with self._turns.take():
            self._bad.clear()
            self._judged.clear()
            self._is_fit = None
            buffers = _buffers(self._modules)
            before = [buffer.clone() for buffer in buffers]
            try:
                yield metrics
                if self._bad:
                    raise self._bad[0]
                judged = finite.together(self._judged) if self._judged else None
                if self.ranks is not None:
                    if judged is not None:
                        judged.check()
                    self.ranks.agree()
                if self.ranks is None and judged is not None:
                    is_whole = self._note(judged)
                    for buffer, value in zip(buffers, before, strict=True):
                        torch.where(is_whole, buffer, value, out=buffer)
                else:
                    self._num_skipped_in_a_row = 0
            except finite.NonFinite as error:
                is_elsewhere = isinstance(error, learner_ranks.NonFiniteElsewhere)
                if self.ranks is not None and not is_elsewhere:
                    self.ranks.agree(False)
                for buffer, value in zip(buffers, before, strict=True):
                    buffer.copy_(value)
                metrics.clear()
                blame = "" if is_elsewhere else finite.describe_largest(batch)
                self._skip(learner_step, f"{error}{blame}")
            self.is_ahead = True
            if self._unseen is not None and learner_step % finite.READ_PERIOD == 0:
                self._look()
        metrics["skipped_batches"] = self._num_skipped
        if self._unseen is not None:
            metrics["skipped_batches"] = self._unseen[0] + self._num_skipped

    def reading(self) -> contextlib.AbstractContextManager[None]:
        """Lets a thread read modules: within the block no step begins; it waits for one in progress."""
        return self._turns.take()

    @contextlib.contextmanager
    def completing(self) -> Iterator[None]:
        """Within the block, the end of a step is counted, or modules are changed outside of a step."""
        with self._turns.take():
            self.is_ahead = False
            yield

    def _note(self, judged: finite.Sizes) -> torch.Tensor:
        """Notes, on the device, whether all that it has judged in a block is finite, [], and returns that."""
        names, is_whole = tuple(judged.names), judged.are_finite()
        self._largest[names] = torch.maximum(judged.values, self._largest.get(names, judged.values))
        if self._unseen is None:
            in_a_row = self._num_skipped_in_a_row
            self._unseen = torch.tensor([0, in_a_row, in_a_row], device=is_whole.device)
        num, in_a_row, most = self._unseen
        in_a_row = (in_a_row + 1) * ~is_whole
        self._unseen = torch.stack([num + ~is_whole, in_a_row, torch.maximum(most, in_a_row)])
        return is_whole

    def _look(self) -> None:
        """Reads what a device has noted, warns, and raises if it has skipped too many batches in a row."""
        if self._unseen is None:
            return
        names = [name for names in self._largest for name in names]
        num, in_a_row, most, *sizes = finite.read(torch.cat([self._unseen, *self._largest.values()]))
        self._unseen = None
        self._largest.clear()
        self._num_skipped += int(num)
        self._num_skipped_in_a_row = int(in_a_row)
        try:
            finite.check(names, sizes)
        except finite.NonFinite as error:
            self._report(
                f"{num:.0f} of the last {finite.READ_PERIOD} learner steps", int(num), f"{error}", int(most)
            )

    def _skip(self, learner_step: int, reason: str) -> None:
        self._look()
        self._num_skipped += 1
        self._num_skipped_in_a_row += 1
        self._report(f"learner step {learner_step}", 1, reason, self._num_skipped_in_a_row)

    def _report(self, steps: str, num: int, reason: str, num_in_a_row: int) -> None:
        is_first = self._num_skipped == num
        _logger.warning("%s skipped: %s%s", steps, reason, f". {finite.WAY_OUT}" * is_first)
        if num_in_a_row > self._max_skipped:
            raise FloatingPointError(
                f"{reason}, {num_in_a_row} learner steps in a row "
                f"(`max_skipped_batches` is {self._max_skipped}). Training has diverged: lower the learning "
                f"rates. {finite.WAY_OUT}"
            )

    def save(self) -> core.State:
        self._look()
        state: dict[str, Any] = {
            "optimizers": {name: group.optimizer.state_dict() for name, group in self.groups.items()},
            "skipped": [self._num_skipped, self._num_skipped_in_a_row],
        }
        if schedulers := {
            name: optimizers.save_schedulers(found)
            for name, group in self.groups.items()
            if (found := optimizers.schedulers_of(group.optimizer))
        }:
            state["schedulers"] = schedulers
        return state

    def restore(self, state: core.State) -> None:
        for name, group in self.groups.items():
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
        self._unseen = None
        self._largest.clear()
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


def _decides_itself(optimizer: torch.optim.Optimizer, norm: torch.Tensor) -> bool:
    """Returns whether an optimiser can leave out a step on its device, so that the host need not wait.

    Torch's fused Adam can. With hooks it would take a step that is not made for one.
    """
    return (
        not finite.is_read_at_once(norm)
        and type(optimizer) in (torch.optim.Adam, torch.optim.AdamW)
        and all(group["fused"] for group in optimizer.param_groups)
        and not optimizer._optimizer_step_post_hooks
    )


def _step_if(optimizer: Any, may_step: torch.Tensor) -> None:
    """Makes the step of an optimiser that decides itself, if a bool on its device, [], is True."""
    optimizer.found_inf = (~may_step).float()
    try:
        optimizer.step()
    finally:
        del optimizer.found_inf


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
    if finite.is_read_at_once(norm):
        # The same computation, and most norms are small enough.
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


def _buffers(modules: Sequence[nn.Module]) -> list[torch.Tensor]:
    """Returns the buffers of modules and of their parts as they are now."""
    found: list[torch.Tensor | None] = []
    left: list[nn.Module | None] = [*modules]
    for module in left:  # which grows; `nn.Module.buffers` takes several times as long
        if module is not None:
            found += module._buffers.values()
            left += module._modules.values()
    return [buffer for buffer in found if buffer is not None]
