"""A learner made of loss functions."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import nn

from minerva_acme import acceleration, core, counting, loggers
from minerva_acme.learners import batches, finite, module_learner, samples, updates
from minerva_acme.learners.priorities import Priorities


class Batch(NamedTuple):
    """What a loss is computed from."""

    data: Any  # what the dataset unpacked, such as a `Transition`
    weights: torch.Tensor | float  # [B] importance of each item; 1.0 where the table is drawn uniformly


class Loss(NamedTuple):
    """What a loss function returns."""

    value: torch.Tensor  # []  to be minimised
    metrics: Mapping[str, Any] = {}  # for the log, without a gradient
    priorities: torch.Tensor | None = None  # [B]  new ones of the batch's items, >= 0; None: they stay


LossFunction: TypeAlias = Callable[[Any, Batch, torch.Generator | None], Loss]
"""Computes a loss from the networks, a batch and a generator for what it draws. The generator is None where
the loss is compiled: then torch's default generator draws what the learner's would."""


class LossLearner(module_learner.ModuleLearner):
    """Minimises one loss function after the other on each batch.

    The networks are a named tuple of modules. The loss of each name trains the module of the same name, and
    that alone: what else it depends on gets no step from it, and requires no gradient while it is computed.
    The other modules are target networks, moved by `update_targets`.

    Variables: every module by its name, a dict of arrays.
    """

    def __init__(
        self,
        *,
        networks: Any,
        losses: Mapping[str, LossFunction],
        groups: Mapping[str, updates.Group],
        periods: Mapping[str, int],
        update_targets: Callable[[Any, int], None],
        dataset: Iterator[Any],
        priorities: Priorities | None,
        max_skipped_batches: int,
        acceleration: acceleration.Acceleration,
        counter: counting.Counter,
        logger: loggers.Logger,
        generator: torch.Generator,
    ) -> None:
        """Makes the learner.

        Args:
            networks: a named tuple of modules, trained in place.
            losses: by the module that each trains, in the order in which they are minimised.
            groups: the optimiser of each.
            periods: learner steps from one step of a loss to the next, 1 where a name is missing: with 2 it
                is minimised on every second batch.
            update_targets: called after each step with the networks and the number of steps made.
            dataset: Yields samples with `data`, and with `info` where there are priorities; see
                `checked_samples`.
            priorities: weighs batches and takes the priorities that losses return; None: the table has none.
            max_skipped_batches: batches in a row that may be skipped for non-finite values.
            acceleration: Chooses whether losses are compiled.
            counter: counts `steps` and `walltime`.
            logger: receives a row a step: `loss/NAME` and `grad_norm/NAME` of each loss, and its metrics.
            generator: on the networks' device, for the losses.

        Raises:
            ValueError: A loss has no module of its name, or no group.
            TypeError: `dataset` is no iterator.
        """
        modules = networks._asdict()
        for name in losses:
            if name not in modules or name not in groups:
                raise ValueError(
                    f"Each loss must have the name of a module and of a group, got '{name}'; there are the "
                    f"modules {sorted(modules)} and the groups {sorted(groups)}."
                )
        super().__init__(
            modules=modules,
            variables=[*modules],
            updates=updates.Updates(
                groups, modules=[*modules.values()], max_skipped_batches=max_skipped_batches
            ),
            counter=counter,
            logger=logger,
            generator=generator,
        )
        self._networks = networks
        parameters = [parameter for module in modules.values() for parameter in module.parameters()]
        self._losses = {}
        for name, compute in losses.items():
            own = set(groups[name].parameters())
            others = [parameter for parameter in parameters if parameter not in own]
            self._losses[name] = acceleration.loss(
                f"{name} loss",
                loss=compute,
                plain=functools.partial(_differentiated, compute, groups[name], others),
                modules=modules.values(),
                parameters=groups[name].parameters,
            )
        self._periods = periods
        self._update_targets = update_targets
        self._dataset = samples.checked_samples(
            dataset,
            modules=modules.values(),
            needs_info=priorities is not None,
        )
        self._priorities = priorities

    def step(self) -> None:
        """Minimises every loss that is due on one batch, then moves the targets."""
        sample = next(self._dataset)
        weights: torch.Tensor | float = 1.0
        if self._priorities is not None:
            weights = self._priorities.weights(sample.info, self.num_steps).to(self.generator.device)
        batch = Batch(sample.data, weights)
        with self.updates.whole_or_nothing(self.num_steps, sample.data) as metrics:
            finite.require_finite(batches.checked_fields(sample.data))
            new_priorities = None
            for name, compute in self._losses.items():
                if (self.num_steps + 1) % self._periods.get(name, 1):
                    continue
                loss = compute(self._networks, batch, self.generator)
                metrics |= {f"loss/{name}": loss.value.detach(), **loss.metrics}
                metrics[f"grad_norm/{name}"] = self.updates.descend(name)
                new_priorities = new_priorities if loss.priorities is None else loss.priorities
            if self._priorities is not None and new_priorities is not None:
                self._priorities.update(sample.info, new_priorities)
            self._update_targets(self._networks, self.num_steps + 1)
        self.finish_step(metrics)

    def save(self) -> core.State:
        ways = {name: loss.save() for name, loss in self._losses.items()}
        return {**super().save(), **({"ways": ways} if any(ways.values()) else {})}

    def restore(self, state: core.State) -> None:
        super().restore(state)
        for name, loss in self._losses.items():
            loss.restore(state.get("ways", {}).get(name, ""))


def _differentiated(
    compute: LossFunction,
    group: updates.Group,
    others: Sequence[nn.Parameter],
    nets: Any,
    batch: Batch,
    generator: torch.Generator | None,
) -> Loss:
    """Computes a loss, with the gradients of what it trains in their `.grad`, by autograd."""
    with _without_gradient(others):
        loss = compute(nets, batch, generator)
    updates.differentiate(loss.value, group.parameters())
    return loss


@contextlib.contextmanager
def _without_gradient(parameters: Sequence[nn.Parameter]) -> Iterator[None]:
    """Lets parameters require no gradient for a while: the products for it would be wasted."""
    # Asked each time: some may have been frozen, or unfrozen, since the last step.
    trainable = [parameter for parameter in parameters if parameter.requires_grad]
    for parameter in trainable:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trainable:
            parameter.requires_grad_(True)
