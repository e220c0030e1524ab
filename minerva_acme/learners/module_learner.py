"""A learner of modules, with all methods of `core.Learner` except `step`."""

import copy
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from minerva_acme import core, counting, loggers, types
from minerva_acme.learners import ranks as learner_ranks
from minerva_acme.learners import updates
from minerva_acme.machine import generators

_CHECK_PERIOD = 100  # learner steps between checks that all learners have the same networks


class ModuleLearner(core.Learner):
    """Serves, saves and restores named modules. A subclass defines `step` and ends it with `finish_step`.

        def step(self):
            batch = next(self.dataset).data
            with self.updates.guarded(self.num_steps, batch) as metrics:
                metrics["grad_norm"] = self.updates.minimise("network", self.loss(batch))
            self.finish_step(metrics)

    Variables are the state dicts of modules, as numpy arrays. `get_variables` and `poll_variables` may be
    called from any thread at any time, and return the state after a completed step. For this reason a step
    may change modules only within `updates.guarded`, and wait for data only outside of it.

    Attributes:
        updates: The object that makes the gradient steps in `step`.
        generator: The generator for random numbers in `step`, on the device of the modules; it is saved with
            the learner.
        num_steps: The number of completed steps, including those before a restore; `finish_step` counts them.
    """

    def __init__(
        self,
        *,
        modules: Mapping[str, nn.Module],
        variables: Sequence[str],
        updates: updates.Updates,
        counter: counting.Counter,
        logger: loggers.Logger,
        generator: torch.Generator,
    ) -> None:
        """Makes the learner.

        Args:
            modules: Everything with parameters or buffers that a checkpoint holds, by name.
            variables: The names of the modules that `get_variables` serves.
            updates: The object that makes the gradient steps; it is saved too.
            counter: The counter for `steps` and `walltime`, in seconds.
            logger: The logger, which receives one row per step.
            generator: The generator for the learner's random numbers; it is saved too.
        """
        self._modules = modules
        self._variables = variables
        self.updates = updates
        self._counter = counter
        self._logger = logger
        self.generator = generator
        self.num_steps = 0
        self._last_time = time.monotonic()
        self._checks_ranks = True
        self._answers: dict[tuple[str, ...], core.VersionedVariables] = {}  # to readers, by the names
        if self.ranks is not None:
            self.ranks.spread(generator)

    @property
    def ranks(self) -> learner_ranks.Ranks | None:
        """The learners that make the same steps, each from its share of a batch, or None if there is one."""
        return self.updates.ranks

    def finish_step(self, metrics: Mapping[str, Any]) -> None:
        """Ends a step: counts it, makes its changes visible to readers, and logs its metrics with the counts.

        Args:
            metrics: The step's row for the log, as filled by `updates.guarded`.
        """
        with self.updates.completing():
            self.num_steps += 1
            for names in self._answers:
                self._answers[names] = self._copied(names)
        if self.ranks is not None and (self._checks_ranks or self.num_steps % _CHECK_PERIOD == 0):
            self._checks_ranks = False
            tensors = [x for module in self._modules.values() for x in module.state_dict().values()]
            self.ranks.check_same(tensors)
        now = time.monotonic()
        counts = self._counter.increment(steps=1, walltime=now - self._last_time)
        self._last_time = now
        self._logger.write({**counts, **metrics})

    def get_variables(self, names: Sequence[str]) -> list[types.NestedArray]:
        return self._read(names).values

    def poll_variables(
        self, names: Sequence[str], newer_than: int | None = None
    ) -> core.VersionedVariables | None:
        return None if newer_than == self.num_steps else self._read(names)

    def _read(self, names: Sequence[str]) -> core.VersionedVariables:
        unknown = sorted(set(names) - set(self._variables))
        if unknown:
            raise KeyError(f"Unknown variables {unknown}; there are {sorted(self._variables)}.")
        # With several learners, a step waits for the others, which may be waiting for data from this caller.
        if answer := self._answers.get(tuple(names)):
            return copy.deepcopy(answer)
        with self.updates.reading():
            answer = self._copied(names)
            if self.ranks is not None:
                self._answers[tuple(names)] = copy.deepcopy(answer)
            return answer

    def _copied(self, names: Sequence[str]) -> core.VersionedVariables:
        values: list[types.NestedArray] = [
            {
                key: value.numpy(force=True).copy()
                for key, value in self._modules[name].state_dict(keep_vars=True).items()
            }
            for name in names
        ]
        return core.VersionedVariables(self.num_steps + self.updates.is_ahead, values)

    def save(self) -> core.State:
        state = {
            "modules": {name: module.state_dict() for name, module in self._modules.items()},
            "updates": self.updates.save(),
            "generator": self.generator.get_state(),
            "num_steps": self.num_steps,
        }
        return _copied(state, {})

    def restore(self, state: core.State) -> None:
        with self.updates.completing():
            for name, module in self._modules.items():
                module.load_state_dict(state["modules"][name])
            self.num_steps = state["num_steps"]
            self._answers.clear()
        self.updates.restore(state["updates"])
        generators.restore(self.generator, state["generator"])
        if self.ranks is not None:
            self.ranks.spread(self.generator)


def _copied(nest: Any, seen: dict[Any, torch.Tensor]) -> Any:
    """A copy of a state: as `copy.deepcopy` makes it, in a fifth of the time.

    Args:
        nest: Dicts and lists of tensors and of anything else.
        seen: The copies of tensors so far, by where these lie: what modules share stays one tensor.
    """
    if type(nest) is torch.Tensor:
        place = (nest.device, nest.data_ptr(), nest.shape, nest.stride(), nest.dtype)
        if place not in seen:
            seen[place] = nest.detach().clone()
        return seen[place]
    if isinstance(nest, dict):
        copied = copy.copy(nest)  # of its class, with its attributes: a state dict has versions there
        copied.update((key, _copied(value, seen)) for key, value in nest.items())
        return copied
    if isinstance(nest, list):
        return [_copied(value, seen) for value in nest]
    return copy.deepcopy(nest)
