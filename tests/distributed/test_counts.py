"""What is counted is right, whoever dies."""

import errno
import os
import pathlib
import threading
import time
from typing import Any

import pytest

from minerva_acme.distributed import counter_node, graph, reports
from tests.distributed import small


def make(tmp_path: pathlib.Path, incarnation: int = 0, **counts: int) -> counter_node.CounterNode:
    node = graph.Node(name="counter", factory="m:f")
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
        self._part.context.stop.set()
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


class FullDisk:
    """A method that fails at some of its calls."""

    def __init__(self, method: Any, *, first: int, times: int = 1, error: Exception | None = None) -> None:
        self._method = method
        self._failing = range(first, first + times)
        self._error = error or OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._num_calls = 0

    def __call__(self, *arguments: Any) -> Any:
        self._num_calls += 1
        if self._num_calls in self._failing:
            raise self._error
        return self._method(*arguments)


@pytest.mark.parametrize("what", ["row", "journal"])
def test_what_a_full_disk_keeps_from_being_written_is_sent_again_and_counts_once(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    rows = [("actor", {"episode_return": value, "actor_steps": 4}) for value in (1.5, 2.5, 3.5)]
    with Running(make(tmp_path)) as counter:
        if what == "row":
            logger = counter._logs.actor  # type: ignore[union-attr]
            monkeypatch.setattr(logger, "write", FullDisk(logger.write, first=2))
        else:
            monkeypatch.setattr(os, "replace", FullDisk(os.replace, first=1))
        with pytest.raises(graph.NodeSilence, match="cannot be written: .* No space left"):
            counter.report(report("actor/0", 0, 1, rows, actor_steps=4))
        for _ in range(2):
            counter.report(report("actor/0", 0, 1, rows, actor_steps=4))
        assert counter.overview()["counts"] == {"actor_steps": 4}
        monkeypatch.undo()
    text = (tmp_path / "actor.csv").read_text()
    assert [text.count(value) for value in ("1.5", "2.5", "3.5")] == [1, 1, 1]
    again = make(tmp_path, incarnation=1)
    assert again.overview()["counts"] == {"actor_steps": 4}


@pytest.mark.parametrize("kind", [OSError, ValueError])
def test_a_counter_that_cannot_write_for_long_or_for_another_reason_ends(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    part = make(tmp_path)
    monkeypatch.setattr(
        part, "_write_journal", FullDisk(part._write_journal, first=2, times=99, error=kind("no"))
    )
    ended: list[Exception] = []

    def run() -> None:
        try:
            part.run()
        except kind as error:
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while part._logs is None:
        time.sleep(0.01)
    seconds = 0.0 if kind is ValueError else 0.3
    monkeypatch.setattr(counter_node, "_FAILING_SECONDS", seconds)
    began = time.monotonic()
    while thread.is_alive() and time.monotonic() < began + 30:
        with pytest.raises(graph.NodeSilence):
            part.put("a", 1)
        time.sleep(0.1)
    thread.join()
    assert len(ended) == 1 and time.monotonic() - began >= seconds


def test_an_error_while_a_node_reports_ends_neither_its_reports_nor_loses_rows(
    tmp_path: pathlib.Path,
) -> None:
    with Running(make(tmp_path)) as counter:
        node = graph.Node(name="actor/0", factory="m:f")
        reporter = reports.Reporter(
            graph.Context(node, 0, lambda name: Direct(counter), threading.Event()), period_seconds=0.01
        )
        reporter.status = FullDisk(dict, first=2, times=3, error=ValueError("no status"))
        reporter.start()
        reporter.logger("actor").write({"episode_return": 1.5, "actor_steps": 4})
        reporter.counter.increment(actor_steps=4)
        deadline = time.monotonic() + 30
        while counter.overview()["counts"].get("actor_steps") != 4:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        reporter.close()
    assert (tmp_path / "actor.csv").read_text().count("1.5") == 1


class Direct:
    """A handle that calls a node in this thread."""

    def __init__(self, part: Any) -> None:
        self._part = part

    def call(self, method: str, *arguments: Any, timeout_seconds: float = 10.0) -> Any:
        return getattr(self._part, method)(*arguments)


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
    node = graph.Node(name="actor/0", factory="m:f")
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
