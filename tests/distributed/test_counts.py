"""What is counted is right, whoever dies."""

import pathlib
import threading
import time
from typing import Any

import pytest

from minerva_acme.distributed import counter_node, graph, reports
from tests.distributed import small


def make(tmp_path: pathlib.Path, incarnation: int = 0, **counts: int) -> counter_node.CounterNode:
    node = graph.Node(name="counter", kind="counter", factory="m:f")
    return counter_node.CounterNode(
        graph.Context(node, incarnation, lambda name: pytest.fail(name), threading.Event()),
        config=small.experiment(tmp_path, small.sac_builder()),
        description={"hyperparameters": {}},
        journal=str(tmp_path / ".counts"),
        counts=counts,
        facts={},
        num_actors=2,
        cut={"actor": 0, "learner": 0, "evaluator": -1},
    )


class Running:
    """A counter whose logs are open."""

    def __init__(self, part: counter_node.CounterNode) -> None:
        self._part = part
        self._thread = threading.Thread(target=part.run)

    def __enter__(self) -> counter_node.CounterNode:
        self._thread.start()
        while True:
            try:
                self._part.write_film(b"", 0)
                return self._part
            except graph.NodeSilence:
                time.sleep(0.01)

    def __exit__(self, *error: object) -> None:
        self._part._context.stop.set()
        self._thread.join()


def report(
    node: str, incarnation: int, number: int, rows: Any = (), alone: bool = False, **counts: int
) -> counter_node.Report:
    return counter_node.Report(node, incarnation, number, dict(counts), {}, list(rows), alone)


def test_totals_add_up_over_nodes_and_incarnations_and_what_was_before(tmp_path: pathlib.Path) -> None:
    with Running(make(tmp_path, actor_steps=100)) as counter:
        counter.report(report("actor/0", 0, 1, actor_steps=7))
        counter.report(report("actor/0", 0, 2, actor_steps=11))  # in all
        counter.report(report("actor/1", 0, 1, actor_steps=5))
        reply = counter.report(report("actor/0", 1, 1, actor_steps=3))
        assert counter.overview()["counts"] == {"actor_steps": 119}
        assert reply.others == {"actor_steps": 116}
        counter.report(report("actor/0", 0, 3, actor_steps=12))  # late, from one that was killed
        assert counter.overview()["counts"] == {"actor_steps": 120}


def test_a_report_that_is_sent_twice_counts_once_and_is_logged_once(tmp_path: pathlib.Path) -> None:
    row = ("actor", {"episode_return": 1.5, "actor_steps": 4})
    with Running(make(tmp_path)) as counter:
        for _ in range(3):
            reply = counter.report(report("actor/0", 0, 1, [row], actor_steps=4))
        assert counter.overview()["counts"] == {"actor_steps": 4} and reply.others == {}
    assert (tmp_path / "actor.csv").read_text().count("1.5") == 1


def test_a_learner_that_begins_again_from_its_checkpoint_takes_its_steps_back(tmp_path: pathlib.Path) -> None:
    with Running(make(tmp_path, learner_steps=40, actor_steps=9)) as counter:
        assert counter.overview()["counts"] == {"learner_steps": 40, "actor_steps": 9}
        counter.report(report("learner", 0, 1, alone=True, learner_steps=60))
        reply = counter.report(report("learner", 1, 1, alone=True, learner_steps=50))
        assert counter.overview()["counts"]["learner_steps"] == 50
        assert reply.others == {"actor_steps": 9}
        counter.report(report("learner", 0, 2, alone=True, learner_steps=61))  # one that was given up
        assert counter.overview()["counts"]["learner_steps"] == 50


def test_a_counter_that_was_killed_goes_on_from_what_it_had_answered(tmp_path: pathlib.Path) -> None:
    first = make(tmp_path, actor_steps=100)
    with Running(first):
        first.report(report("actor/0", 0, 1, actor_steps=7))
        first.put("evaluations", {"latest": [5, [[1.0], [2], {}]]})
        answered = report("actor/0", 0, 2, [("actor", {"actor_steps": 8})], actor_steps=8)
        first.report(answered)
    with Running(make(tmp_path, incarnation=1, actor_steps=100)) as second:
        second.report(answered)  # its answer was lost on the way
        overview = second.overview()
        assert overview["counts"] == {"actor_steps": 108}
        assert overview["facts"] == {"evaluations": {"latest": [5, [[1.0], [2], {}]]}}
    assert (tmp_path / "actor.csv").read_text().splitlines()[1:] == ["8"]


class Handle:
    """Answers, unless it is away."""

    def __init__(self) -> None:
        self.away = False
        self.reports: list[counter_node.Report] = []

    def call(self, method: str, *arguments: Any, timeout_seconds: float = 10.0) -> Any:
        if self.away:
            raise graph.NodeSilence("away")
        self.reports.append(arguments[0])
        return counter_node.Reply({"actor_steps": 1000}, {"replay_epoch": 2})


@pytest.fixture
def handle() -> Handle:
    return Handle()


@pytest.fixture
def reporter(handle: Handle) -> reports.Reporter:
    node = graph.Node(name="actor/0", kind="actor", factory="m:f")
    return reports.Reporter(graph.Context(node, 3, lambda name: handle, threading.Event()))


def test_a_node_sees_what_all_have_counted_and_reports_its_own(
    reporter: reports.Reporter, handle: Handle
) -> None:
    counter = reporter.counter
    counter.increment(actor_steps=4)
    reporter.send()
    counter.tick("actor_steps")
    assert counter.get_counts() == {"actor_steps": 1005}
    reporter.send()
    assert counter.get_counts() == {"actor_steps": 1005}
    assert [sent.counts for sent in handle.reports] == [{"actor_steps": 4}, {"actor_steps": 5}]
    assert handle.reports[0][:3] == ("actor/0", 3, 1) and reporter.facts == {"replay_epoch": 2}


def test_what_was_not_answered_is_said_again_with_the_same_number(
    reporter: reports.Reporter, handle: Handle
) -> None:
    logger = reporter.logger("actor")
    logger.write({"episode_return": 1.0})
    handle.away = True
    with pytest.raises(graph.NodeSilence):
        reporter.send()
    logger.write({"episode_return": 2.0})
    reporter.close()
    handle.away = False
    assert handle.reports == []  # it has not begun: nobody may hear of a node that could not be built
    reporter.start()
    reporter.close()  # sends all that is left
    assert [(sent.number, [row["episode_return"] for _, row in sent.rows]) for sent in handle.reports] == [
        (1, [1.0]),
        (2, [2.0]),
    ]


def test_a_node_begins_once_it_knows_what_the_others_have_counted(
    reporter: reports.Reporter, handle: Handle
) -> None:
    handle.away = True
    began = threading.Thread(target=reporter.start)
    began.start()
    began.join(0.3)
    assert began.is_alive() and reporter.counter.get_counts() == {}
    handle.away = False
    began.join(10.0)
    assert reporter.counter.get_counts() == {"actor_steps": 1000}
    reporter.close()


def test_a_node_that_is_to_stop_does_not_wait_for_the_counter(
    reporter: reports.Reporter, handle: Handle
) -> None:
    handle.away = True
    reporter._context.stop.set()
    reporter.start()
    handle.away = False
    reporter.close()
    assert handle.reports == []
