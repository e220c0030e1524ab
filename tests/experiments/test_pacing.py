import types

import pytest

from minerva_acme.experiments import pacing, signals


class FakeRun:
    """One learner step is due for every two items; `calls` is what was asked of learner, actor and adders."""

    def __init__(self):
        self.calls = []
        self.config = types.SimpleNamespace(
            builder=types.SimpleNamespace(learner_steps_due=lambda num_inserted: num_inserted // 2)
        )
        self.learner = types.SimpleNamespace(step=lambda: self.calls.append("step"))
        self.actor = types.SimpleNamespace(update=lambda: self.calls.append("update"))
        self.adders = [
            types.SimpleNamespace(num_inserted=0, flush=lambda: self.calls.append("flush")) for _ in range(2)
        ]


@pytest.fixture
def run():
    return FakeRun()


def test_the_steps_that_are_due_are_made_and_then_the_actor_takes_their_weights(run):
    pacer, stop = pacing.Pacer(run), signals.StopRequest()
    run.adders[0].num_inserted = 1
    pacer.learn(stop)
    assert run.calls == []
    run.adders[1].num_inserted = 3
    pacer.learn(stop)
    # What is buffered is sent before the learner samples for the first time.
    assert run.calls == ["flush", "flush", "step", "step", "update"]
    run.adders[1].num_inserted = 5
    pacer.learn(stop)
    assert run.calls[5:] == ["step", "update"]


def test_steps_that_a_stop_leaves_stay_due(run):
    pacer, stop = pacing.Pacer(run), signals.StopRequest()

    def step():
        run.calls.append("step")
        stop.signal_name = "SIGINT"

    run.learner.step = step
    run.adders[0].num_inserted = 6
    pacer.learn(stop)
    assert run.calls.count("step") == 1
    assert pacer.save() == {"inserted": 6, "learned": 1}


def test_a_restored_pacer_adds_to_what_was_inserted_and_learned_before(run):
    pacer = pacing.Pacer(run)
    pacer.restore({"inserted": 7, "learned": 2})
    pacer.learn(signals.StopRequest())
    assert run.calls.count("step") == 1
    run.adders[0].num_inserted = 1
    pacer.learn(signals.StopRequest())
    assert run.calls.count("step") == 2
    assert pacer.save() == {"inserted": 8, "learned": 4}
