"""What learners have in common, as parts to be held rather than a class to be inherited from."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import nn

from minerva_acme import core, counting, loggers, types

_logger = logging.getLogger(__name__)

Batch = TypeVar("Batch")


class NonFinite(Exception):
    """Something that a learner step needs is infinite or not a number."""


def check_finite(name: str, tensor: torch.Tensor) -> None:
    """Raises NonFinite, naming the tensor, unless all its elements are finite."""
    if not torch.isfinite(tensor).all():
        raise NonFinite(f"the {name} are not finite")


def next_batch(dataset: Iterator[Any], kind: type[Batch], layout: str) -> Batch:
    """The data of a dataset's next sample.

    Args:
        dataset: yields samples with `data`.
        kind: what the data must be: Trajectory, Rollout, ...
        layout: the name of the layout that packs and unpacks it, for the message.

    Raises:
        TypeError: it is something else, as of a table that was written for another learner.
    """
    data = next(dataset).data
    if not isinstance(data, kind):
        raise TypeError(
            f"`dataset` must give batches of {kind.__name__}, got {type(data).__name__}. "
            f"Unpack them with a {layout}, and write with it."
        )
    return data


class SkippedBatches(core.Saveable):
    """Counts the batches skipped for non-finite values, and raises where they are too many in a row."""

    def __init__(self, max_in_a_row: int) -> None:
        """Makes the counter.

        Args:
            max_in_a_row: batches in a row that may be skipped; one more is an error.
        """
        self._max_in_a_row = max_in_a_row
        self._total = 0
        self._in_a_row = 0

    @property
    def total(self) -> int:
        """Batches skipped since the beginning."""
        return self._total

    def used(self) -> None:
        """Notes that a batch was learned from."""
        self._in_a_row = 0

    def skipped(self, learner_step: int, reason: NonFinite) -> None:
        """Notes and logs that a batch was not.

        Raises:
            FloatingPointError: it was one too many in a row.
        """
        self._total += 1
        self._in_a_row += 1
        _logger.warning("learner step %d skipped: %s", learner_step, reason)
        if self._in_a_row > self._max_in_a_row:
            raise FloatingPointError(
                f"{reason}, {self._in_a_row} learner steps in a row (`max_skipped_batches` is "
                f"{self._max_in_a_row}). Training has diverged: lower the learning rates, or "
                "look for extreme rewards and observations."
            )

    def save(self) -> core.State:
        return {"total": self._total, "in_a_row": self._in_a_row}

    def restore(self, state: core.State) -> None:
        self._total, self._in_a_row = state["total"], state["in_a_row"]


class StepLog:
    """Counts a learner's steps and the time between them, and logs them with its metrics."""

    def __init__(self, counter: counting.Counter, logger: loggers.Logger) -> None:
        """Takes over the parts.

        Args:
            counter: counts `steps` and `walltime`, in seconds.
            logger: receives a row a step.
        """
        self._counter = counter
        self._logger = logger
        self._last_time = time.monotonic()

    def write(self, metrics: Mapping[str, Any]) -> None:
        """Counts a step and logs its metrics beside the counts."""
        self._logger.write({**self.count(), **metrics})

    def count(self) -> dict[str, counting.Number]:
        """Counts a step without logging it; returns the counts."""
        now = time.monotonic()
        counts = self._counter.increment(steps=1, walltime=now - self._last_time)
        self._last_time = now
        return counts


def variables_of(modules: Mapping[str, nn.Module], names: Sequence[str]) -> list[types.NestedArray]:
    """Copies the state dicts of modules, as `core.VariableSource.get_variables` returns them.

    Raises:
        KeyError: a name is unknown; the message lists the known ones.
    """
    unknown = sorted(set(names) - set(modules))
    if unknown:
        raise KeyError(f"Unknown variables {unknown}; there are {sorted(modules)}.")
    return [
        {key: value.detach().cpu().numpy().copy() for key, value in modules[name].state_dict().items()}
        for name in names
    ]
