"""Damaged and forged files of runs; `make fuzz` tries more of them."""

import collections
import pickle

import pytest

from . import _server, files

_COUNT = 20


@pytest.fixture(scope="module")
def server():
    server = _server.Server("files")
    yield server
    server.close()


@pytest.mark.timeout(900)  # a quarter of a minute where nothing else runs
@pytest.mark.promise("A changed file of a run gives a correct run or a one-line error")
def test_twenty_changed_files_end_in_a_sentence_or_a_correct_run(server):
    outcomes = collections.Counter(server.check(seed) for seed in range(_COUNT))
    # Otherwise the changes would not reach what they are to try.
    assert outcomes["ran"] >= 2 and outcomes["refused"] >= 2


def test_the_pickles_that_are_tried_would_be_noticed(tmp_path):
    pickle.loads(pickle.dumps(files._Hostile(tmp_path / "executed")))
    assert (tmp_path / "executed").exists()
