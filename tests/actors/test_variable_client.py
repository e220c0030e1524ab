import pytest

from minerva_acme import actors, core, testing


class Source(core.VariableSource):
    """Answers with what a test puts into `version` and `error`."""

    def __init__(self):
        self.version, self.error = 1, None
        self.requests = []

    def get_variables(self, names):
        return [f"{name} {self.version}" for name in names]

    def poll_variables(self, names, newer_than=None):
        self.requests.append(newer_than)
        if self.error is not None:
            raise self.error
        return core.VersionedVariables(self.version, self.get_variables(names))


class Unversioned(core.VariableSource):
    def get_variables(self, names):
        return list(names)


def make_client(source, update_period=1):
    got = []
    return actors.VariableClient(source, ["a", "b"], got.append, update_period=update_period), got


def test_nothing_is_fetched_before_the_first_update_which_fetches():
    source = Source()
    client, got = make_client(source, update_period=10)
    assert source.requests == [] and client.version is None
    client.update()
    assert got == [["a 1", "b 1"]]
    assert client.version == 1


def test_a_period_in_steps_counts_calls_of_update():
    source = Source()
    client, _ = make_client(source, update_period=3)
    asked = []
    for _ in range(7):
        client.update()
        asked.append(len(source.requests))
    assert asked == [1, 1, 1, 2, 2, 2, 3]


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
    assert len(got) == 1


def test_an_interrupted_update_is_not_the_last():
    source = Source()
    source.error = KeyboardInterrupt()
    client, got = make_client(source)
    with pytest.raises(KeyboardInterrupt):
        client.update()
    source.error = None
    client.update()
    assert len(got) == 1


def test_a_period_that_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match="`update_period` must be >= 1 call of update, got 0"):
        make_client(Source(), update_period=0)


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


def test_a_remote_source_is_polled_and_its_failure_is_an_error_of_the_actor():
    source: core.RemoteVariableSource = Remote(3, None, TimeoutError("no answer from learner:1 in 5 s"), 4)
    client, got = make_client(source)
    client.update()
    client.update()
    with pytest.raises(TimeoutError, match="no answer from learner:1 in 5 s"):
        client.update()
    client.update()
    assert got == [["a 3", "b 3"], ["a 4", "b 4"]]
    assert client.version == 4


class AcmesSource:
    """Has what Acme asks of a variable source, and no more."""

    def __init__(self):
        self.num_requests = 0

    def get_variables(self, names):
        self.num_requests += 1
        return [f"{name} {self.num_requests}" for name in names]


def test_a_source_that_can_only_give_its_variables_is_asked_for_them_each_period():
    client, got = make_client(AcmesSource(), update_period=2)
    client.update(wait=True)
    for _ in range(4):
        client.update()
    assert got == [["a 1", "b 1"], ["a 2", "b 2"], ["a 3", "b 3"]]
    assert client.version is None


def test_what_is_no_source_is_refused_at_once():
    with pytest.raises(
        ValueError, match="`source` must have `poll_variables` or `get_variables`, got a dict"
    ):
        make_client({})
