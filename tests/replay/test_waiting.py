"""Waits that report, stop and end: by a clock of their own, and on both stores."""

import contextvars
import logging
import threading
import time

import pytest

from minerva_acme import replay
from minerva_acme.replay import base, waiting
from minerva_acme.replay.dataset import Dataset

EMPTY = base.ReplayTimeout("Waiting for 5 items, has 0.", held_back=True)


class Clock:
    now = 100.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(waiting, "time", clock)
    return clock


def wait_for(clock, wait, seconds, reason=EMPTY):
    """Waits on the fake clock, in slices."""
    end = clock.now + seconds
    while clock.now < end:
        clock.now += wait.slice()
        wait.go_on(reason)


def test_a_wait_says_what_for_after_10_s_as_a_warning_and_then_ever_more_rarely(clock, caplog):
    caplog.set_level(logging.WARNING, "minerva_acme")
    wait = waiting.Wait()
    wait_for(clock, wait, 9.5)
    assert not caplog.messages
    wait_for(clock, wait, 90.5)
    assert caplog.messages == [f"Waiting for 5 items, has 0. Waited {n} s so far." for n in (10, 20, 40, 80)]
    wait_for(clock, wait, 3600.0)
    assert 8 <= len(caplog.messages) <= 12
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_a_thread_may_leave_rate_limiters_to_another_and_tells_of_all_else(clock, caplog):
    with waiting.rules(tells_of_limiters=False):
        wait_for(clock, waiting.Wait(), 60.0)
        assert EMPTY.held_back and not caplog.messages
        wait, silence = waiting.Wait(), base.ReplaySilence("The server does not answer.")
        clock.now += 15.0
        wait.go_on(silence)
    assert caplog.messages == ["The server does not answer. Waited 15 s so far."]


def test_a_wait_with_a_limit_ends_there_with_its_reason(clock):
    wait = waiting.Wait(timeout_seconds=1.2)
    wait_for(clock, wait, 1.0)
    assert wait.slice() == pytest.approx(0.2)
    clock.now += 0.2
    with pytest.raises(base.ReplayTimeout) as caught:
        wait.go_on(EMPTY)
    assert caught.value is EMPTY


def test_a_thread_that_is_alone_ends_its_wait_when_asked_to_stop(clock):
    stop = []
    with waiting.rules(lambda: bool(stop), is_alone=True):
        wait = waiting.Wait()
        wait_for(clock, wait, 1.0)
        stop.append(True)
        with pytest.raises(base.ReplayStopped, match="Waiting for 5 items"):
            wait.go_on(EMPTY)
        with waiting.rules(is_alone=True):  # as while saving
            wait_for(clock, waiting.Wait(), 1.0)
    wait_for(clock, waiting.Wait(), 60.0)  # not alone any more


def test_a_thread_that_is_alone_never_waits_for_a_rate_limiter(clock):
    with (
        waiting.rules(is_alone=True),
        pytest.raises(base.ReplayDeadlock, match="has 0. This would wait forever"),
    ):
        wait_for(clock, waiting.Wait(), 5.0)


def test_only_a_rate_limiter_that_nothing_moves_makes_a_wait_endless(clock):
    with waiting.rules(is_alone=True):
        wait = waiting.Wait()
        for taken in range(10):
            wait_for(clock, wait, 1.5, base.ReplayTimeout(f"{taken} have come.", held_back=True))
        wait_for(clock, wait, 60.0, base.ReplayTimeout("The server is slow."))
        with pytest.raises(base.ReplayDeadlock):
            wait_for(clock, wait, 3.0)


def test_other_threads_are_not_alone(clock):
    failures = []

    def wait():
        try:
            wait_for(clock, waiting.Wait(), 10.0)
        except base.ReplayError as error:
            failures.append(error)

    with waiting.rules(lambda: True, is_alone=True):
        # In a copy of this thread's context, as free-threaded Python starts threads.
        thread = threading.Thread(target=contextvars.copy_context().run, args=[wait])
        thread.start()
        thread.join()
    assert not failures


def test_a_call_gives_its_result_its_error_or_the_reason():
    assert waiting.call(lambda: 7, EMPTY) == 7
    with pytest.raises(ZeroDivisionError):
        waiting.call(lambda: 1 / 0, EMPTY)
    release = threading.Event()
    with pytest.raises(base.ReplayTimeout, match="Waiting for 5 items"):
        waiting.call(release.wait, EMPTY, timeout_seconds=0.1)
    release.set()


@pytest.fixture(params=["memory", pytest.param("reverb", marks=pytest.mark.reverb)])
def serve_any(request, monkeypatch):
    """Starts a server of either store, whose users look more often than usual whether to go on."""
    monkeypatch.setattr(waiting, "SLICE_SECONDS", 0.05)
    monkeypatch.setattr(waiting, "_STILL_SECONDS", 0.3)
    servers = []

    def serve(*tables):
        servers.append(replay.make_server(tables, request.param, seed=0))
        return servers[-1]

    yield serve
    for server in servers:
        server.close()


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("stops", [True, False])
def test_a_dataset_over_an_empty_table_ends_on_both_stores(serve_any, table, prefetch, stops):
    client = serve_any(table(rate_limiter=replay.MinSize(5))).client()
    expected = base.ReplayStopped if stops else base.ReplayDeadlock
    start = time.monotonic()
    with (
        Dataset(client.sampler("replay"), lambda fields: fields, 8, prefetch=prefetch) as dataset,
        waiting.rules(lambda: stops, is_alone=True),
        pytest.raises(expected, match="Waiting for"),
    ):
        next(dataset)
    assert time.monotonic() - start < 60.0  # not for ever, also on a busy machine


@pytest.mark.parametrize("stops", [True, False])
def test_a_writer_to_a_full_queue_ends_on_both_stores(serve_any, table, write_with, stops):
    queue = table(rate_limiter=replay.Queue(5), sampler=replay.Fifo(), max_times_sampled=1)
    expected = base.ReplayStopped if stops else base.ReplayDeadlock
    start = time.monotonic()
    with (
        serve_any(queue).client().writer(3) as writer,
        waiting.rules(lambda: stops, is_alone=True),
        pytest.raises(expected, match="holds inserts back: 5 inserted"),
    ):
        write_with(writer, num_items=100)
    assert time.monotonic() - start < 60.0  # not for ever, also on a busy machine


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_wait_in_a_dataset_warns_on_both_stores(serve_any, table, prefetch, monkeypatch, caplog):
    monkeypatch.setattr(waiting, "_REPORT_SECONDS", 0.0)
    client = serve_any(table(rate_limiter=replay.MinSize(5))).client()
    with (
        Dataset(client.sampler("replay"), lambda fields: fields, 8, prefetch=prefetch) as dataset,
        pytest.raises(replay.ReplayTimeout),
    ):
        dataset.next(timeout_seconds=0.3)
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert any("Waiting for 5 items in table 'replay', has 0." in warning for warning in warnings)


@pytest.mark.reverb
def test_a_dead_server_ends_a_wait_that_has_no_limit(server_process, write):
    # On a busy machine, the server has taken more than 10 seconds to answer.
    write(replay.ReverbClient(server_process.address, answer_seconds=60.0), num_items=5)
    client = replay.ReverbClient(server_process.address, timeout_seconds=0.5, answer_seconds=0.5)
    with Dataset(client.sampler("replay", exact=True), lambda fields: fields, 100, prefetch=1) as dataset:
        next(dataset)
        server_process.kill()
        with pytest.raises(replay.ReplayError, match="does not answer"):
            for _ in range(1000):
                next(dataset)
