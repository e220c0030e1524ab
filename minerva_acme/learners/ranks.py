"""Several learners side by side: each takes a share of every batch, and all make the same step.

Shapes: R learners; n rows of each one's share, R * n of the whole batch.
"""

import datetime
import os
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import distributed

from minerva_acme import core
from minerva_acme.learners import finite

TIMEOUT_SECONDS = 600.0
"""The longest wait for a learner that is alive: one that writes a checkpoint makes the others wait."""

_MEETING_SECONDS = 60.0  # the longest wait at the start, when each knows that the others are there
_ANSWER_SECONDS = 5.0  # for the others to notice that one is lost
_LOOK_SECONDS = 0.05
_NOT_FINITE = -1

_torch: Any = distributed  # its stubs lack some of the names


class LearnerLost(RuntimeError):
    """Another learner is gone, or does not answer: the step cannot be made. The message names it."""


class NonFiniteElsewhere(finite.NonFinite):
    """Raised if the share of another learner is not finite."""


class Ranks(core.Closeable):
    """The learners that learn side by side, of which this one is number `rank`.

        loss.backward()                       # the mean over this learner's share of the batch
        ranks.average_(gradients)             # now of the mean over the whole batch

    All shares have the same size, and all learners make the same calls in the same order. A learner whose
    share is not finite leaves that order by one call of `agree(False)`; the next call of every other one then
    raises `NonFinite`, so that all skip the batch.

    Messages go through gloo, and on GPUs the numbers through NCCL.

    Attributes:
        rank: The number of this learner, 0 to R - 1.
        size: The number of learners, R.
    """

    def __init__(
        self,
        file: pathlib.Path | str,
        rank: int,
        size: int,
        *,
        device: torch.device | str = "cpu",
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        """Waits until all are there, a minute at most.

        Args:
            file: A file on a disk that all share, through which they find each other; it must be new.
            rank: The number of this learner.
            size: The number of learners.
            device: The device of the numbers; each learner needs its own GPU.
            timeout_seconds: The longest wait for another learner.

        Raises:
            LearnerLost: One is not there within a minute.
            ValueError: There is no such learner.
        """
        if not 0 <= rank < size:
            raise ValueError(f"`rank` must be in 0..{size - 1} for {size} learners, got {rank}.")
        self.rank = rank
        self.size = size
        self._options = _torch.AllreduceOptions()
        self._options.timeout = datetime.timedelta(seconds=timeout_seconds)
        self._store = _torch.FileStore(str(file), size)
        self._store.set(f"process {rank}", str(os.getpid()))
        meeting = datetime.timedelta(seconds=min(timeout_seconds, _MEETING_SECONDS))
        self._store.set_timeout(meeting)
        try:
            for other in range(size):
                self._store.get(f"process {other}")
            self._messages = self._numbers = _torch.ProcessGroupGloo(self._store, rank, size, meeting)
            if torch.device(device).type == "cuda":
                options = _torch.ProcessGroupNCCL.Options()
                options._timeout = self._options.timeout
                store = _torch.PrefixStore("nccl", self._store)
                self._numbers = _torch.ProcessGroupNCCL(store, rank, size, options)
        except RuntimeError as error:
            raise self._lost() from error
        self.exchange(0)  # One that has connected and leaves at once would end the start of the others.

    def close(self) -> None:
        """Leaves; whatever the others wait for then fails."""
        self._messages = self._numbers = None

    def exchange(self, answer: int) -> list[int]:
        """Returns the answers of all learners, in the order of their numbers.

        Raises:
            LearnerLost: A learner is gone.
        """
        answers = torch.zeros(self.size, dtype=torch.int64)
        answers[self.rank] = answer
        self._sum_(answers, self._messages)
        return [int(each) for each in answers]

    def agree(self, is_finite: bool = True, num_numbers: int = 0) -> None:
        """Checks that the shares of all learners are finite so far, and that all make the same call.

        Args:
            is_finite: False if the share of this learner is not finite.
            num_numbers: The number of numbers that this learner is about to combine with the others.

        Raises:
            NonFinite: The share of this learner is finite, but another one's is not.
            ValueError: The numbers of others differ.
        """
        answers = self.exchange(num_numbers if is_finite else _NOT_FINITE)
        if not is_finite:
            return
        if _NOT_FINITE in answers:
            raise NonFiniteElsewhere(f"the share of learner {answers.index(_NOT_FINITE)} is not finite")
        if answers != [num_numbers] * self.size:
            raise ValueError(
                "All learners must make the same calls, with shares of the same size, but they have "
                f"{answers} numbers to combine. Draw equal shares, and let nothing but `Ranks` decide which "
                "steps are made."
            )

    @torch.no_grad()
    def average_(self, tensors: Sequence[torch.Tensor]) -> None:
        """Replaces tensors by their means over the learners, in place. Raises as `agree` and `gather` do."""
        self.agree(num_numbers=sum(tensor.numel() for tensor in tensors))
        if tensors:
            means = torch.cat([tensor.flatten() for tensor in tensors])
            self._sum_(means, self._numbers)
            means /= self.size
            parts = means.split([tensor.numel() for tensor in tensors])
            for tensor, part in zip(tensors, parts, strict=True):
                tensor.copy_(part.view_as(tensor))

    @torch.no_grad()
    def sum(self, numbers: torch.Tensor) -> torch.Tensor:
        """Returns the sums of numbers over the learners. Raises as `gather` does."""
        return self.gather(numbers.unsqueeze(0)).sum(dim=0)

    @torch.no_grad()
    def gather(self, rows: torch.Tensor) -> torch.Tensor:
        """Returns the rows of all learners, [R * n, ...], in the order of their numbers, from [n, ...].

        Raises:
            NonFinite: As in `agree`.
            ValueError: As in `agree`.
            LearnerLost: A learner is gone.
        """
        self.agree(num_numbers=rows.numel())
        everyone = rows.new_zeros(self.size, *rows.shape)
        everyone[self.rank] = rows
        self._sum_(everyone, self._numbers)
        return everyone.flatten(0, 1)

    def apply(self, function: Callable[[torch.Tensor], torch.Tensor], rows: torch.Tensor) -> torch.Tensor:
        """Applies a function, without gradient, to the rows of all; returns this one's rows of the result."""
        return function(self.gather(rows)).unflatten(0, (self.size, -1))[self.rank]

    def balance(self, weights: torch.Tensor) -> torch.Tensor:
        """Scales weights for a loss that divides their sum by the number of those above 0.

        The mean of the learners' losses is then divided by the number in the whole batch, although there may
        be more of them in one share than in another.
        """
        own = (weights > 0).sum().to(weights.dtype)
        everyone = self.gather(own.unsqueeze(0))
        return weights * own / everyone.mean().clamp(min=1.0 / self.size)

    def spread(self, generator: torch.Generator) -> None:
        """Gives every learner but the first other random numbers, from a state that all have."""
        if self.rank:
            seeds = torch.randint(2**62, (self.rank,), generator=generator, device=generator.device)
            generator.manual_seed(int(seeds[-1]))

    def check_same(self, tensors: Sequence[torch.Tensor]) -> None:
        """Checks that all learners have the same tensors.

        Raises:
            ValueError: They have not: something was changed by the share of one learner alone.
        """
        sums = torch.stack([tensor.double().sum() for tensor in tensors])
        sums = sums.nan_to_num()
        if (self.gather(sums.unsqueeze(0)) != sums).any():
            raise ValueError(
                "The networks must be the same in all learners, but they differ: they were made from other "
                "random numbers than `make_networks` was given, or something other than "
                "`Updates.minimise`, `Updates.descend` and `Statistics.update` changes them. Use these, or "
                "train with one learner."
            )

    def _sum_(self, tensor: torch.Tensor, group: Any) -> None:
        if group is None:
            raise LearnerLost("This learner has left the others.")
        try:
            group.allreduce([tensor], self._options).wait()
        except RuntimeError as error:
            raise self._lost() from error

    def _lost(self) -> LearnerLost:
        """Finds out who is missing."""
        self._store.set(f"alarm {self.rank}", "")
        deadline = time.monotonic() + _ANSWER_SECONDS
        others = [other for other in range(self.size) if other != self.rank]
        while True:
            missing = [other for other in others if not self._store.check([f"alarm {other}"])]
            dead = [other for other in missing if not self._is_alive(other)]
            if dead or not missing or time.monotonic() > deadline:
                break
            time.sleep(_LOOK_SECONDS)
        verb = "is gone" if dead else "does not answer"
        who = ", ".join(map(str, dead or missing))
        what = f"Learner {who} of 0..{self.size - 1} {verb}" if who else "The learners have lost each other"
        return LearnerLost(f"{what}.")

    def _is_alive(self, other: int) -> bool:
        """Returns False if the process of another learner has ended, or never began."""
        if not self._store.check([f"process {other}"]):
            return False
        process = self._store.get(f"process {other}").decode()
        try:
            os.kill(int(process), 0)
            state = pathlib.Path("/proc", process, "stat").read_text().rpartition(")")[2].split()[0]
        except ProcessLookupError:
            return False
        except OSError:  # another user's, or a system without /proc
            return True
        return state != "Z"  # it has ended, though nothing has waited for it yet
