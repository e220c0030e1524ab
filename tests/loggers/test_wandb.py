import sys
import types

import pytest

from minerva_acme import loggers


class FakeRun:
    def __init__(self, **settings):
        self.settings, self.defined, self.rows, self.finished = settings, [], [], 0

    def define_metric(self, name, step_metric):
        self.defined.append((name, step_metric))

    def log(self, row):
        self.rows.append(row)

    def finish(self):
        self.finished += 1


@pytest.fixture
def wandb_runs(monkeypatch):
    """The runs that were started at a stand-in for Weights & Biases."""
    started = []

    class Error(Exception):
        pass

    def init(**settings):
        if settings["config"].get("fail"):
            raise Error("No API key configured.")
        started.append(FakeRun(**settings))
        return started[-1]

    fake = types.SimpleNamespace(init=init, Error=Error, Video=lambda file, format: (file.getvalue(), format))
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    return started


def test_rows_of_all_loggers_go_to_one_run_by_their_labels(tmp_path, wandb_runs):
    with loggers.WandbRun(tmp_path / "mine", config={"seed": 3}) as run:
        actor, learner = run.make_logger("actor", "actor_steps"), run.make_logger("learner", "learner_steps")
        actor.write({"actor_steps": 5, "return": 1.5})
        learner.write({"learner_steps": 2, "loss/critic": 0.5})
        actor.close()
        assert wandb_runs[0].finished == 0  # the other one still writes
    (started,) = wandb_runs
    assert started.settings["config"] == {"seed": 3}
    assert (started.settings["project"], started.settings["name"]) == ("minerva-acme", "mine")
    assert started.defined == [("actor/*", "actor/actor_steps"), ("learner/*", "learner/learner_steps")]
    assert started.rows == [
        {"actor/actor_steps": 5, "actor/return": 1.5},
        {"learner/learner_steps": 2, "learner/loss/critic": 0.5},
    ]
    assert started.finished == 1


def test_a_film_is_shown_at_the_steps_that_are_told(tmp_path, wandb_runs):
    with loggers.WandbRun(tmp_path, config={}) as run:
        run.write_film("evaluation/video", b"GIF89a...", steps_key="evaluator/actor_steps", step=40)
    (started,) = wandb_runs
    assert started.defined == [("evaluation/video", "evaluator/actor_steps")]
    assert started.rows == [{"evaluation/video": (b"GIF89a...", "gif"), "evaluator/actor_steps": 40}]


def test_a_run_that_goes_on_goes_on_there_too(tmp_path, wandb_runs):
    for folder in ("one", "one", "two"):
        loggers.WandbRun(tmp_path / folder, config={}).close()
    first, again, other = (run.settings["id"] for run in wandb_runs)
    assert first == again != other
    assert {run.settings["resume"] for run in wandb_runs} == {"allow"}


def test_the_project_may_be_set_outside(tmp_path, wandb_runs, monkeypatch):
    monkeypatch.setenv("WANDB_PROJECT", "other")
    loggers.WandbRun(tmp_path, config={}).close()
    assert wandb_runs[0].settings["project"] == "other"


def test_a_failed_start_tells_the_way_out(tmp_path, wandb_runs):
    with pytest.raises(ValueError, match=r"did not start: No API key configured\. .*WANDB_MODE=offline"):
        loggers.WandbRun(tmp_path, config={"fail": True})


def test_without_the_package_the_command_that_installs_it_is_told(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(
        ValueError, match=r"wandb, which is not installed: pip install 'minerva-acme\[wandb\]'"
    ):
        loggers.WandbRun(tmp_path, config={})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("line", ["raise ImportError('too old')", "import not_there_at_all"])
def test_a_package_that_cannot_be_imported_is_one_line(tmp_path, monkeypatch, line):
    (tmp_path / "wandb.py").write_text(line)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    with pytest.raises(ValueError, match=r"cannot be imported \(.*(too old|not_there).*\): pip install --fo"):
        loggers.WandbRun(tmp_path, config={})


def test_the_newest_row_is_kept_and_no_other():
    newest = loggers.NewestRow()
    assert newest.row == {}
    newest.write({"loss": 1.0, "only_now": 2})
    newest.write({"loss": 0.5})
    newest.close()
    assert newest.row == {"loss": 0.5}
