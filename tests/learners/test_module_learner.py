"""What every learner of modules does but for its step."""

import numpy as np
import pytest
import torch
from torch import nn

from minerva_acme import counting, learners, testing
from minerva_acme.learners import module_learner


class Square(learners.ModuleLearner):
    """Brings a layer's output to 0."""

    def __init__(self, counter=None, logger=None, seed=0):
        self.network, self.unserved = nn.Linear(2, 1), nn.Linear(3, 1)
        with torch.no_grad():
            for parameter in (*self.network.parameters(), *self.unserved.parameters()):
                parameter.fill_(0.5)
        optimizer = learners.make_optimizer([{"params": [*self.network.parameters()], "lr": 0.1}])
        super().__init__(
            modules={"network": self.network, "unserved": self.unserved},
            variables=["network"],
            updates=learners.Updates(
                {"network": learners.Group(optimizer, 1.0)}, modules=[self.network], max_skipped_batches=1
            ),
            counter=counter or counting.Counter(),
            logger=logger or testing.FakeLogger(),
            generator=torch.Generator().manual_seed(seed),
        )

    def step(self):
        with self._updates.whole_or_nothing(self._num_steps) as metrics:
            loss = self.network(torch.randn(4, 2, generator=self._generator)).square().mean()
            metrics["loss"] = loss.detach()
            self._updates.minimise("network", loss)
        self._finish_step(metrics)


class TestContract(testing.LearnerConformance):
    names = ("network",)

    def make_learner(self):
        return Square()


def test_a_step_is_counted_timed_and_logged(monkeypatch):
    now = 100.0
    monkeypatch.setattr(module_learner.time, "monotonic", lambda: now)
    logger = testing.FakeLogger()
    learner = Square(counting.Counter(counting.Counter(), "learner"), logger)
    now = 102.0
    learner.step()
    now = 105.0
    learner.step()
    assert [(row["learner_steps"], row["learner_walltime"]) for row in logger.rows] == [(1, 2.0), (2, 5.0)]
    assert all(
        row.keys() == {"learner_steps", "learner_walltime", "loss", "skipped_batches"} for row in logger.rows
    )


def test_variables_are_copies_in_the_order_of_the_names():
    learner = Square()
    first, again = learner.get_variables(["network", "network"])
    assert first["weight"].shape == (1, 2) and first["weight"] is not again["weight"]
    before = first["weight"].copy()
    learner.step()
    np.testing.assert_array_equal(first["weight"], before)


def test_variables_are_given_to_whoever_has_older_ones_and_to_nobody_else():
    learner = Square()
    learner.step()
    learner.step()
    versions = []
    for newer_than in (None, 0, 1, 2):
        answer = learner.poll_variables(["network"], newer_than)
        versions.append(None if answer is None else answer.version)
    assert versions == [2, 2, 2, None]


def test_unknown_variables_are_named_beside_the_known_ones():
    with pytest.raises(KeyError, match=r"Unknown variables \['actor', 'unserved'\]; there are \['network'\]"):
        Square().get_variables(["unserved", "network", "actor"])


def test_a_restored_learner_makes_the_same_steps():
    learner, other = Square(), Square(seed=9)
    learner.step()
    state = testing.through_a_file(learner.save())
    learner.step()  # a saved state is a copy
    other.restore(state)
    other.step()
    testing.assert_nests_equal(other.save(), learner.save(), "A restored learner must go on alike.")
    assert other.poll_variables(["network"]).version == 2
