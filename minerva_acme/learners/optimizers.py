"""Optimisers for the parameter groups that the losses train."""

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeAlias

import torch
from torch import nn

from minerva_acme import acceleration
from minerva_acme.learners import parts

ParameterGroups: TypeAlias = list[dict[str, Any]]
"""The argument of every torch optimiser: [{"params": [...], "lr": 1e-3}], each with a learning rate and,
optionally, a `weight_decay`."""

OptimizerFactory: TypeAlias = Callable[[str, ParameterGroups], torch.optim.Optimizer]
"""Makes the optimiser of the named part, such as "policy"; see `AgentBuilder.make_optimizer`."""


def parameter_groups(
    parameters: Iterable[nn.Parameter], learning_rate: float, weight_decay: float = 0.0
) -> ParameterGroups:
    """Returns the groups of an optimiser: two if weights decay, parameters of one axis do not."""
    parameters = [*parameters]
    if not weight_decay:
        return [{"params": parameters, "lr": learning_rate}]
    decayed = [parameter for parameter in parameters if parameter.ndim > 1]
    others = [parameter for parameter in parameters if parameter.ndim <= 1]
    groups = [(decayed, weight_decay), (others, 0.0)]
    return [{"params": own, "lr": learning_rate, "weight_decay": decay} for own, decay in groups if own]


def make_optimizer(
    groups: ParameterGroups,
    *,
    kind: Literal["adam", "sgd"] = "adam",
    adam_epsilon: float = 1e-8,
    sgd_momentum: float = 0.0,
) -> torch.optim.Optimizer:
    """Makes Adam or SGD, with torch's fused kernels if the parameters' device has them.

    The kernels take memory as it lies, so that all parameters must be contiguous. With a slice of a wider
    tensor among them, the steps are torch's own.

    On a CPU, Adam and AdamW come from `acceleration`: torch's own, without the import of its compiler.

    With weight decay, Adam is AdamW (Loshchilov and Hutter 2019, "Decoupled weight decay regularization"): a
    step shrinks a weight by its learning rate times the decay, whatever its gradient.

    Args:
        groups: The groups of parameters, each with its learning rate and its `weight_decay`, 0 if left out.
        kind: The kind of optimiser.
        adam_epsilon: Adam's epsilon.
        sgd_momentum: SGD's momentum.
    """
    device = groups[0]["params"][0].device.type
    fused = device in ("cpu", "cuda")
    fused &= all(parameter.is_contiguous() for group in groups for parameter in group["params"])
    if kind == "adam":
        decays = any(group.get("weight_decay") for group in groups)
        if device == "cpu":
            direct = acceleration.AdamW if decays else acceleration.Adam
            return direct(groups, eps=adam_epsilon, fused=fused)
        adam = torch.optim.AdamW if decays else torch.optim.Adam
        return adam(groups, eps=adam_epsilon, weight_decay=0.0, fused=fused)  # AdamW's own default is not 0
    return torch.optim.SGD(groups, momentum=sgd_momentum, fused=fused)


OF_SCHEDULER = "initial_lr"
"""The key that torch's schedulers add to a parameter group."""

_SCHEDULERS = "_minerva_schedulers"  # the attribute of an optimiser that holds its schedulers


def scheduled(
    optimizer: torch.optim.Optimizer, *schedulers: torch.optim.lr_scheduler.LRScheduler
) -> torch.optim.Optimizer:
    """Steps schedulers after each step of their optimiser, and has them saved and restored with it.

        def make_optimizer(self, name, parameters):
            optimizer = torch.optim.Adam(parameters)
            schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10_000)
            return learners.scheduled(optimizer, schedule)

    A batch that is skipped, see `Updates`, moves no scheduler. Torch's optimisers do not know their
    schedulers, so those that are not given to this function start from the beginning when a run is resumed.

    Args:
        optimizer: The optimiser.
        *schedulers: Torch's schedulers of this optimiser, which nothing else may step.

    Returns:
        The optimiser.

    Raises:
        ValueError: A scheduler is of another optimiser, or needs a metric to step.
    """
    for scheduler in schedulers:
        name = type(scheduler).__name__
        if getattr(scheduler, "optimizer", None) is not optimizer:
            raise ValueError(f"`schedulers` must be schedulers of this optimiser, got {name} of another one.")
        if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
            raise ValueError(
                f"`schedulers` must step without a metric, got {name}. Set the rates of the groups in a "
                "learner of your own, or take a schedule of the steps."
            )
    found = schedulers_of(optimizer)

    def step_all(*_: Any) -> None:
        for scheduler in found:
            scheduler.step()

    if not found:
        setattr(optimizer, _SCHEDULERS, found)
        optimizer.register_step_post_hook(step_all)
    found += schedulers
    return optimizer


def schedulers_of(optimizer: torch.optim.Optimizer) -> list[torch.optim.lr_scheduler.LRScheduler]:
    """Returns the schedulers that `scheduled` has attached to an optimiser."""
    return getattr(optimizer, _SCHEDULERS, [])


def save_schedulers(schedulers: Sequence[torch.optim.lr_scheduler.LRScheduler]) -> list[dict[str, Any]]:
    """Returns copies of where schedulers are, for `restore_schedulers`."""
    return [copy.deepcopy(each.state_dict()) for each in schedulers]


def restore_schedulers(
    name: str,
    schedulers: Sequence[torch.optim.lr_scheduler.LRScheduler],
    states: Sequence[dict[str, Any]] | None,
) -> None:
    """Sets the schedulers of the optimiser `name` to where they were, as saved in a checkpoint.

    Raises:
        ValueError: The checkpoint holds none, or those of other schedulers.
    """
    found = None if states is None else [sorted(state) for state in states]
    expected = [sorted(each.state_dict()) for each in schedulers] or None
    if found != expected:
        raise ValueError(
            f"The state to restore for the schedulers of the optimiser '{name}' must come from the same "
            f"ones, {[type(each).__name__ for each in schedulers]}, got {found or 'none'}. Make them as the "
            "saved run did, or start a new run `from_run`."
        )
    for scheduler, state in zip(schedulers, states or [], strict=True):
        scheduler.load_state_dict(copy.deepcopy(state))


SHARE = "decayed_to"
"""The key of a parameter group for the share of its initial rate that the last step had."""


class LinearDecay(parts.Part):
    """Decays learning rates linearly over a run, or leaves them alone.

    You may set a rate during the run, or add a group: the rate counts from the next step on, and decays in
    proportion. A scheduler that sets the rates before every step replaces this decay.
    """

    def __init__(
        self,
        *optimizers: torch.optim.Optimizer,
        final_share: float,
        share_done: Callable[[int], float] | None,
    ) -> None:
        """Records the initial rates of the optimisers.

        Args:
            *optimizers: The optimisers, at least one.
            final_share: The share of each rate that is left at the end of the run; 1 keeps the rates
                constant.
            share_done: The share of the run that is done after a number of learner steps; with None the
                rates stay constant.
        """
        self._optimizers = optimizers
        self._final_share = final_share
        self._share_done = None if final_share == 1.0 else share_done
        self._first_rates: list[list[float]] = [[] for _ in optimizers]
        if self._share_done is not None:
            self._note_new_groups(1.0)

    def before(self, batch: Any, num_steps: int) -> None:
        self.set(num_steps)

    def set(self, step: int) -> float:
        """Sets the rates of the next step, after `step` learner steps; returns the first group's rate."""
        if self._share_done is not None:
            left = 1.0 - (1.0 - self._final_share) * self._share_done(step)
            self._note_new_groups(left or 1.0)
            for optimizer, rates in zip(self._optimizers, self._first_rates, strict=True):
                for group, first_rate in zip(optimizer.param_groups, rates, strict=True):
                    share = group.get(SHARE)  # None in a checkpoint of an older version
                    if share == 0.0 and group["lr"] != 0.0:  # set after the end, for the steps that follow
                        continue
                    if share and group["lr"] != share * first_rate:  # set since the last step
                        first_rate = group["lr"] / share
                    group["lr"], group[SHARE] = left * first_rate, left
        rate: float = self._optimizers[0].param_groups[0]["lr"]
        return rate

    def _note_new_groups(self, share: float) -> None:
        """Records the rates of groups that were added, as what is left of them after a decay to `share`."""
        for optimizer, rates in zip(self._optimizers, self._first_rates, strict=True):
            for group in optimizer.param_groups[len(rates) :]:
                rates.append(group["lr"] / share)
                group[SHARE] = share
