"""What learners share."""

import numpy as np
import pytest
import torch
from torch import nn

from minerva_acme import counting, learners, testing
from minerva_acme.learners import learning


def test_finite_tensors_pass_and_others_are_named():
    assert learners.check_finite("rewards", torch.tensor([1.0, -1e38])) is None
    assert learners.check_finite("rewards", torch.zeros(0)) is None
    for value in (float("nan"), float("inf"), -float("inf")):
        with pytest.raises(learners.NonFinite, match="^the rewards are not finite$"):
            learners.check_finite("rewards", torch.tensor([0.0, value]))


def test_skipped_batches_are_counted_and_logged(caplog):
    skipped = learners.SkippedBatches(max_in_a_row=2)
    assert skipped.total == 0
    skipped.skipped(7, learners.NonFinite("the rewards are not finite"))
    assert "learner step 7 skipped: the rewards are not finite" in caplog.text
    skipped.used()
    for step in (9, 10):
        skipped.skipped(step, learners.NonFinite("the values are not finite"))
    assert skipped.total == 3
    with pytest.raises(
        FloatingPointError,
        match=r"the values are not finite, 3 learner steps in a row \(`max_skipped_batches` is 2\). "
        "Training has diverged: lower the learning rates",
    ):
        skipped.skipped(11, learners.NonFinite("the values are not finite"))
    assert skipped.total == 4


def test_without_patience_the_first_skipped_batch_is_an_error():
    with pytest.raises(FloatingPointError, match="1 learner steps in a row"):
        learners.SkippedBatches(max_in_a_row=0).skipped(0, learners.NonFinite("the rewards are not finite"))


def test_the_counts_of_skipped_batches_are_restored():
    skipped, restored = learners.SkippedBatches(1), learners.SkippedBatches(1)
    skipped.skipped(0, learners.NonFinite("the rewards are not finite"))
    restored.restore(testing.through_a_file(skipped.save()))
    assert restored.total == 1
    with pytest.raises(FloatingPointError, match="2 learner steps in a row"):
        restored.skipped(1, learners.NonFinite("the rewards are not finite"))


def test_the_log_counts_steps_and_the_time_between_them(monkeypatch):
    now = 100.0
    monkeypatch.setattr(learning.time, "monotonic", lambda: now)
    logger = testing.FakeLogger()
    log = learners.StepLog(counting.Counter(counting.Counter(), "learner"), logger)
    now = 102.0
    log.write({"loss": 0.5})
    now = 105.0
    log.write({})
    assert logger.rows == [
        {"learner_steps": 1, "learner_walltime": 2.0, "loss": 0.5},
        {"learner_steps": 2, "learner_walltime": 5.0},
    ]


def test_variables_are_copies_in_the_order_of_the_names():
    modules = {"policy": nn.Linear(2, 1), "critic": nn.Linear(3, 1)}
    critic, policy = learners.variables_of(modules, ["critic", "policy"])
    assert critic["weight"].shape == (1, 3) and policy["weight"].shape == (1, 2)
    before = policy["weight"].copy()
    with torch.no_grad():
        modules["policy"].weight += 1.0
    np.testing.assert_array_equal(policy["weight"], before)


def test_unknown_variables_are_named_beside_the_known_ones():
    with pytest.raises(KeyError, match=r"Unknown variables \['actor'\]; there are \['critic', 'policy'\]"):
        learners.variables_of({"policy": nn.Linear(1, 1), "critic": nn.Linear(1, 1)}, ["policy", "actor"])
