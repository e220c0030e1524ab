"""Batches of several learners, in threads of this process."""

import pathlib
import threading
from typing import Any

import pytest

from minerva_acme import learners
from minerva_acme.distributed import shared_dataset
from minerva_acme.replay import base as replay
from minerva_acme.replay import waiting
from tests import side_by_side


class Script:
    """A dataset that gives numbers, waits for its event before the second, and then does as it is told."""

    def __init__(self, ready: threading.Event | None = None, error: Exception | None = None) -> None:
        self.asked = 0
        self._ready, self._error = ready, error

    def __next__(self) -> int:
        self.asked += 1
        if self.asked == 2 and self._error is not None:
            raise self._error
        if self.asked >= 2 and self._ready is not None:
            wait = waiting.Wait()
            while not self._ready.wait(wait.slice()):
                wait.go_on(replay.ReplayTimeout("Not ready."))
        return self.asked


def share(dataset: Any, ranks: learners.Ranks, leaves: bool = False, is_done: bool = False) -> Any:
    return shared_dataset.SharedDataset(dataset, ranks, leaves=lambda: leaves, is_done=lambda: is_done)


def test_a_learner_that_has_its_batch_keeps_it_until_the_other_has_one(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_dataset, "_SLICE_SECONDS", 0.1)
    ready = threading.Event()

    def work(ranks: learners.Ranks) -> tuple[list[int], int]:
        dataset = Script(ready if ranks.rank else None)
        shared = share(dataset, ranks)
        batches = [next(shared)]
        threading.Timer(0.8, ready.set).start()
        batches.append(next(shared))
        assert ready.is_set()  # for the one that had its batch, too
        return batches, dataset.asked

    (first, asked), (second, asked_again) = side_by_side.together(tmp_path / "ranks", work)
    assert first == [1, 2] and asked == 2
    assert second == [1, asked_again] and asked_again > 2  # it waited in several slices


def test_a_silent_replay_of_one_is_told_to_all_and_no_batch_is_lost(tmp_path: pathlib.Path) -> None:
    def work(ranks: learners.Ranks) -> list[int]:
        shared = share(Script(error=replay.ReplaySilence("away") if ranks.rank else None), ranks)
        batches = [next(shared)]
        with pytest.raises(replay.ReplaySilence, match="Learner 1 waits for replay"):
            next(shared)
        return [*batches, next(shared)]

    assert side_by_side.together(tmp_path / "ranks", work) == [[1, 2], [1, 3]]


@pytest.mark.parametrize("reason", ["leaves", "is_done"])
def test_all_end_before_the_same_batch(tmp_path: pathlib.Path, reason: str) -> None:
    def work(ranks: learners.Ranks) -> Any:
        shared = share(Script(), ranks, **({reason: True} if ranks.rank else {}))
        with pytest.raises(replay.ReplayStopped, match="Learner 1 ends, and so do all"):
            next(shared)
        return shared.is_left

    assert side_by_side.together(tmp_path / "ranks", work) == [reason == "leaves"] * 2
