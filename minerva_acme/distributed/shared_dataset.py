"""A dataset of one of several learners, which gives its next batch once all of them have theirs."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from minerva_acme import learners
from minerva_acme.replay import base as replay
from minerva_acme.replay import waiting

_SLICE_SECONDS = 30.0  # the longest silence between learners while one waits for data
# What a learner says of its next batch; of several answers the largest counts.
_HAS_BATCH, _WAITS, _IS_SILENT, _IS_DONE, _LEAVES = range(5)


class SharedDataset(Iterator[Any]):
    """Yields the batches of one learner's dataset, in step with the others.

    So no learner begins a step that another one does not make, because it stops or waits for data.

    Attributes:
        is_left: Whether the batches have ended because a learner leaves, which need not be this one.
    """

    def __init__(
        self,
        dataset: Iterator[Any],
        ranks: learners.Ranks,
        *,
        leaves: Callable[[], bool],
        is_done: Callable[[], bool],
    ) -> None:
        """Makes the dataset.

        Args:
            dataset: The dataset, of this learner's shares.
            ranks: The learners.
            leaves: Returns whether this learner should end; then all do.
            is_done: Returns whether all steps are made; then it is so for all.
        """
        self.is_left = False
        self._dataset = dataset
        self._ranks = ranks
        self._leaves = leaves
        self._is_done = is_done
        self._batches: list[Any] = []  # at most one, which was there before those of the others

    def __next__(self) -> Any:
        """Waits for the next batches of all learners, and returns this one's.

        Raises:
            ReplayStopped: A learner leaves, or all steps are made.
            ReplaySilence: The replay of a learner does not answer.
            LearnerLost: A learner is gone.
        """
        while True:
            answers = self._ranks.exchange(self._fetch())
            most = max(answers)
            who = f"Learner {answers.index(most)}"
            if most in (_IS_DONE, _LEAVES):
                self.is_left = most == _LEAVES
                raise replay.ReplayStopped(f"{who} ends, and so do all.")
            if most == _IS_SILENT:
                raise replay.ReplaySilence(f"{who} waits for replay, which does not answer.")
            if most == _HAS_BATCH:
                return self._batches.pop()

    def _fetch(self) -> int:
        """Fetches the next batch, if it comes soon."""
        if (end := self._end()) is not None:
            return end
        if self._batches:
            return _HAS_BATCH
        deadline = time.monotonic() + _SLICE_SECONDS
        try:
            with waiting.rules(lambda: self._end() is not None or time.monotonic() > deadline):
                self._batches.append(next(self._dataset))
        except replay.ReplayStopped:
            end = self._end()
            return _WAITS if end is None else end
        except replay.ReplaySilence:
            return _IS_SILENT
        return _HAS_BATCH

    def _end(self) -> int | None:
        """Returns the reason to end, or None if there is none."""
        if self._leaves():
            return _LEAVES
        return _IS_DONE if self._is_done() else None
