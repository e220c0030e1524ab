import logging
import threading
import time

import pytest

from minerva_acme import actors, core, testing


class Source(core.VariableSource):
    """Answers with what a test puts into `version` and `error`; with a gate, once it is opened."""

    def __init__(self, gate=None):
        self.version, self.error, self.gate = 1, None, gate
        self.requests = []

    def get_variables(self, names):
        return [f"{name} {self.version}" for name in names]

    def poll_variables(self, names, newer_than=None):
        self.requests.append(newer_than)
        if self.gate is not None:
            assert self.gate.wait(5.0)
        if self.error is not None:
            raise self.error
        return core.VersionedVariables(self.version, self.get_variables(names))


class Unversioned(core.VariableSource):
    def get_variables(self, names):
        return list(names)


def make_client(source, **options):
    got = []
    return actors.VariableClient(source, ["a", "b"], got.append, **({"update_period": 1} | options)), got


def wait_until(condition):
    deadline = time.monotonic() + 5.0
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def update_until_answered(client):
    """Calls `update` until the request in the background has been taken."""
    wait_until(lambda: client._in_flight is None or client._in_flight.answer.done())
    client.update()


def test_nothing_is_fetched_before_the_first_update_which_fetches():
    source = Source()
    client, got = make_client(source, update_period=10)
    assert source.requests == [] and client.version is None and client.staleness_seconds == float("inf")
    client.update()
    assert got == [["a 1", "b 1"]]
    assert client.version == 1
    assert 0.0 <= client.staleness_seconds < 5.0


def test_a_period_in_steps_counts_calls_of_update():
    source = Source()
    client, _ = make_client(source, update_period=3)
    asked = []
    for _ in range(7):
        client.update()
        asked.append(len(source.requests))
    assert asked == [1, 1, 1, 2, 2, 2, 3]


def test_a_period_in_seconds_counts_time(monkeypatch):
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    source = Source()
    client, _ = make_client(source, update_period=None, update_period_seconds=2.0)
    asked = []
    for now in (100.0, 101.0, 101.9, 102.0, 103.0, 104.5):  # noqa: B007 -- read by the clock
        client.update()
        asked.append(len(source.requests))
    assert asked == [1, 1, 1, 2, 2, 3]


def test_waiting_fetches_whatever_the_period():
    source = Source()
    client, got = make_client(source, update_period=1000)
    for source.version in (1, 2, 3):
        client.update(wait=True)
    assert [values[0] for values in got] == ["a 1", "a 2", "a 3"]


def test_the_source_is_told_what_is_here_and_sends_nothing_in_vain():
    learner, got = testing.FakeLearner(), []
    client = actors.VariableClient(learner, ["policy"], got.append, update_period=1)
    for _ in range(3):
        client.update()
    assert len(got) == 1 and client.version == 0
    learner.step()
    client.update()
    assert len(got) == 2 and client.version == 1


def test_versions_never_go_back():
    source = Source()
    client, got = make_client(source)
    for source.version in (5, 4, 5, 6):
        client.update()
    assert [values[0] for values in got] == ["a 5", "a 6"]
    assert client.version == 6
    assert client.num_ignored == 1
    assert source.requests == [None, 5, 5, 5]


def test_an_older_answer_leaves_the_variables_stale(monkeypatch):
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    source = Source()
    client, _ = make_client(source)
    client.update()
    now, source.version = 101.0, 0
    client.update()
    assert client.staleness_seconds == 1.0
    now, source.version = 102.0, 1
    client.update()
    assert client.staleness_seconds == 0.0


def test_a_source_without_versions_is_always_followed():
    client, got = make_client(Unversioned())
    for _ in range(3):
        client.update()
    assert got == [["a", "b"]] * 3
    assert client.version is None


def test_a_failure_is_raised_by_the_update_that_met_it():
    source = Source()
    source.error = ConnectionError("the learner is gone")
    client, got = make_client(source)
    with pytest.raises(ConnectionError, match="the learner is gone") as caught:
        client.update()
    assert "while fetching variables ['a', 'b']" in caught.value.__notes__[0]
    source.error = None
    client.update()
    assert len(got) == 1 and client.num_failures == 1


def test_failures_in_a_row_are_tolerated_up_to_their_number_and_logged(caplog):
    source = Source()
    client, got = make_client(source, max_failures=2)
    with caplog.at_level(logging.WARNING):
        for error in (OSError("1"), OSError("2"), None, OSError("3"), OSError("4")):
            source.error = error
            client.update()
    assert [record.args[1] for record in caplog.records] == [1, 2, 1, 2]
    source.error = OSError("5")
    with pytest.raises(OSError, match="5"):
        client.update()
    assert len(got) == 1 and client.num_failures == 5


def test_waiting_tolerates_no_failure():
    source = Source()
    source.error = OSError("unreachable")
    client, _ = make_client(source, max_failures=100)
    with pytest.raises(OSError, match="unreachable"):
        client.update(wait=True)


def test_an_interrupted_update_is_not_the_last():
    source = Source()
    source.error = KeyboardInterrupt()
    client, got = make_client(source)
    with pytest.raises(KeyboardInterrupt):
        client.update()
    source.error = None
    client.update()
    assert len(got) == 1 and client.num_failures == 0


def test_in_the_background_nothing_waits_and_one_request_is_under_way():
    source = Source(threading.Event())
    client, got = make_client(source, asynchronous=True)
    for _ in range(20):
        client.update()
    assert got == []
    source.gate.set()
    update_until_answered(client)
    assert len(source.requests) <= 2 and [values[0] for values in got] == ["a 1"]


def test_variables_are_handed_on_by_the_thread_that_updates():
    threads = []
    source = Source()
    client = actors.VariableClient(
        source,
        ["a"],
        lambda _: threads.append(threading.current_thread()),
        update_period=1,
        asynchronous=True,
    )
    client.update()
    update_until_answered(client)
    assert threads == [threading.current_thread()]


def test_a_failure_in_the_background_is_raised_by_a_later_update():
    source = Source()
    source.error = ConnectionError("the learner is gone")
    client, _ = make_client(source, asynchronous=True)
    client.update()
    with pytest.raises(ConnectionError, match="the learner is gone"):
        update_until_answered(client)


def test_waiting_takes_what_is_under_way_and_asks_again():
    source = Source(threading.Event())
    client, got = make_client(source, asynchronous=True)
    client.update()
    threading.Timer(0.02, source.gate.set).start()
    client.update(wait=True)
    assert source.requests == [None, 1]
    assert [values[0] for values in got] == ["a 1"]
    source.version = 2
    client.update(wait=True)
    assert [values[0] for values in got] == ["a 1", "a 2"]


def test_closing_does_not_wait_for_an_answer_and_drops_it():
    source = Source(threading.Event())
    client, got = make_client(source, asynchronous=True)
    client.update()
    client.close()
    client.close()
    source.gate.set()
    with pytest.raises(ValueError, match="The variable client is closed"):
        client.update()
    assert got == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"update_period": None}, "Exactly one of `update_period` and `update_period_seconds` must be given"),
        ({"update_period_seconds": 1.0}, "must be given, got 1 and 1.0"),
        ({"update_period": 0}, "`update_period` must be >= 1 call of update, got 0"),
        (
            {"update_period": None, "update_period_seconds": 0.0},
            "`update_period_seconds` must be > 0, got 0.0",
        ),
        ({"max_failures": -1}, "`max_failures` must be >= 0, got -1"),
    ],
)
def test_periods_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        make_client(Source(), **options)


def test_variables_that_are_here_already_are_not_handed_on_again():
    source = Source()
    client, got = make_client(source)
    client.update()
    client.update()
    assert len(source.requests) == 2 and len(got) == 1 and client.num_ignored == 0


class Remote:
    """A source behind a connection: `poll_variables` is all of it. It answers what a test puts in a list."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def poll_variables(self, names, newer_than=None):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer and core.VersionedVariables(answer, [f"{name} {answer}" for name in names])


def test_a_remote_source_needs_nothing_but_to_be_polled_and_its_failures_are_counted(caplog):
    source: core.RemoteVariableSource = Remote(3, TimeoutError("no answer from learner:1 in 5 s"), None, 4)
    client, got = make_client(source, max_failures=1)
    for _ in range(4):
        client.update()
    assert got == [["a 3", "b 3"], ["a 4", "b 4"]]
    assert (client.version, client.num_failures) == (4, 1)
    assert "no answer from learner:1 in 5 s" in caplog.text


def test_a_remote_source_that_stays_away_is_an_error_of_the_actor():
    client, _ = make_client(Remote(ConnectionError("refused"), ConnectionError("refused")), max_failures=1)
    client.update()
    with pytest.raises(ConnectionError, match="refused"):
        client.update()


class AcmesSource:
    """Has what Acme asks of a variable source, and no more."""

    def __init__(self):
        self.num_requests = 0

    def get_variables(self, names):
        self.num_requests += 1
        return [f"{name} {self.num_requests}" for name in names]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_source_that_can_only_give_its_variables_is_asked_for_them_each_period(asynchronous):
    source = AcmesSource()
    client, got = make_client(source, update_period=2, asynchronous=asynchronous)
    client.update(wait=True)
    for _ in range(4):
        client.update()
        if asynchronous and client._in_flight is not None:
            update_until_answered(client)
            break
    assert got[:2] == [["a 1", "b 1"], ["a 2", "b 2"]]
    assert client.version is None and client.num_failures == 0


def test_what_is_no_source_is_refused_at_once():
    with pytest.raises(
        ValueError, match="`source` must have `poll_variables` or `get_variables`, got a dict"
    ):
        make_client({})
