"""A learner of modules: all of `core.Learner` but `step`."""

import copy
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from minerva_acme import core, counting, loggers, types
from minerva_acme.learners import updates


class ModuleLearner(core.Learner):
    """Serves, saves and restores named modules. A subclass defines `step` and ends it with `_finish_step`.

    Variables are the state dicts of modules, as numpy arrays. `get_variables` and `poll_variables` may be
    called by any thread at any time, and give what the last completed step left, for which they never wait.
    For that a step changes modules only within `Updates.whole_or_nothing`, or after `Updates.keep`.
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
            modules: everything with parameters or buffers that a checkpoint holds, by name.
            variables: the modules that `get_variables` knows.
            updates: makes the gradient steps; saved too.
            counter: counts `steps` and `walltime`, in seconds.
            logger: receives a row a step.
            generator: of what the learner draws; saved too.
        """
        self._modules = modules
        self._variables = variables
        self._updates = updates
        self._counter = counter
        self._logger = logger
        self._generator = generator
        self._num_steps = 0
        self._last_time = time.monotonic()

    def _finish_step(self, metrics: Mapping[str, Any]) -> None:
        """Counts a step and logs its metrics beside the counts."""
        with self._updates.completing():
            self._num_steps += 1
        now = time.monotonic()
        counts = self._counter.increment(steps=1, walltime=now - self._last_time)
        self._last_time = now
        self._logger.write({**counts, **metrics})

    def get_variables(self, names: Sequence[str]) -> list[types.NestedArray]:
        return self._read(names).values

    def poll_variables(
        self, names: Sequence[str], newer_than: int | None = None
    ) -> core.VersionedVariables | None:
        return None if newer_than == self._num_steps else self._read(names)

    def _read(self, names: Sequence[str]) -> core.VersionedVariables:
        unknown = sorted(set(names) - set(self._variables))
        if unknown:
            raise KeyError(f"Unknown variables {unknown}; there are {sorted(self._variables)}.")
        with self._updates.as_completed() as read:
            values: list[types.NestedArray] = [
                {
                    key: read(value).detach().cpu().numpy().copy()
                    for key, value in self._modules[name].state_dict(keep_vars=True).items()
                }
                for name in names
            ]
            return core.VersionedVariables(self._num_steps, values)

    def save(self) -> core.State:
        return copy.deepcopy(
            {
                "modules": {name: module.state_dict() for name, module in self._modules.items()},
                "updates": self._updates.save(),
                "generator": self._generator.get_state(),
                "num_steps": self._num_steps,
            }
        )

    def restore(self, state: core.State) -> None:
        with self._updates.completing():
            for name, module in self._modules.items():
                module.load_state_dict(state["modules"][name])
            self._num_steps = state["num_steps"]
        self._updates.restore(state["updates"])
        self._generator.set_state(state["generator"].cpu())
