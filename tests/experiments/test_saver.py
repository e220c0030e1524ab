import dataclasses
import types

import numpy as np
import pytest

from minerva_acme import counting, environments, experiments, runs, testing
from minerva_acme.environments import scene
from minerva_acme.experiments import saver
from minerva_acme.runs import checkpointing, evaluation
from tests.distributed import small
from tests.environments import test_gymnasium_adapter


class FakeAdder:
    def __init__(self, calls):
        self.reset = lambda: calls.append("reset")
        self.flush = lambda: calls.append("flush")


class SavingAdder(FakeAdder):
    """An adder with a state of its own."""

    state = 0

    def save(self):
        return self.state

    def restore(self, state):
        self.state = state


class FakeRun:
    """A run of two environments. `calls` is what it, its adders and its actor were asked."""

    def __init__(self, folder):
        self.calls = []
        self.steps = 0
        self.counter = counting.Counter()
        self.learner = testing.FakeLearner()
        self.dataset = iter(())
        self.policy = counting.Counter()
        self.environment = testing.FakeEnvironment()  # which cannot be saved
        self.generators = counting.Counter()
        self.adders = [FakeAdder(self.calls), SavingAdder(self.calls)]
        self.actor = types.SimpleNamespace(update=lambda wait: self.calls.append(f"update, wait={wait}"))
        self.checkpointer = checkpointing.Checkpointer(folder)
        self.has_old_replay = False
        self.recorder = self.demonstrations = None
        self.config = types.SimpleNamespace(
            builder=types.SimpleNamespace(evaluation_variables=["policy"], num_environments=2, saveables={}),
            checkpoint_period=10,
            checkpoint_replay=False,
            torch_device="cpu",
        )

    @property
    def scene(self):
        return scene.of(self.environment)

    def count(self, name):
        return self.counter.get_counts().get(name, 0)

    def end_episodes(self):
        self.calls.append("end episodes")


class FakeState(evaluation.Evaluations):
    """Pacer or evaluator."""

    def __init__(self, name):
        self.name, self.value = name, 0

    def save(self):
        return {self.name: self.value}

    def restore(self, state):
        self.value = state[self.name]


@pytest.fixture
def run(tmp_path):
    return FakeRun(tmp_path)


def make_saver(run):
    return saver.Saver(run, FakeState("evaluations"), FakeState("pace"))


@pytest.mark.parametrize(
    ("num_environments", "episodes", "due_from"),
    [(1, 10, 120), (1, 0, 120), (2, 20, 120), (2, 19, 140), (4, 40, 120), (4, 0, 180)],
)
def test_a_checkpoint_is_due_between_episodes_or_where_few_of_them_are_cut(
    run, num_environments, episodes, due_from
):
    run.config.builder.num_environments = num_environments
    run.steps = 100
    run.counter.increment(actor_episodes=1000)
    checkpoints = make_saver(run)
    checkpoints.save()
    run.counter.increment(actor_episodes=episodes)
    due = {}
    for between in (True, False):
        steps = []
        for run.steps in range(100, 200):
            if checkpoints.is_due(between_episodes=between):
                steps.append(run.steps)
        due[between] = steps
    assert due == {True: list(range(110, 200)), False: list(range(due_from, 200))}


def test_without_a_period_no_checkpoint_is_due(run):
    run.config.checkpoint_period = 0
    run.steps = 1000
    assert not make_saver(run).is_due(between_episodes=True)


def test_open_episodes_end_and_what_was_written_is_sent_before_the_run_is_saved(run):
    run.steps = 20
    checkpoints = make_saver(run)
    checkpoints.save()
    assert run.calls == ["end episodes", "flush", "flush", "update, wait=True"]
    assert checkpoints.saved_at == 20
    assert run.checkpointer.latest().name == "000000020"


def evaluated(env_steps, *returns):
    evaluations = FakeState("evaluations")
    evaluations.latest = (env_steps, runs.Evaluation(returns=returns, lengths=(1,) * len(returns)))
    return evaluations


def test_the_best_is_what_was_evaluated_at_this_step_better_than_any_checkpoint(run, tmp_path):
    def is_best(*evaluation):
        return saver.Saver(run, evaluated(*evaluation), FakeState("pace")).is_best()

    run.steps = 20
    assert not make_saver(run).is_best()
    assert is_best(20, 1.0)
    assert not is_best(10, 1.0)
    assert not is_best(20, float("nan"))
    saver.Saver(run, evaluated(20, 1.0, 2.0), FakeState("pace")).save()
    assert not is_best(20, 1.5)
    assert is_best(20, 1.6)
    run.checkpointer = checkpointing.Checkpointer(tmp_path, keep_best=False)
    assert not is_best(20, 1.6)


def test_checkpoints_are_read_only_where_there_is_an_evaluation_to_compare(run, monkeypatch):
    read = []
    monkeypatch.setattr(checkpointing, "_scan", lambda directory: read.append(run.steps) or [])
    checkpoints = saver.Saver(run, evaluated(20, 1.0), FakeState("pace"))
    for run.steps in range(10, 30):  # asked at every step of a run
        assert checkpoints.is_best() == (run.steps == 20)
    assert read == [20]


def test_the_best_is_saved_without_a_change_to_the_run(run, tmp_path):
    run.steps = 20
    run.config.checkpoint_replay = True  # which has no client to save it
    checkpoints = saver.Saver(run, evaluated(20, 3.0), FakeState("pace"))
    checkpoints.save_best()
    assert (run.calls, checkpoints.saved_at) == ([], 0)
    assert run.checkpointer.is_best(3.1) and not run.checkpointer.is_best(3.0)
    assert checkpointing.is_light(run.checkpointer.latest())


def test_resuming_from_an_older_or_a_light_checkpoint_says_what_that_means(run, tmp_path, caplog):
    run.environment = SavingAdder([])
    run.counter.increment(actor_steps=20)
    for run.steps in (20, 30, 40):
        make_saver(run).save()
    run.steps = 20
    saver.Saver(run, evaluated(20, 3.0), FakeState("pace")).save_best()
    make_saver(run).restore(tmp_path / "000000020")
    assert "000000020 holds no replay: a new one is filled before learning continues" in caplog.text
    assert "the next save removes the later ones at steps 30, 40, except the best" in caplog.text
    caplog.clear()
    run.steps = 40
    make_saver(run).restore(tmp_path / "000000040")  # back again
    assert not caplog.records


def test_every_part_is_restored_and_the_adders_begin_new_episodes(run, tmp_path):
    run.steps = 20
    run.counter.increment(actor_steps=20)
    run.policy.increment(draws=3)
    run.generators.increment(draws=7)
    run.learner.step()
    run.adders[1].state = 5
    make_saver(run).save()

    resumed = FakeRun(tmp_path)
    resumed.steps = 20
    checkpoints = make_saver(resumed)
    checkpoints.restore(resumed.checkpointer.latest())
    assert resumed.counter.get_counts() == {"actor_steps": 20}
    assert resumed.policy.get_counts() == {"draws": 3}
    assert resumed.generators.get_counts() == {"draws": 7}
    np.testing.assert_equal(resumed.learner.get_variables(["policy"]), run.learner.get_variables(["policy"]))
    assert resumed.adders[1].state == 5
    assert resumed.calls == ["reset", "reset", "update, wait=True"]
    assert checkpoints.saved_at == 20


@pytest.mark.parametrize(
    "state", [None, [{"random": 1}, None], {"random": 1, "environment": {"random": 2, "environment": None}}]
)
def test_an_environment_that_begins_with_its_seed_again_is_told(run, tmp_path, caplog, state):
    run.environment = SavingAdder([])
    for run.environment.state, warnings in (([{"random": 1}], 0), (state, 1)):
        make_saver(run).save()
        make_saver(run).restore(run.checkpointer.latest())
        assert sum("has no random state of the environment" in text for text in caplog.messages) == warnings


@pytest.mark.parametrize("with_replay", [True, False])
def test_the_pace_continues_only_where_the_replay_does(run, tmp_path, with_replay):
    def checkpoint_replay():
        (tmp_path / "files").mkdir()
        (tmp_path / "files" / "rows").touch()
        return tmp_path / "files"

    run.config.checkpoint_replay = with_replay
    run.client = types.SimpleNamespace(checkpoint=checkpoint_replay)
    pacer, evaluations = FakeState("pace"), FakeState("evaluations")
    pacer.value = evaluations.value = 7
    saver.Saver(run, evaluations, pacer).save()

    pacer.value = evaluations.value = 0
    run.has_old_replay = with_replay
    saver.Saver(run, evaluations, pacer).restore(run.checkpointer.latest())
    assert (evaluations.value, pacer.value) == (7, 7 if with_replay else 0)


def test_that_the_environment_cannot_be_saved_is_said_once(run, caplog):
    checkpoints = make_saver(run)
    for step in (10, 20):
        run.steps = step
        checkpoints.save()
    assert sum("the random state of the environment is not saved" in text for text in caplog.messages) == 1
    run.environment = counting.Counter()  # which can
    caplog.clear()
    make_saver(run).save()
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("kind", "is_saved"), [(np.random.RandomState, True), (test_gymnasium_adapter.Unknown, False)]
)
def test_a_run_saves_and_resumes_whatever_generator_its_environment_has(tmp_path, caplog, kind, is_saved):
    def make(seed):
        return environments.make_training_environment(test_gymnasium_adapter.Drawing(kind), seed)

    def train(name, num_env_steps):
        config = small.experiment(
            tmp_path / name,
            small.ppo_builder(anneal_learning_rate=False),
            num_env_steps=num_env_steps,
            evaluation_period=0,
            checkpoint_period=16,
            replay="memory",
        )
        experiments.run_experiment(dataclasses.replace(config, environment_factory=make))
        return checkpointing.load_state(checkpointing.find(tmp_path / name))

    straight = train("straight", 64)
    not_saved = "the random state of the environment is not saved"
    assert sum(not_saved in text for text in caplog.messages) == (not is_saved)
    train("resumed", 32)
    resumed = train("resumed", 64)
    said = sum("has no random state of the environment" in text for text in caplog.messages)
    assert said == (not is_saved)
    if is_saved:
        testing.assert_nests_equal(resumed["learner"], straight["learner"])
