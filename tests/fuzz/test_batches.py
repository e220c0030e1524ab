"""The first cases of `make fuzz`, and that it would notice."""

import contextlib

import pytest

from minerva_acme import learners

from . import __main__ as fuzz
from . import batches


@pytest.mark.parametrize("seed", range(200))
def test_a_bad_batch_leaves_all_that_a_learner_holds_finite_or_as_it_was(seed):
    assert batches.check(seed) in ("skipped", "learned from")
