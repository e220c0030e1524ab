"""The first cases of `make fuzz`, and that it would notice."""

import pytest

from minerva_acme.learners import updates

from . import __main__ as fuzz
from . import batches


@pytest.mark.parametrize("seeds", [range(first, first + 20) for first in range(0, 200, 20)], ids=str)
def test_a_bad_batch_leaves_all_that_a_learner_holds_finite(seeds):
    outcomes = [batches.check(seed) for seed in seeds]
    assert {"skipped", "learned from"} == set(outcomes)


def test_a_step_along_what_is_not_finite_is_noticed(monkeypatch, capsys):
    monkeypatch.setattr(updates.finite.Sizes, "check", lambda self: None)
    assert fuzz.try_all("batches", batches.check, range(40)) > 0
    said = capsys.readouterr()
    assert "is not finite" in said.err
    assert "python -m tests.fuzz batches --seed" in said.out
