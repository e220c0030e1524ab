"""Learners side by side, in threads of this process."""

import os
import signal
import threading
import time

import pytest
import torch
from torch import distributed, multiprocessing

from minerva_acme import learners
from tests import side_by_side


def test_means_rows_and_weights_are_those_of_all(tmp_path):
    def work(ranks):
        value = torch.tensor([1.0, 2.0]) * (1 + ranks.rank), torch.full((), 10.0 * ranks.rank)
        ranks.average_(value)
        own = torch.arange(3.0) + 10 * ranks.rank
        centred = ranks.apply(lambda rows: rows - rows.mean(), own)
        weights = torch.tensor([[0.5, 0.0], [2.0, 1.0]])[ranks.rank]
        return value, ranks.gather(own), centred, ranks.balance(weights)

    results = side_by_side.together(tmp_path / "ranks", work)
    for rank, (value, everyone, centred, balanced) in enumerate(results):
        torch.testing.assert_close(value, (torch.tensor([1.5, 3.0]), torch.tensor(5.0)))
        assert everyone.tolist() == [0.0, 1.0, 2.0, 10.0, 11.0, 12.0]
        assert centred.tolist() == [-6.0 + 10 * rank, -5.0 + 10 * rank, -4.0 + 10 * rank]
        # Losses are divided by 1 and by 2; their mean is then the sum over the 3 weights that count.
        own = torch.tensor([[0.5, 0.0], [2.0, 1.0]])[rank]
        torch.testing.assert_close(balanced, own * [1, 2][rank] / 1.5)


def test_a_share_without_any_weight_counts_nothing(tmp_path):
    def work(ranks):
        return ranks.balance(torch.zeros(2)), ranks.balance(torch.full((2,), float(ranks.rank)))

    for rank, (none, some) in enumerate(side_by_side.together(tmp_path / "ranks", work)):
        assert none.tolist() == [0.0, 0.0] and some.tolist() == [2.0 * rank] * 2


@pytest.fixture
def is_impatient(monkeypatch):
    monkeypatch.setattr("minerva_acme.learners.ranks._ANSWER_SECONDS", 0.2)


def test_one_that_is_not_finite_is_named_to_the_others_alone(tmp_path, is_impatient):
    def work(ranks):
        try:
            if ranks.rank == 2:
                ranks.agree(False)
            else:
                ranks.average_([torch.ones(1)])
        except learners.NonFiniteElsewhere as error:
            return str(error)
        return ranks.gather(torch.ones(1)).tolist()  # with the next call all are together again

    told = "the share of learner 2 is not finite"
    results = side_by_side.together(tmp_path / "ranks", work, 3, may_fail=True, timeout_seconds=2.0)
    assert results[:2] == [told, told] and isinstance(results[2], learners.LearnerLost)


def test_one_that_leaves_and_one_that_does_not_answer_are_named(tmp_path, is_impatient):
    def work(ranks):
        if ranks.rank:
            if ranks.rank == 2:
                told.wait()
            return None
        try:
            return ranks.exchange(0)
        finally:
            told.set()

    told = threading.Event()
    lost, *_ = side_by_side.together(tmp_path / "ranks", work, 3, may_fail=True, timeout_seconds=0.5)
    assert isinstance(lost, learners.LearnerLost)
    assert str(lost).startswith("Learner 1, 2 of 0..2 does not answer")


def _die(file: str) -> None:
    ranks = learners.Ranks(file, 1, 2)
    ranks.exchange(0)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_process_is_noticed_at_once_and_named(tmp_path):
    process = multiprocessing.get_context("spawn").Process(target=_die, args=(str(tmp_path / "ranks"),))
    process.start()
    with learners.Ranks(tmp_path / "ranks", 0, 2) as ranks:
        assert ranks.exchange(1) == [1, 0]
        with pytest.raises(learners.LearnerLost, match=r"Learner 1 of 0\.\.1 is gone"):
            ranks.average_([torch.ones(3)])  # it is dead, though its parent has not noticed
    process.join()


def test_none_begins_before_all_have_connected(tmp_path, monkeypatch):
    """One that has, and leaves, would break the connections that others still make."""
    connected, connect = [], distributed.ProcessGroupGloo

    def slowly(store, rank, *more):
        group = connect(store, rank, *more)
        time.sleep(0.3 * rank)
        connected.append(rank)
        return group

    monkeypatch.setattr(distributed, "ProcessGroupGloo", slowly)
    assert side_by_side.together(tmp_path / "ranks", lambda ranks: len(connected)) == [2, 2]


def test_one_that_never_comes_is_named(tmp_path):
    with pytest.raises(learners.LearnerLost, match=r"Learner 1 of 0\.\.1 is gone"):
        learners.Ranks(tmp_path / "ranks", 0, 2, timeout_seconds=0.3)
    with pytest.raises(ValueError, match=r"`rank` must be in 0\.\.1 for 2 learners, got 2"):
        learners.Ranks(tmp_path / "ranks", 2, 2)


def test_shares_of_different_sizes_are_refused(tmp_path):
    results = side_by_side.together(
        tmp_path / "ranks", lambda ranks: ranks.gather(torch.ones(2 + ranks.rank)), may_fail=True
    )
    for result in results:
        with pytest.raises(ValueError, match=r"they have \[2, 3\] numbers to combine"):
            raise result
