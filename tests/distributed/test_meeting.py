"""Learners that find each other, and begin again together."""

import pathlib
import threading
import time
from concurrent import futures
from typing import Any

import pytest

from minerva_acme.distributed import graph, meeting


class World:
    """Contexts of learners that call the newest `Host`."""

    def __init__(self) -> None:
        self.host: meeting.Host | None = None
        self.stop = threading.Event()

    def context(self, rank: int, incarnation: int = 0) -> graph.Context:
        node = graph.Node(name=f"learner/{rank}", factory="")
        return graph.Context(node, incarnation, lambda name: self, self.stop)

    def call(self, method: str, *arguments: Any) -> Any:
        if self.host is None:
            raise graph.NodeSilence("starting")
        return {"join": self.host.join, "meeting_file": self.host.file}[method](*arguments)

    def open(self, directory: pathlib.Path, incarnation: int = 0, num_learners: int = 3) -> meeting.Host:
        self.host = meeting.Host(
            self.context(0, incarnation),
            directory=str(directory),
            num_learners=num_learners,
            checkpoint=f"checkpoint {incarnation}",
        )
        return self.host


@pytest.fixture
def pool() -> Any:
    with futures.ThreadPoolExecutor() as pool:
        yield pool


def test_all_begin_with_what_learner_0_says_once_all_are_there(tmp_path: pathlib.Path, pool: Any) -> None:
    world = World()
    first = pool.submit(meeting.join, world.context(1))
    host = world.open(tmp_path, incarnation=4)
    waiting = pool.submit(host.wait)
    time.sleep(0.5)
    assert not first.done() and not waiting.done()  # one is missing
    second = pool.submit(meeting.join, world.context(2, incarnation=7))
    begin = waiting.result(5.0)
    assert begin == first.result(5.0) == second.result(5.0)
    assert begin.checkpoint == "checkpoint 4" and begin.incarnation == 4
    assert pathlib.Path(begin.file).parent == tmp_path


def test_one_that_was_lost_waits_until_learner_0_begins_again(tmp_path: pathlib.Path, pool: Any) -> None:
    world = World()
    host = world.open(tmp_path, num_learners=2)
    begin = host.join(1, 0)
    again = pool.submit(meeting.join, world.context(1, incarnation=1))
    time.sleep(0.5)
    assert not again.done()
    with pytest.raises(graph.NodeSilence):
        host.join(1, 0)  # no one joins any more
    with pytest.raises(graph.NodeLeft, match="lost before all were there"):
        host.wait()
    world.open(tmp_path, incarnation=1, num_learners=2)
    assert again.result(5.0).incarnation == 1 and again.result().file != begin.file


def test_one_with_nothing_to_learn_stays_until_learner_0_begins_again(
    tmp_path: pathlib.Path, pool: Any
) -> None:
    world = World()
    host = world.open(tmp_path, num_learners=2)
    staying = pool.submit(meeting.stay, world.context(1), host.file())
    time.sleep(0.5)
    assert not staying.done()
    world.host = None  # it is away
    time.sleep(0.5)
    assert not staying.done()
    world.open(tmp_path, incarnation=1, num_learners=2)
    with pytest.raises(graph.NodeLeft, match="Learner 0 begins again"):
        staying.result(5.0)


def test_all_end_if_they_are_asked_to(tmp_path: pathlib.Path, pool: Any) -> None:
    world = World()
    host = world.open(tmp_path)
    ends = [
        pool.submit(host.wait),
        pool.submit(meeting.join, world.context(1)),
        pool.submit(meeting.stay, world.context(2), host.file()),
    ]
    world.stop.set()
    assert [end.result(5.0) for end in ends] == [None, None, None]
