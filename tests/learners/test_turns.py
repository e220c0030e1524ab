"""Threads take turns in the order in which they ask."""

import threading
from concurrent import futures

import pytest

from minerva_acme.learners import turns

SOON = 20.0  # seconds that nothing here takes


def wait_until_drawn(lock, number):
    for _ in range(2000):
        if lock._next == number:
            return
        threading.Event().wait(0.01)
    pytest.fail("nobody came")


def test_who_asks_first_comes_first():
    lock, order = turns.Turns(), []

    def come(name):
        with lock.take():
            order.append(name)

    with futures.ThreadPoolExecutor(3) as pool:
        with lock.take():
            for number, name in enumerate("abc", start=2):
                pool.submit(come, name)
                wait_until_drawn(lock, number)
        with lock.take():  # again at once, but behind the others
            order.append("d")
    assert order == ["a", "b", "c", "d"]


def test_a_turn_within_a_turn_needs_no_waiting_and_leaves_the_others_out():
    lock, order = turns.Turns(), []

    def come():
        with lock.take():
            order.append("other")

    with futures.ThreadPoolExecutor(1) as pool, lock.take():
        with lock.take():
            pool.submit(come)
            wait_until_drawn(lock, 2)
        order.append("own")
    assert order == ["own", "other"]


def test_who_stops_waiting_and_who_fails_keeps_nobody_waiting(monkeypatch):
    lock, went_on = turns.Turns(), threading.Event()

    def stop(*_, **__):
        raise KeyboardInterrupt

    with pytest.raises(RuntimeError, match="failed"), lock.take():
        wait_for = lock._condition.wait_for
        monkeypatch.setattr(lock._condition, "wait_for", stop)
        with futures.ThreadPoolExecutor(1) as pool:
            assert isinstance(pool.submit(lock.take().__enter__).exception(SOON), KeyboardInterrupt)
        monkeypatch.setattr(lock._condition, "wait_for", wait_for)
        raise RuntimeError("failed")

    def come():
        with lock.take():
            went_on.set()

    with futures.ThreadPoolExecutor(1) as pool:
        pool.submit(come).result(SOON)
    assert went_on.is_set()
