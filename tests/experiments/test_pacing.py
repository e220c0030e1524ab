import types

import pytest

from minerva_acme import counting
from minerva_acme.experiments import pacing, signals
from minerva_acme.replay import base as replay


class FakeRun:
    """One learner step is due for every two items; `calls` is what was asked of learner, actor and adders."""

    def __init__(self):
        self.calls = []
        self.counter = counting.Counter()
        self.tables = [
            types.SimpleNamespace(name="replay", max_times_sampled=0),
            types.SimpleNamespace(name="queue", max_times_sampled=1),
        ]
        self.size = 5
        self.client = types.SimpleNamespace(
            table_info=lambda name: replay.TableInfo(name, self.size, 100, 6, 0, 1)
        )
        self.config = types.SimpleNamespace(
            builder=types.SimpleNamespace(
                learner_steps_due=lambda num_inserted: num_inserted // 2,
                max_inserted=lambda num_env_steps: num_env_steps // 4,
            ),
            num_env_steps=100,
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
    assert pacer.save() == {"inserted": 6, "learned": 1, "replay_sizes": {"replay": 5}}


def test_a_restored_pacer_adds_to_what_was_inserted_and_learned_before(run):
    pacer = pacing.Pacer(run)
    pacer.restore({"inserted": 7, "learned": 2, "replay_sizes": {"replay": 5}})
    pacer.learn(signals.StopRequest())
    assert run.calls.count("step") == 1
    run.adders[0].num_inserted = 1
    pacer.learn(signals.StopRequest())
    assert run.calls.count("step") == 2
    assert pacer.save() == {"inserted": 8, "learned": 4, "replay_sizes": {"replay": 5}}


def test_a_step_whose_wait_was_stopped_stays_due(run):
    def step():
        raise replay.ReplayStopped("Asked to stop.")

    pacer = pacing.Pacer(run)
    run.learner.step = step
    run.adders[0].num_inserted = 2
    pacer.learn(signals.StopRequest())
    assert pacer.save()["learned"] == 0


@pytest.mark.parametrize(
    ("before", "way_out"), [(0, "`learner_steps_due` of"), (7, "Resume from another checkpoint")]
)
def test_a_wait_without_end_says_what_the_run_believes(run, before, way_out):
    def step():
        raise replay.ReplayDeadlock("Waiting for 20 items in table 'replay', has 5.")

    pacer = pacing.Pacer(run)
    pacer.restore({"inserted": before, "learned": 0, "replay_sizes": {"replay": 5}})
    run.learner.step = step
    run.adders[0].num_inserted = 2
    said = f"has 5. .* {before + 2} items written, {before} of them .*{way_out}"
    with pytest.raises(replay.ReplayDeadlock, match=said):
        pacer.learn(signals.StopRequest())


def test_a_replay_that_came_back_with_less_is_refused(run):
    state = pacing.Pacer(run).save()
    pacing.Pacer(run).restore(state)
    run.size = 4
    with pytest.raises(replay.ReplayError, match="Table 'replay' was restored with 4 items, but held 5 when"):
        pacing.Pacer(run).restore(state)


@pytest.mark.parametrize(("num_env_steps", "is_warned"), [(7, True), (8, False), (0, False)])
def test_a_run_that_is_too_short_to_learn_is_warned_of_at_once(run, caplog, num_env_steps, is_warned):
    run.config.num_env_steps = num_env_steps
    pacing.Pacer(run)
    said = "Nothing will be learned: the run makes 7 environment steps, and the first learner step needs 8 at"
    assert (said in caplog.text) is is_warned


def test_without_environment_steps_those_are_made_that_are_asked_for(run):
    run.config.num_env_steps = 0
    pacer, stop = pacing.Pacer(run), signals.StopRequest()
    pacer.learn(stop)
    assert run.calls.count("step") == 0
    for _ in range(3):
        pacer.learn(stop, without_playing=1)
    assert run.calls.count("step") == 3
    stop.signal_name = "SIGINT"
    pacer.learn(stop, without_playing=1)
    assert run.calls.count("step") == 3


def test_a_dataset_that_ends_is_an_error_which_says_so(run):
    def step():
        next(iter([]))

    run.config.num_env_steps, run.learner.step = 0, step
    with pytest.raises(ValueError, match="an endless iterator, got one that ended after 0 batches"):
        pacing.Pacer(run).learn(signals.StopRequest(), without_playing=1)
