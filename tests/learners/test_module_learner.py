"""What every learner of modules does but for its step."""

import collections
import copy
import queue
import threading
from concurrent import futures

import numpy as np
import pytest
import torch
from torch import nn

from minerva_acme import actors, counting, learners, testing
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

    between = staticmethod(lambda: None)  # called in the middle of a step

    def step(self):
        with self.updates.guarded(self.num_steps) as metrics:
            loss = self.network(torch.randn(4, 2, generator=self.generator)).square().mean()
            metrics["loss"] = loss.detach()
            self.updates.minimise("network", loss)
            self.between()
        self.finish_step(metrics)


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


def test_a_saved_state_is_what_deepcopy_makes_of_it(monkeypatch):
    learner = Square()
    learner.network.register_buffer("strided", torch.arange(6.0).view(2, 3).T)
    learner.unserved.weight = nn.Parameter(learner.network.weight.data)  # shared
    learner.updates.groups["network"].optimizer.param_groups[0]["own"] = [{"a set": {1}}]
    learner.step()
    found = learner.save()
    monkeypatch.setattr(module_learner, "_copied", lambda state, seen: copy.deepcopy(state))
    expected = learner.save()
    testing.assert_nests_equal(found, expected)
    for state in (found, expected):
        weights = [module["weight"] for module in state["modules"].values()]
        assert weights[0].data_ptr() == weights[1].data_ptr() != learner.network.weight.data_ptr()
        assert not any(weight.requires_grad for weight in weights)
        assert state["modules"]["network"]._metadata == learner.network.state_dict()._metadata
        assert type(state["modules"]["network"]) is collections.OrderedDict
        own = state["updates"]["optimizers"]["network"]["param_groups"][0]["own"]
        own[0]["a set"].add(2)
    assert learner.save()["updates"]["optimizers"]["network"]["param_groups"][0]["own"] == [{"a set": {1}}]


SOON = 20.0  # seconds that nothing here takes, unless somebody waits for ever


@pytest.fixture
def elsewhere():
    """Calls a function in another thread, and gives its result."""
    with futures.ThreadPoolExecutor(1) as pool:
        yield lambda function, *arguments: pool.submit(function, *arguments).result(SOON)


def test_who_asks_within_a_step_gets_what_it_leaves():
    learner, answers = Square(), []
    learner.step()
    with futures.ThreadPoolExecutor(2) as pool:

        def ask():
            answers.extend(pool.submit(learner.poll_variables, ["network"], since) for since in (None, 0))
            assert not futures.wait(answers, timeout=0.05).done

        learner.between = ask
        learner.step()
        for answer in answers:
            version, (values,) = answer.result(SOON)
            assert version == 2
            np.testing.assert_array_equal(values["weight"], learner.network.weight.detach().numpy())


def test_between_the_end_of_a_step_and_its_count_the_version_is_the_new_one(elsewhere):
    learner = Square()
    with learner.updates.guarded(0) as metrics:
        learner.updates.minimise("network", learner.network(torch.ones(4, 2)).square().mean())
    assert elsewhere(learner.poll_variables, ["network"]).version == 1
    learner.finish_step(metrics)
    assert elsewhere(learner.poll_variables, ["network"]).version == 1


def test_a_step_that_raises_keeps_nobody_waiting(elsewhere):
    learner = Square()
    learner.step()

    def fail():
        raise RuntimeError("in the middle")

    learner.between = fail
    for _ in range(2):
        with pytest.raises(RuntimeError, match="in the middle"):
            learner.step()
        version, (values,) = elsewhere(learner.poll_variables, ["network"])
        assert version == 1
        np.testing.assert_array_equal(values["weight"], learner.network.weight.detach().numpy())


class Others:
    """The other learners, for which a step waits as long as they have no data."""

    def __init__(self, have_data):
        self._have_data = have_data

    def average_(self, tensors):
        assert self._have_data()

    def agree(self, is_finite=True):
        pass

    def spread(self, generator):
        pass

    def check_same(self, tensors):
        pass


def test_who_makes_data_for_another_learner_gets_weights_while_a_step_waits(elsewhere):
    learner, asked = Square(), []

    def have_data():
        asked.append(elsewhere(learner.poll_variables, ["network"]))
        return True

    learner.updates.ranks = Others(have_data)
    before = learner.poll_variables(["network"])  # as an actor does at its start
    learner.step()
    learner.step()
    assert [answer.version for answer in asked] == [0, 1]
    testing.assert_nests_equal(asked[0].values, before.values, "No half step may be seen.")
    assert (asked[0].values[0]["weight"] != asked[1].values[0]["weight"]).any()
    learner.restore(learner.save())
    assert elsewhere(learner.poll_variables, ["network"]).version == 2


class Waits(Square):
    """Takes data from a queue, for which it waits."""

    def __init__(self, data):
        super().__init__()
        self._data = data

    def step(self):
        if self._data.get(timeout=SOON):
            super().step()


def test_an_actor_whose_data_the_learner_waits_for_gets_its_weights():
    # A lock around the step would wait for ever here: the learner for data, and whoever makes it for weights.
    data, versions = queue.Queue(), []
    learner, is_done = Waits(data), threading.Event()
    client = actors.VariableClient(learner, ["network"], lambda values: None, update_period=1)

    def learn():
        learner.run(num_steps=10)
        is_done.set()

    with futures.ThreadPoolExecutor(1) as pool:
        learning = pool.submit(learn)
        for _ in range(10):
            client.update(wait=True)
            versions.append(client.version)
            data.put(True)
        learning.result(SOON)
        client.update(wait=True)
    assert is_done.is_set() and client.version == 10
    assert versions[0] == 0 and versions == sorted(versions)
