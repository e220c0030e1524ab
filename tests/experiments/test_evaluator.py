import time
import types

import numpy as np
import pytest

from minerva_acme import counting, specs, testing
from minerva_acme.experiments import evaluator, seeds, signals
from minerva_acme.runs import evaluation


class FakeRun:
    """Its next environments have episodes of `lengths`; one of n steps returns n * (n + 1) / 2."""

    def __init__(self):
        self.lengths = []
        self.environment_seeds = []
        self.actor = testing.FakeActor(np.zeros(2, np.float32))
        self.steps = 0
        self.counter = counting.Counter()
        self.seeds = seeds.Seeds(0)
        self.spec = specs.make_environment_spec(testing.FakeEnvironment())
        self.logs = types.SimpleNamespace(evaluator=testing.FakeLogger())
        self.config = types.SimpleNamespace(
            environment_factory=self.make_environment,
            evaluation_environment_factory=None,
            evaluation_environments=1,
            evaluation_episodes=2,
            evaluation_observers=(),
            evaluation_period=10,
            metric="episode_return",
            evaluation_video=False,
            steps_key="actor_steps",
            torch_device="cpu",
        )

    def make_evaluation_actor(self, in_vector):
        return self.actor

    def make_environment(self, seed):
        self.environment_seeds.append(seed)
        return testing.FakeEnvironment(episode_length=self.lengths.pop(0))


@pytest.fixture
def run():
    return FakeRun()


@pytest.fixture
def stop():
    return signals.StopRequest()


def evaluate_at(run, evaluations, steps, *lengths):
    run.steps = steps
    run.lengths = list(lengths)
    return evaluations.evaluate(signals.StopRequest())


def test_random_actions_and_the_untrained_policy_are_evaluated_once(run, stop):
    evaluations = evaluator.Evaluator(run)
    run.lengths = [2, 3]
    evaluations.evaluate_before_training(stop)
    evaluations.evaluate_before_training(stop)
    assert evaluations.random == evaluation.Evaluation((3.0, 3.0), (2, 2))
    assert evaluations.before == evaluation.Evaluation((6.0, 6.0), (3, 3))
    assert len(run.actor.actions) == 2 * 3  # the random actor's are not its own
    # The policy alone is logged; neither counts as an evaluation of what was learned.
    assert [row["episode_return"] for row in run.logs.evaluator.rows] == [6.0]
    assert evaluations.latest is evaluations.best is None


def test_the_best_evaluation_is_kept_with_its_environment_step(run):
    evaluations = evaluator.Evaluator(run)
    assert [
        evaluate_at(run, evaluations, steps, length) for steps, length in ((10, 2), (20, 4), (30, 3))
    ] == [True] * 3
    assert evaluations.latest == (30, evaluation.Evaluation((6.0, 6.0), (3, 3)))
    assert evaluations.best == (20, evaluation.Evaluation((10.0, 10.0), (4, 4)))
    assert len(set(run.environment_seeds)) == 3
    assert run.actor.num_updates >= 3


def test_an_evaluation_begins_with_the_newest_weights(run):
    tape = []

    class TapedActor(testing.FakeActor):
        def select_action(self, observation):
            tape.append("select_action")
            return super().select_action(observation)

        def update(self, wait=False):
            if wait:
                tape.append("newest weights")

    run.actor = TapedActor(np.zeros(2, np.float32))
    evaluations = evaluator.Evaluator(run)
    for steps in (10, 20):
        evaluate_at(run, evaluations, steps, 1)
    episodes = ["select_action"] * 2
    assert tape == ["newest weights", *episodes, "newest weights", *episodes]


def test_the_same_environment_step_is_not_evaluated_again(run):
    evaluations = evaluator.Evaluator(run)
    assert evaluate_at(run, evaluations, 10, 2)
    assert not evaluate_at(run, evaluations, 10)
    assert len(run.environment_seeds) == 1


def test_an_evaluation_that_was_stopped_leaves_no_trace(run, stop):
    stop.signal_name = "SIGINT"
    evaluations = evaluator.Evaluator(run)
    run.lengths = [2, 2]
    evaluations.evaluate_before_training(stop)
    assert not evaluations.evaluate(stop)
    state = evaluations.save()
    del state["walltime"]
    nothing = dict.fromkeys(("random", "before", "latest", "best"))
    assert state == nothing | {"metric": "episode_return"}
    assert run.logs.evaluator.rows == []


def test_an_evaluation_is_due_once_in_each_period(run):
    evaluations = evaluator.Evaluator(run)
    due = []
    for run.steps in range(3, 33, 3):  # three environments
        if evaluations.is_due():
            due.append(run.steps)
            evaluate_at(run, evaluations, run.steps, 2)
    assert due == [12, 21, 30]
    run.steps = 45
    assert evaluations.is_due()
    run.config.evaluation_episodes, episodes = 0, run.config.evaluation_episodes
    assert not evaluations.is_due()
    run.config.evaluation_episodes, run.config.evaluation_period = episodes, 0
    assert not evaluations.is_due()


def test_an_evaluation_that_was_cut_short_stays_due(run):
    evaluations = evaluator.Evaluator(run)
    run.steps, run.lengths, stop = 10, [2], signals.StopRequest()
    stop.signal_name = "SIGINT"
    assert not evaluations.evaluate(stop)
    resumed = evaluator.Evaluator(run)
    resumed.restore(evaluations.save())
    assert resumed.is_due()


def test_the_last_evaluation_that_was_logged_is_told_by_its_step(run, stop):
    evaluations = evaluator.Evaluator(run)
    assert evaluations.logged_until == -1
    run.lengths = [2, 2]
    evaluations.evaluate_before_training(stop)
    assert evaluations.logged_until == 0
    evaluate_at(run, evaluations, 10, 2)
    assert evaluations.logged_until == 10


def test_an_evaluation_tells_the_time_of_all_sessions_of_the_run(run, stop):
    first = evaluator.Evaluator(run)
    cpu, wall = time.process_time(), time.monotonic()
    # Other threads of the process may run too, so that its CPU time is ahead of the clock.
    while time.process_time() < cpu + 0.03 or time.monotonic() < wall + 0.03:
        sum(range(1000))
    evaluate_at(run, first, 10, 2)
    (row,) = run.logs.evaluator.rows
    assert row["wall_seconds"] >= 0.03 and 0.01 <= row["cpu_seconds"] < 5.0
    resumed = evaluator.Evaluator(run)
    resumed.restore({**first.save(), "walltime": (100.0, 30.0)})
    evaluate_at(run, resumed, 20, 2)
    again = run.logs.evaluator.rows[-1]
    assert 100.0 <= again["wall_seconds"] < 105.0 and 30.0 <= again["cpu_seconds"] < 35.0
    resumed.restore({name: value for name, value in first.save().items() if name != "walltime"})
    assert resumed.save()["walltime"][0] < 5.0  # of a version that did not note it


def test_restored_evaluations_are_those_that_were_saved(run, stop):
    evaluations, restored = evaluator.Evaluator(run), evaluator.Evaluator(run)
    restored.restore(evaluations.save())
    run.lengths = [2, 3]
    evaluations.evaluate_before_training(stop)
    evaluate_at(run, evaluations, 10, 4)
    evaluate_at(run, evaluations, 20, 3)
    restored.restore(evaluations.save())
    for name in ("random", "before", "latest", "best"):
        assert getattr(restored, name) == getattr(evaluations, name) is not None
    assert isinstance(restored.before, evaluation.Evaluation)


def test_evaluations_that_take_long_are_warned_of_before_the_first(run, stop, caplog, monkeypatch):
    monkeypatch.setattr(evaluator, "_MEASURED_SECONDS", 0.2)
    run.config.num_steps, run.config.evaluation_period = 100, 30
    run.lengths = [3] * 10
    run.config.evaluation_episodes = 10**9
    evaluations = evaluator.Evaluator(run)
    monkeypatch.setattr(evaluations, "_play", lambda *arguments: None)
    evaluations.evaluate_before_training(stop)
    (record,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert record.getMessage().startswith("The evaluations of this run will take about ")
    assert "6 of 1,000,000,000 episodes, each of " in record.getMessage()
    assert "Lower `evaluation_episodes`, or raise `evaluation_period`" in record.getMessage()
    assert not run.logs.evaluator.rows


def test_an_episode_that_does_not_end_in_time_takes_at_least_that_long(run, stop, caplog, monkeypatch):
    monkeypatch.setattr(evaluator, "_MEASURED_SECONDS", 0.05)
    run.config.num_steps = 100
    run.lengths = [10**9]
    run.config.evaluation_episodes = 10_000
    evaluations = evaluator.Evaluator(run)
    monkeypatch.setattr(evaluations, "_play", lambda *arguments: None)
    monkeypatch.setattr(evaluator, "_LONG_SECONDS", 12 * 10_000 * 0.05 - 1)
    evaluations.evaluate_before_training(stop)
    assert "will take at least " in caplog.text


def test_evaluations_of_a_usual_length_are_not_measured_beforehand(run, stop, caplog):
    run.lengths = [3] * 2
    evaluator.Evaluator(run).evaluate_before_training(stop)
    assert not run.lengths and not caplog.records


@pytest.mark.parametrize(
    ("num_steps", "period", "made", "expected"),
    [(100, 30, 0, 6), (100, 0, 0, 3), (100, 30, 50, 2), (90, 30, 0, 5)],
)
def test_the_evaluations_of_a_run_are_counted(run, num_steps, period, made, expected):
    run.config.num_steps, run.config.evaluation_period = num_steps, period
    assert evaluator.count_evaluations(run.config, made) == expected
    run.config.evaluation_episodes = 0
    assert evaluator.count_evaluations(run.config, made) == 0
