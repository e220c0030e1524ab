"""Weights of a learner in another process."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from minerva_acme import actors
from minerva_acme.agents.on_policy import rounds
from minerva_acme.distributed import graph, weights


class Learner:
    """A handle of a learner's node whose answers can be set."""

    def __init__(self) -> None:
        self.version = -1
        self.value = np.zeros(2)
        self.error: Exception | None = graph.NodeSilence("starting")
        self.asked = 0

    def publish(self, version: int, value: float) -> None:
        self.value = np.full(2, value)
        self.value.flags.writeable = False  # as in memory that several processes read
        self.error, self.version = None, version

    def call(self, method: str, *arguments: Any, timeout_seconds: float = 10.0) -> Any:
        self.asked += 1
        if self.error is not None:
            raise self.error
        names, newer_than = arguments
        assert (method, names) == ("poll", ["policy"])
        return (self.version, [{"weight": self.value}]) if self.version > newer_than else None


@pytest.fixture
def learner() -> Learner:
    return Learner()


@pytest.fixture
def follower(learner: Learner) -> Iterator[weights.Follower]:
    stop = threading.Event()
    yield weights.Follower(learner, ["policy"], period_seconds=0.001, stop=stop)
    stop.set()


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_client_takes_the_newest_and_says_which(learner: Learner, follower: weights.Follower) -> None:
    taken: list[Any] = []
    client = actors.VariableClient(follower, ["policy"], taken.append, update_period=1)
    assert not follower.wait(-1, 0.01)
    with pytest.raises(TimeoutError, match="The learner has not answered"):
        client.update(wait=True)
    learner.publish(3, 1.5)
    assert follower.wait(-1, 10.0) and follower.taken == -1
    client.update()
    assert client.version == follower.taken == 3
    assert taken[0][0]["weight"].tolist() == [1.5, 1.5] and taken[0][0]["weight"].flags.writeable
    client.update()
    assert len(taken) == 1
    learner.publish(4, 2.5)
    assert follower.wait(3, 10.0)
    assert follower.taken == 3  # has come, but was not taken
    client.update()
    assert follower.taken == 4 and len(taken) == 2


def test_a_learner_that_is_away_leaves_the_old_weights_and_is_counted(
    learner: Learner, follower: weights.Follower
) -> None:
    learner.publish(1, 1.0)
    assert follower.wait(-1, 10.0)
    failures = follower.num_failures
    learner.error = graph.NodeSilence("gone")
    until(lambda: follower.num_failures > failures + 3)
    assert follower.age_seconds > 0
    answer = follower.poll_variables(["policy"])
    assert answer is not None and answer.version == 1
    learner.publish(2, 1.0)
    assert follower.wait(1, 10.0)


def test_what_is_wrong_with_the_question_surfaces_where_weights_are_taken(
    learner: Learner, follower: weights.Follower
) -> None:
    learner.error = KeyError("Unknown variables ['policy']")
    until(lambda: follower.wait(-1, 0.01))
    with pytest.raises(KeyError, match="Unknown variables"):
        follower.poll_variables(["policy"])


def test_only_what_is_followed_can_be_had(follower: weights.Follower) -> None:
    with pytest.raises(KeyError, match="Unknown variables .*critic.*; there are .*policy"):
        follower.poll_variables(["critic"])


def test_versions_grow_also_where_a_learner_begins_again() -> None:
    before = weights.version(0, 5_000)
    after = weights.version(1, 4_000)
    assert before < weights.version(0, 5_001) < after < weights.version(1, 4_001)
    assert rounds.learner_steps(after) == 4_000
