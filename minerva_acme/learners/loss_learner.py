"""A learner that is defined by loss functions."""

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import torch
import tree
from torch import nn

from minerva_acme import acceleration, core, counting, loggers, specs, types
from minerva_acme.learners import batches, module_learner, samples, statistics, updates
from minerva_acme.learners import parts as learner_parts
from minerva_acme.learners import ranks as learner_ranks
from minerva_acme.learners.priorities import Priorities


class Batch(NamedTuple):
    """The inputs of a loss."""

    data: Any  # as the dataset unpacked it, such as a `Transition`
    weights: torch.Tensor | float  # [B] importance of each item; 1.0 if the table is sampled uniformly
    mask: torch.Tensor | None = None  # [B, T] of sequences, 0 at steps to leave out, whose weights are 0 too
    due: frozenset[str] = frozenset()  # the names of the losses that are minimised on it
    estimates: Any = ()  # what the learner's `estimate` returned of it

    def mean(self, values: torch.Tensor) -> torch.Tensor:
        """Returns the mean of the items' values, [B], or of those of the unmasked steps, [B, T]: []."""
        if self.mask is None:
            return values.mean()
        return values.where(self.mask > 0, 0.0).sum() / self.mask.sum().clamp(min=1.0)


class Loss(NamedTuple):
    """The result of a loss function."""

    value: torch.Tensor  # []  to be minimised
    metrics: Mapping[str, Any] = {}  # for the log, without a gradient
    priorities: torch.Tensor | None = None  # [B]  new priorities of the items, >= 0; None keeps the old ones


LossFunction: TypeAlias = Callable[[Any, Batch, torch.Generator | None], Loss]
"""Computes a loss from the networks, a batch and a generator for its random numbers. The generator is None if
the loss is compiled: torch's default generator then draws the numbers that the learner's would draw."""


class Estimated(NamedTuple):
    """The result of an estimate function."""

    estimates: Any
    """What the losses get as `Batch.estimates`."""
    finite: Mapping[str, types.NestedTensor] = MappingProxyType({})
    """What must be finite beside the batch, by its name in the plural, as for `require_finite`; {} if the
    estimate has checked the batch too."""
    num_rows: Mapping[str, int] = MappingProxyType({})
    """The rows of each loss's forward pass; with several `chains`, all must be here."""


EstimateFunction: TypeAlias = Callable[[Any, Batch, torch.Generator], Estimated]
"""Computes what the losses of a batch have in common, from the networks, the batch and the generator."""


class LossLearner(module_learner.ModuleLearner):
    """Minimises one loss function after the other on each batch. A step has these stages:

        a batch -> parts, before -> estimates -> each loss that is due: one step of its optimiser
                -> target networks -> parts, after

    The networks are a named tuple of modules. Each loss trains only the module of the same name: the step
    leaves everything else that the loss depends on unchanged, and no gradient is computed for it.
    The other modules are target networks, which `update_targets` moves.

    Variables: every module by its name, a dict of arrays.

    Attributes:
        networks: The networks, as the losses get them.
        losses: The loss functions by name.
        differentiated: The same with their gradients, which they leave in `.grad`: by autograd, or compiled.
        acceleration: Which faster implementations are used.
    """

    def __init__(
        self,
        *,
        networks: Any,
        losses: Mapping[str, LossFunction],
        groups: Mapping[str, updates.Group],
        periods: Mapping[str, int] = MappingProxyType({}),
        update_targets: Callable[[Any, int], None] = lambda networks, num_steps: None,
        dataset: Iterator[Any],
        priorities: Priorities | None = None,
        max_skipped_batches: int,
        acceleration: acceleration.Acceleration,
        counter: counting.Counter,
        logger: loggers.Logger,
        generator: torch.Generator,
        ranks: learner_ranks.Ranks | None = None,
        spec: specs.EnvironmentSpec | None = None,
        estimate: EstimateFunction | None = None,
        parts: Sequence[learner_parts.Part] = (),
        chains: Sequence[Sequence[str]] = (),
        modules: Mapping[str, nn.Module] = MappingProxyType({}),
        variables: Sequence[str] = (),
        takes: samples.Kind = samples.ANY,
        trains: Mapping[str, Sequence[str]] = MappingProxyType({}),
        why_plain: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Makes the learner.

        Args:
            networks: A named tuple of modules, trained in place; with `modules`, anything that losses take.
            losses: The loss functions by the module that each trains, in the order in which they are
                minimised.
            groups: The optimiser of each module, by name.
            periods: The number of learner steps from one step of a loss to the next, 1 if a name is missing:
                with 2 the loss is minimised on every second batch.
            update_targets: The function called after each step with the networks and the number of steps
                made; by default nothing is done.
            dataset: The dataset, which yields samples with `data`, and with `info` if there are priorities;
                see `checked_samples`.
            priorities: Weighs batches and receives the priorities that losses return, or None if the table
                has no priorities.
            max_skipped_batches: The number of consecutive batches that may be skipped for non-finite values.
            acceleration: Chooses whether losses are compiled.
            counter: The counter for `steps` and `walltime`.
            logger: The logger, which receives one row per step: `loss/NAME`, `grad_norm/NAME` and the metrics
                of each loss.
            generator: The generator for the losses, on the networks' device.
            ranks: The learners that make the same steps, or None; each loss must then be a mean over items.
            spec: The environment's spec, by which the first sample is checked, or None.
            estimate: The function that computes what the losses have in common, or None.
            parts: What acts before the losses of a step and after them, in this order.
            chains: The order of the losses, in which a name may occur several times; losses of different
                chains neither use nor train what the other ones train, so they may be minimised at the same
                time. (): one chain, in the order of `losses`.
            modules: The modules to save, by name; {}: the networks.
            variables: The names of those that actors may ask for; (): all.
            takes: The kind of data that the losses take.
            trains: The names of the groups that a loss trains, if they are not the one with its name.
            why_plain: The reasons why losses cannot be compiled, by name.

        Raises:
            ValueError: A loss has no module of its name, or no group, and none that it `trains`.
            TypeError: `dataset` is not an iterator.
        """
        modules = modules or networks._asdict()
        for name in losses:
            if name not in trains and (name not in modules or name not in groups):
                raise ValueError(
                    f"Each loss must have the name of a module and of a group, got '{name}'. The modules are "
                    f"{sorted(modules)}, the groups {sorted(groups)}."
                )
        added = {name: own for part in parts for name, own in part.add_modules(modules).items()}
        super().__init__(
            modules={**modules, **added},
            variables=[*(variables or modules), *added],
            updates=updates.Updates(
                groups,
                modules=[*modules.values(), *added.values()],
                max_skipped_batches=max_skipped_batches,
                ranks=ranks,
            ),
            counter=counter,
            logger=logger,
            generator=generator,
        )
        self.networks = networks
        self.losses = losses
        self._estimate = estimate
        self._parts = parts
        for part in parts:
            part.ranks, part.require_finite = self.ranks, self.updates.require_finite
        self._chains = chains or [[*losses]]
        self.acceleration = acceleration
        self._trains = {name: trains.get(name, [name]) for name in losses}
        self._trained = {name: [groups[each] for each in own] for name, own in self._trains.items()}
        updated = [encoder for part in parts for encoder in part.updated_encoders]
        trained = {name: module for name, module in modules.items() if "target" not in name}
        statistics.warn_of_fixed_statistics(trained, updated=updated)
        parameters = [parameter for module in modules.values() for parameter in module.parameters()]
        self.differentiated = {}
        self._largest: Sequence[nn.Parameter] = []  # the parameters that one loss trains
        for name, compute in losses.items():
            own_parameters = functools.partial(_parameters, self._trained[name])
            own = set(own_parameters())
            self._largest = max(self._largest, [*own], key=lambda each: sum(map(torch.Tensor.numel, each)))
            # Chains may run at the same time, and use none of what the other ones train.
            others = [] if len(self._chains) > 1 else [each for each in parameters if each not in own]
            self.differentiated[name] = acceleration.loss(
                f"{name} loss",
                loss=compute,
                plain=functools.partial(_differentiated, name, compute, own_parameters, others),
                modules=modules.values(),
                parameters=own_parameters,
                why_plain=why_plain.get(name, ""),
            )
        self._periods = periods
        self._update_targets = update_targets
        self._takes = takes
        self._dataset = samples.checked_samples(
            dataset,
            modules=modules.values(),
            kind=takes.kind,
            layout=takes.layout,
            extras=takes.extras,
            needs_info=priorities is not None,
            spec=spec,
        )
        self._priorities = priorities
        self._last: updates.Metrics = {}  # of the last step with all losses, if they have different periods

    def step(self) -> None:
        """Minimises every loss that is due on one batch."""
        sample = next(self._dataset)
        if self._takes.kind is not None:
            samples.check_kind(sample.data, self._takes.kind, self._takes.layout)
        weights: torch.Tensor | float = 1.0
        if self._priorities is not None:
            weights = self._priorities.weights(sample.info, self.num_steps).to(self.generator.device)
        due = frozenset(
            name for name in self.losses if (self.num_steps + 1) % self._periods.get(name, 1) == 0
        )
        with (
            self.acceleration.step(self._largest, self.step_rows(sample.data)),
            self.updates.guarded(self.num_steps, sample.data) as metrics,
        ):
            batch = Batch(sample.data, weights, due=due)
            for part in self._parts:
                part.before(batch, self.num_steps)
            found = Estimated(())
            if self._estimate is not None:
                found = self._estimate(self.networks, batch, self.generator)
            if found.finite or self._estimate is None:  # together, since a GPU is read once for it
                self.updates.require_finite({**batches.checked_fields(sample.data), **found.finite})
            metrics |= self._last  # which the losses that are due replace
            new_priorities = None
            batch = batch._replace(estimates=found.estimates)
            for name, loss in self.minimise(batch, found.num_rows):
                metrics |= {f"loss/{name}": loss.value.detach(), **loss.metrics}
                new_priorities = new_priorities if loss.priorities is None else loss.priorities
            if self._priorities is not None and new_priorities is not None:
                self._priorities.update(sample.info, new_priorities)
            self._update_targets(self.networks, self.num_steps + 1)
            for part in self._parts:
                part.after(batch, metrics, self.num_steps)
        if len(due) == len(self.losses) and max(self._periods.values(), default=1) > 1:
            self._last = {name: value for name, value in metrics.items() if name != "skipped_batches"}
        self.finish_step(metrics)

    def step_rows(self, data: Any) -> int:
        """Returns the rows of a loss's forward pass on a batch: its items times their steps.

        By it a step is small, and made by one thread, or large.
        """
        discount = getattr(data, "discount", None)
        return len(tree.flatten(data)[0]) if discount is None else discount.numel()

    def minimise(self, batch: Batch, num_rows: Mapping[str, int]) -> Sequence[tuple[str, Loss]]:
        """Makes the gradient steps of all losses that are due, one for each place in the chains.

        Args:
            batch: The batch, with the names of the losses and the estimates.
            num_rows: The rows of the losses' forward passes, by name, if there are several chains.

        Returns:
            The losses by name, in order, with the norms of their gradients among the metrics.
        """
        chains = [[name for name in chain if name in batch.due] for chain in self._chains]
        chains = [chain for chain in chains if chain]

        def run(chain: Sequence[str]) -> list[tuple[str, Loss]]:
            found = []
            for name in chain:
                loss = self.differentiated[name](self.networks, batch, self.generator)
                norms = {f"grad_norm/{each}": self.updates.descend(each) for each in self._trains[name]}
                found.append((name, loss._replace(metrics={**loss.metrics, **norms})))
            return found

        if len(chains) < 2:
            return run([name for chain in chains for name in chain])
        every = [
            (
                functools.partial(run, chain),
                [each for name in {*chain} for each in _parameters(self._trained[name])],
                max(num_rows[name] for name in chain),
            )
            for chain in chains
        ]
        in_order = self.ranks is not None
        return [each for chain in self.acceleration.side_by_side(*every, in_order=in_order) for each in chain]

    def save(self) -> core.State:
        state = super().save()
        if ways := {name: way for name, loss in self.differentiated.items() if (way := loss.save())}:
            state["ways"] = ways
        if self._last:
            state["improved"] = {name: torch.as_tensor(value) for name, value in self._last.items()}
        return state

    def restore(self, state: core.State) -> None:
        super().restore(state)
        for name, loss in self.differentiated.items():
            loss.restore(state.get("ways", {}).get(name, ""))
        self._last = state.get("improved", {})
        for part in self._parts:
            part.restored()


def _parameters(groups: Sequence[updates.Group]) -> list[nn.Parameter]:
    """Returns the parameters of groups as they are now: some may have been added."""
    return [*itertools.chain.from_iterable(group.parameters() for group in groups)]


def _differentiated(
    name: str,
    compute: LossFunction,
    parameters: Callable[[], list[nn.Parameter]],
    others: Sequence[nn.Parameter],
    nets: Any,
    batch: Batch,
    generator: torch.Generator | None,
) -> Loss:
    """Computes a loss by autograd, and leaves the gradients of the trained parameters in their `.grad`."""
    trained = parameters()
    with _without_gradient(others):
        loss = compute(nets, batch, generator)
        _check_loss(name, loss, trained)
        # Within the block: layers that are computed again for their gradient must be what they were.
        updates.differentiate(loss.value, trained)
    return loss


def _check_loss(name: str, loss: Any, parameters: Sequence[nn.Parameter]) -> None:
    """Checks what a loss function returned.

    Raises:
        TypeError: It is no `Loss`.
        ValueError: Its value cannot be minimised.
    """
    is_loss = hasattr(loss, "value") and hasattr(loss, "metrics")
    if not is_loss or not isinstance(loss.value, torch.Tensor):
        found = f"one of a {type(loss.value).__name__}" if is_loss else type(loss).__name__
        raise TypeError(
            f"The loss '{name}' must return a `learners.Loss` of a tensor, got {found}. Write return "
            "learners.Loss(value, metrics)."
        )
    if loss.value.numel() != 1:
        raise ValueError(
            f"The value of the loss '{name}' must be one number, got the shape {list(loss.value.shape)}. "
            "Return the mean over the batch: learners.Loss(batch.mean(values))."
        )
    if not loss.value.requires_grad and any(p.requires_grad for p in parameters):
        raise ValueError(
            f"The value of the loss '{name}' must depend on what it trains, got one without a gradient. "
            "Compute it without detach() and outside of torch.no_grad()."
        )


@contextlib.contextmanager
def _without_gradient(parameters: Sequence[nn.Parameter]) -> Iterator[None]:
    """Sets `requires_grad` of parameters to False within the block: their gradients would be wasted work."""
    # Checked each time: some may have been frozen, or unfrozen, since the last step.
    trainable = [parameter for parameter in parameters if parameter.requires_grad]
    for parameter in trainable:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trainable:
            parameter.requires_grad_(True)
