"""What becomes of nodes that end."""

from typing import Any

import pytest

from minerva_acme.distributed import graph, supervisor


class Script:
    """A program whose ends are told to it; see `graph.Launched`."""

    def __init__(self) -> None:
        self.started: list[tuple[str, int]] = []
        self.stopped: list[str] = []
        self.ends: list[graph.Ended] = []
        self.lost: list[str] = []

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
        if self.lost:
            raise graph.EngineLost(self.lost.pop())

    def silence(self, name: str) -> float:
        return 0.0

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


def watch(script: Script, *nodes: graph.Node) -> supervisor.Supervisor:
    """Starts nodes, of which none does any work."""
    watched = supervisor.Supervisor(script, graph.Program(nodes=nodes))
    for node in nodes:
        watched.start(node.name)
    return watched


def make(name: str, needed: Any = "each") -> graph.Node:
    return graph.Node(name=name, factory="m:f", needed=needed)


@pytest.fixture
def watched(script: Script, clock: Clock) -> supervisor.Supervisor:
    return watch(script, make("actor"), make("evaluator", "none"))


def end(
    watched: supervisor.Supervisor, script: Script, clock: Clock, name: str, error: str, died: bool
) -> None:
    clock.now += 60
    script.ends = [graph.Ended(name, RuntimeError(error), died)]
    watched.watch(0.0)
    clock.now += 60
    watched.watch(0.0)


def test_a_node_that_has_worked_is_started_again_however_often_its_process_dies(
    watched: supervisor.Supervisor, script: Script, clock: Clock
) -> None:
    noted: list[str] = []
    asked: list[tuple[str, int]] = []

    def has_worked(name: str, incarnation: int) -> bool:
        asked.append((name, incarnation))
        return True

    watched.on_restart, watched.has_worked = noted.append, has_worked
    for _ in range(30):
        end(watched, script, clock, "actor", "killed", died=True)
    assert script.started == [("actor", 0), ("evaluator", 0), *(("actor", n) for n in range(1, 31))]
    assert watched.restarts == {"actor": 30, "evaluator": 0}
    assert noted == ["actor"] * 30
    assert asked == [("actor", n) for n in range(30)]


def test_a_node_whose_process_dies_each_time_before_any_work_is_given_up(
    script: Script, clock: Clock
) -> None:
    watched = watch(script, make("learner"))
    with pytest.raises(
        supervisor.ProgramFailed,
        match="Node learner failed 6 times, the last time: its process died before it had done any work",
    ):
        for _ in range(6):  # two minutes each: the window of ten minutes never holds six
            end(watched, script, clock, "learner", "segmentation fault", died=True)
    assert watched.restarts["learner"] == 5


@pytest.mark.parametrize(("worked", "tries"), [((), 2), (("actor/0",), 6), (("actor/1",), 6)])
def test_actors_that_all_die_before_any_work_are_given_up_sooner(
    script: Script, clock: Clock, worked: tuple[str, ...], tries: int
) -> None:
    watched = watch(script, make("actor/0", "one"), make("actor/1", "one"))
    # At some time, though not since its last start.
    watched.has_worked = lambda name, incarnation: name in worked and not incarnation
    with pytest.raises(supervisor.ProgramFailed, match=rf"Node actor/\d failed {tries} times"):
        for _ in range(7):
            for name in ("actor/0", "actor/1"):
                if watched.is_expected(name):
                    end(watched, script, clock, name, "exit", died=True)


def test_a_death_after_work_makes_those_before_it_good(
    watched: supervisor.Supervisor, script: Script, clock: Clock
) -> None:
    has_worked: list[bool] = []
    watched.has_worked = lambda name, incarnation: has_worked[-1] or not incarnation
    for _ in range(4):
        has_worked += [True] + [False] * 4
        for worked in has_worked[-5:]:
            has_worked.append(worked)
            end(watched, script, clock, "actor", "killed", died=True)
        clock.now += 600
    assert watched.restarts["actor"] == 20 and watched.given_up == {}


@pytest.mark.parametrize("died", [False, True])
def test_what_the_system_ends_or_another_node_is_no_failure_and_says_why(
    watched: supervisor.Supervisor, script: Script, clock: Clock, caplog: pytest.LogCaptureFixture, died: bool
) -> None:
    for _ in range(20):
        script.ends = [graph.Ended("actor", graph.NodeLeft("asked to"), died)]
        watched.watch(0.0)
        clock.now += 60
        watched.watch(0.0)
    assert watched.restarts["actor"] == 20 and watched.given_up == {}
    assert "actor ended (asked to); restarting it" in caplog.text


def test_a_node_that_raises_again_and_again_ends_the_program(
    watched: supervisor.Supervisor, script: Script, clock: Clock
) -> None:
    watched.has_worked = lambda name, incarnation: True
    # Two minutes each: the window of ten minutes never holds six.
    for _ in range(20):
        end(watched, script, clock, "actor", "odd", died=False)
    clock.now += 1000
    with pytest.raises(supervisor.ProgramFailed, match="Node actor failed 6 times.*RuntimeError: broken"):
        for _ in range(6):
            clock.now += 10
            script.ends = [graph.Ended("actor", RuntimeError("broken"), died=False)]
            watched.watch(0.0)
            clock.now += 10
            watched.watch(0.0)
    assert watched.restarts["actor"] > 20


@pytest.mark.parametrize("died", [False, True])
def test_an_evaluator_that_fails_again_and_again_is_given_up(
    watched: supervisor.Supervisor, script: Script, clock: Clock, died: bool
) -> None:
    for _ in range(6):
        end(watched, script, clock, "evaluator", "broken", died=died)
    assert watched.restarts["evaluator"] == 5
    assert not watched.is_expected("evaluator") and watched.is_expected("actor")
    assert watched.given_up["evaluator"].startswith("failed 6 times, the last time: ")


@pytest.mark.parametrize("died", [False, True])
def test_single_actors_are_given_up_and_the_last_one_ends_the_program(
    script: Script, clock: Clock, died: bool
) -> None:
    watched = watch(script, make("actor/0", "one"), make("actor/1", "one"))
    for _ in range(6):
        end(watched, script, clock, "actor/1", "broken", died=died)
    assert watched.given_up.keys() == {"actor/1"} and watched.is_running("actor/0")
    # Now all have failed: a process that dies is not started as often as one that raises.
    with pytest.raises(supervisor.ProgramFailed, match=f"Node actor/0 failed {2 if died else 6} times"):
        for _ in range(6):
            end(watched, script, clock, "actor/0", "broken", died=died)


def test_a_node_that_is_doomed_ends_the_program_at_once(
    watched: supervisor.Supervisor, script: Script
) -> None:
    script.ends = [graph.Ended("actor", graph.NodeDoomed("the disk is full"), died=False)]
    with pytest.raises(supervisor.ProgramFailed, match="^the disk is full$"):
        watched.watch(0.0)
    assert not watched.is_expected("actor")


def test_a_lost_engine_ends_the_program_at_once(watched: supervisor.Supervisor, script: Script) -> None:
    script.lost = ["the head is gone"]
    with pytest.raises(supervisor.ProgramFailed, match="^the head is gone$"):
        watched.watch(0.0)
    assert script.started == [("actor", 0), ("evaluator", 0)]
    watched.watch(0.0)  # what is left can still be ended


def test_the_ends_of_all_nodes_are_noted_though_one_of_them_ends_the_program(
    watched: supervisor.Supervisor, script: Script
) -> None:
    doomed = graph.Ended("actor", graph.NodeDoomed("no space"), died=False)
    script.ends = [doomed, graph.Ended("evaluator", None, died=False)]
    with pytest.raises(supervisor.ProgramFailed):
        watched.watch(0.0)
    assert watched.has_returned("evaluator")


@pytest.mark.parametrize(
    ("error", "died", "reason"),
    [
        (OSError("no space"), False, "OSError: no space"),
        (RuntimeError("killed"), True, "its process died"),
        (graph.NodeLeft("asked to"), True, None),
    ],
)
def test_how_a_node_ends_that_is_asked_to_is_not_dropped(
    watched: supervisor.Supervisor,
    script: Script,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    died: bool,
    reason: str | None,
) -> None:
    watched.ask_to_end(["actor"])
    script.ends = [graph.Ended("actor", error, died)]
    assert watched.wait_for_end(["actor"], 1.0) == []
    assert watched.end_errors.get("actor") == reason
    assert caplog.messages == ([] if reason is None else [f"actor failed while it ended: {reason}"])


def test_a_node_that_dies_at_once_waits_longer_each_time(
    watched: supervisor.Supervisor, script: Script, clock: Clock
) -> None:
    pauses = []
    watched.has_worked = lambda name, incarnation: True
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
