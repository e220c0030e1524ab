"""Actors make the run's environment steps together, and no more."""

import contextlib
import pathlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from minerva_acme.distributed import counter_node, graph, reports
from tests.distributed import test_counts

pytestmark = pytest.mark.promise("Actors take the run's steps and at most one more per environment")

NUM_STEPS = 600  # of `small.experiment`


def report(node: str, incarnation: int, number: int, steps: int, *, wants: int = 1) -> counter_node.Report:
    counts: counter_node.Counts = {"actor_steps": steps}
    return counter_node.Report(node, incarnation, number, counts, {}, [], False, wants, steps > 0)


@pytest.fixture
def counter(tmp_path: pathlib.Path) -> Iterator[counter_node.CounterNode]:
    with test_counts.Running(test_counts.make(tmp_path)) as counter:
        yield counter


class Player:
    """An actor that plays, reports and dies as it is told to."""

    def __init__(self, name: str, num_environments: int) -> None:
        self.name = name
        self.num_environments = num_environments
        self.incarnation = -1
        self.begin()

    def begin(self) -> None:
        """Begins again, without the steps that were not reported."""
        self.incarnation += 1
        self.number = self.steps = self.lease = 0

    def play(self, num_calls: int) -> None:
        """Steps all environments as often as that, or until the lease is used up."""
        for _ in range(num_calls):
            if self.steps < self.lease:
                self.steps += self.num_environments

    def report(self, counter: counter_node.CounterNode, *, waits: bool = False) -> None:
        """Reports. Args: waits: Whether it wants no steps for now."""
        self.number += 1
        wants = 0 if waits else self.num_environments
        said = report(self.name, self.incarnation, self.number, self.steps, wants=wants)
        self.lease = counter.report(said).lease


@pytest.mark.parametrize(("num_actors", "num_environments"), [(1, 1), (2, 1), (7, 3), (3, 64)])
def test_together_they_make_no_step_too_many_whoever_dies_or_waits(
    tmp_path: pathlib.Path, num_actors: int, num_environments: int
) -> None:
    draw = np.random.default_rng(num_actors)
    players = [Player(f"actor/{index}", num_environments) for index in range(num_actors)]
    most = NUM_STEPS + num_actors * (num_environments - 1)
    made = 0
    for start in range(4):  # of the counter
        with test_counts.Running(test_counts.make(tmp_path, incarnation=start)) as counter:
            for _ in range(40):
                player = players[draw.integers(num_actors)]
                player.play(int(draw.integers(40)))
                if draw.random() < 0.05:
                    player.begin()
                player.report(counter, waits=bool(draw.random() < 0.1))
                before, made = made, int(counter.overview()["counts"].get("actor_steps", 0))
                assert before <= made <= most
    with test_counts.Running(test_counts.make(tmp_path, incarnation=4)) as counter:
        for player in players * 30:
            player.play(40)
            player.report(counter)
        made = int(counter.overview()["counts"]["actor_steps"])
    assert NUM_STEPS <= made <= most


def test_a_lease_lasts_for_a_few_reports_and_near_the_end_is_a_share_of_what_is_left(
    counter: counter_node.CounterNode,
) -> None:
    leases = []
    player = Player("actor/0", 1)
    for _ in range(12):
        player.report(counter)
        leases.append(player.lease - player.steps)
        player.play(player.lease)
    # Four times what it made, then a quarter of what is left, for there are two actors.
    assert leases[:4] == [1, 4, 16, 64] and leases[4] == (600 - 85) // 4
    assert leases[4:] == sorted(leases[4:], reverse=True)


def test_an_actor_that_makes_no_steps_holds_no_more_than_one(counter: counter_node.CounterNode) -> None:
    slow = Player("actor/0", 1)
    for _ in range(10):
        slow.report(counter)
    assert slow.lease == 1
    quick = Player("actor/1", 1)
    for _ in range(30):
        quick.report(counter)
        quick.play(quick.lease)
    assert quick.steps == NUM_STEPS - 1


@pytest.mark.parametrize("how", ["waits", "is_started_again", "is_given_up"])
def test_what_an_actor_does_not_use_returns_to_the_others(
    counter: counter_node.CounterNode, how: str
) -> None:
    first, second = Player("actor/0", 1), Player("actor/1", 1)
    for _ in range(5):
        first.report(counter)
        first.play(first.lease - (first.lease > 50))
    held = first.lease
    first.report(counter)
    assert first.lease > held > first.steps - 1
    used = first.steps
    for _ in range(30):
        second.report(counter)
        second.play(second.lease)
    assert second.steps == NUM_STEPS - first.lease
    if how == "waits":
        first.report(counter, waits=True)
        assert first.lease == used
    elif how == "is_started_again":
        first.begin()
        first.report(counter, waits=True)
    else:
        counter.put(counter_node.GIVEN_UP, {"actor/0": "failed"})
    for _ in range(30):
        second.report(counter)
        second.play(second.lease)
    assert second.steps == NUM_STEPS - used


def test_a_report_whose_answer_was_lost_is_answered_with_the_same_lease(
    counter: counter_node.CounterNode,
) -> None:
    counter.report(report("actor/0", 0, 1, 0))
    said = report("actor/0", 0, 2, 1)
    assert [counter.report(said).lease for _ in range(3)] == [5, 5, 5]


def test_leases_survive_the_counter(tmp_path: pathlib.Path) -> None:
    player = Player("actor/0", 1)
    with test_counts.Running(test_counts.make(tmp_path)) as counter:
        for _ in range(4):
            player.report(counter)
            player.play(player.lease - (player.lease > 50))
    with test_counts.Running(test_counts.make(tmp_path, incarnation=1)) as counter:
        other = Player("actor/1", 1)
        for _ in range(30):
            other.report(counter)
            other.play(other.lease)
    assert other.steps == NUM_STEPS - player.lease


def test_no_step_counts_once_counts_are_closed(counter: counter_node.CounterNode) -> None:
    counter.report(report("actor/0", 0, 1, 0))
    counter.put(counter_node.OVER, True)
    counter.report(report("actor/0", 0, 2, 1))
    assert counter.overview()["counts"] == {"actor_steps": 0}


def test_nodes_that_have_worked_are_known(counter: counter_node.CounterNode) -> None:
    counter.report(report("actor/0", 0, 1, 5))
    counter.report(report("actor/0", 1, 1, 0))
    counter.report(report("actor/1", 0, 1, 0))
    assert counter.overview()["worked"] == {"actor/0": 0}


class Leasing:
    """A counter that gives what a test says, unless it is away."""

    def __init__(self) -> None:
        self.lease = 0
        self.others = 0
        self.away = False
        self.reports: list[counter_node.Report] = []

    def call(self, method: str, *arguments: Any, timeout_seconds: float = 10.0) -> Any:
        if self.away:
            raise graph.NodeSilence("away")
        self.reports.append(arguments[0])
        return counter_node.Reply({"actor_steps": self.others}, {}, self.lease)


@pytest.fixture
def leasing() -> Leasing:
    return Leasing()


@pytest.fixture
def reporter(leasing: Leasing) -> Iterator[reports.Reporter]:
    node = graph.Node(name="actor/0", factory="m:f")
    context = graph.Context(node, 0, lambda name: leasing, threading.Event())
    reporter = reports.Reporter(context, period_seconds=0.02)
    reporter.wants = 1
    yield reporter
    leasing.away = False
    reporter.close()


@contextlib.contextmanager
def playing(reporter: reports.Reporter) -> Iterator[list[int]]:
    """Plays in a thread; gives the steps as they are made."""
    steps: list[int] = []

    def play() -> None:
        while reporter.may_play(NUM_STEPS):
            reporter.counter.tick("actor_steps")
            steps.append(len(steps) + 1)

    thread = threading.Thread(target=play)
    thread.start()
    try:
        yield steps
    finally:
        reporter._context.stop.set()
        thread.join(10.0)
        assert not thread.is_alive()


def wait_for(steps: list[int], number: int) -> None:
    deadline = time.monotonic() + 10.0
    while len(steps) < number:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_an_actor_whose_lease_is_used_up_waits_also_while_the_counter_is_away(
    reporter: reports.Reporter, leasing: Leasing
) -> None:
    leasing.lease = 7
    reporter.start()
    leasing.away = True
    with playing(reporter) as steps:
        wait_for(steps, 7)
        time.sleep(0.3)
        assert len(steps) == 7
        leasing.lease, leasing.away = 9, False
        wait_for(steps, 9)
        time.sleep(0.1)
        assert len(steps) == 9


def test_an_actor_ends_when_the_run_has_made_its_steps(reporter: reports.Reporter, leasing: Leasing) -> None:
    leasing.lease, leasing.others = 3, NUM_STEPS - 4
    reporter.start()
    with playing(reporter) as steps:
        wait_for(steps, 3)
        leasing.others = NUM_STEPS - 3
        deadline = time.monotonic() + 10.0
        while reporter.may_play(NUM_STEPS):
            assert time.monotonic() < deadline
    assert len(steps) == 3


def test_an_actor_that_wants_no_steps_for_now_may_not_use_those_that_it_had(
    reporter: reports.Reporter, leasing: Leasing
) -> None:
    leasing.lease = 5
    reporter.send()
    assert reporter._has_lease()
    reporter.wants, leasing.away = 0, True
    with contextlib.suppress(graph.NodeSilence):
        reporter.send()
    assert not reporter._has_lease()


def test_an_actor_asks_at_once_when_its_lease_is_used_up(
    leasing: Leasing,
) -> None:
    node = graph.Node(name="actor/0", factory="m:f")
    context = graph.Context(node, 0, lambda name: leasing, threading.Event())
    reporter = reports.Reporter(context, period_seconds=3600.0)
    reporter.start()
    leasing.lease = 2
    with playing(reporter) as steps:
        wait_for(steps, 2)
        assert len(steps) == 2  # none beyond the lease
    reporter.close()
