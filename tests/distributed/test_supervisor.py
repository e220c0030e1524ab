"""What becomes of nodes that end."""

import pytest

from minerva_acme.distributed import graph, supervisor


class Script:
    """A program whose ends are told to it; see `graph.Launched`."""

    def __init__(self) -> None:
        self.started: list[tuple[str, int]] = []
        self.stopped: list[str] = []
        self.ends: list[graph.Ended] = []

    def start(self, name: str, incarnation: int) -> None:
        self.started.append((name, incarnation))

    def wait(self, timeout_seconds: float) -> list[graph.Ended]:
        ends, self.ends = self.ends, []
        return ends

    def handle(self, name: str) -> graph.Handle:
        raise NotImplementedError

    def stop(self, name: str) -> None:
        self.stopped.append(name)

    def endure(self) -> None:
        pass

    def about(self) -> dict[str, dict[str, float]]:
        return {}

    def close(self) -> None:
        pass


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        self.now += 0.001
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(supervisor, "time", clock)
    return clock


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def watched(script: Script, clock: Clock) -> supervisor.Supervisor:
    nodes = (
        graph.Node(name="actor", kind="actor", factory="m:f"),
        graph.Node(name="evaluator", kind="evaluator", factory="m:f", max_errors=None),
    )
    watched = supervisor.Supervisor(script, graph.Program(nodes=nodes))
    watched.start("actor")
    watched.start("evaluator")
    return watched


def end(
    watched: supervisor.Supervisor, script: Script, clock: Clock, name: str, error: str, died: bool
) -> None:
    clock.now += 60
    script.ends = [graph.Ended(name, RuntimeError(error), died)]
    watched.watch(0.0)
    clock.now += 60
    watched.watch(0.0)


def test_a_node_whose_process_died_is_started_again_however_often(
    watched: supervisor.Supervisor, script: Script, clock: Clock
) -> None:
    noted: list[str] = []
    watched.on_restart = noted.append
    for _ in range(30):
        end(watched, script, clock, "actor", "killed", died=True)
    assert script.started == [("actor", 0), ("evaluator", 0), *(("actor", n) for n in range(1, 31))]
    assert watched.restarts == {"actor": 30, "evaluator": 0}
    assert noted == ["actor"] * 30


def test_a_node_that_raises_again_and_again_ends_the_program(
    watched: supervisor.Supervisor, script: Script, clock: Clock
) -> None:
    # Two minutes each: the window of ten minutes never holds six.
    for _ in range(20):
        end(watched, script, clock, "actor", "odd", died=False)
    clock.now += 1000
    with pytest.raises(supervisor.ProgramFailed, match="Node actor failed 6 times .*RuntimeError: broken"):
        for _ in range(6):
            clock.now += 10
            script.ends = [graph.Ended("actor", RuntimeError("broken"), died=False)]
            watched.watch(0.0)
    assert watched.restarts["actor"] > 20


def test_an_evaluator_that_raises_again_and_again_is_given_up(
    watched: supervisor.Supervisor, script: Script, clock: Clock
) -> None:
    for _ in range(8):
        end(watched, script, clock, "evaluator", "broken", died=False)
    assert watched.restarts["evaluator"] == 4
    assert not watched.is_running("evaluator") and watched.is_running("actor")


def test_a_node_that_dies_at_once_waits_longer_each_time(
    watched: supervisor.Supervisor, script: Script, clock: Clock
) -> None:
    pauses = []
    for _ in range(8):
        script.ends = [graph.Ended("actor", RuntimeError("killed"), died=True)]
        began = clock.now
        while not script.ends or not watched.is_running("actor") or clock.now == began:
            watched.watch(0.0)
            clock.now += 0.05
            if watched.is_running("actor"):
                break
        pauses.append(clock.now - began)
    assert pauses == sorted(pauses) and pauses[0] < 1.0 and 25.0 < pauses[-1] < 35.0


def test_nodes_that_are_asked_to_end_are_not_started_again(
    watched: supervisor.Supervisor, script: Script, clock: Clock
) -> None:
    script.ends = [graph.Ended("actor", RuntimeError("killed"), died=True)]
    assert watched.stop(["actor"], timeout_seconds=5.0) == []
    clock.now += 100
    watched.watch(0.0)
    assert script.started == [("actor", 0), ("evaluator", 0)] and script.stopped == ["actor"]
    assert watched.stop(["evaluator"], timeout_seconds=0.5) == ["evaluator"]  # it does not hear


def test_a_node_that_returns_is_done(watched: supervisor.Supervisor, script: Script, clock: Clock) -> None:
    script.ends = [graph.Ended("actor", None, died=False)]
    watched.watch(0.0)
    clock.now += 100
    watched.watch(0.0)
    assert watched.has_returned("actor") and watched.restarts["actor"] == 0
