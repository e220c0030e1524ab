import contextlib

import pytest

from minerva_acme import loggers, testing
from minerva_acme.runs import run_logs
from tests.experiments import test_run


class FakeWandb:
    def __init__(self, directory, config):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *details):
        pass

    def make_logger(self, label, steps_key):
        return testing.FakeLogger()


DESCRIPTION = {"hyperparameters": {}}


@pytest.mark.parametrize("wandb", [True, False])
def test_weights_and_biases_keeps_what_is_cut_and_that_is_said(tmp_path, monkeypatch, caplog, wandb):
    monkeypatch.setattr(loggers, "WandbRun", FakeWandb)
    with contextlib.ExitStack() as resources:
        logs = run_logs.RunLogs(test_run.make_config(tmp_path, 10, wandb=wandb), {}, resources)
        logs.learner.write({"learner_steps": 3})
        logs.cut(learner=3)
        assert caplog.text == ""
        logs.cut(learner=2)
    assert (tmp_path / "learner.csv").read_text() == "learner_steps\n"
    assert ("Weights & Biases keeps these rows and will show the steps twice" in caplog.text) is wandb


def test_a_step_that_is_not_logged_again_is_gone_too(tmp_path):
    for last, steps in ((0, (10, 20, 30)), (15, (40,))):
        with contextlib.ExitStack() as resources:
            logs = run_logs.RunLogs(
                test_run.make_config(tmp_path, 10, tensorboard=True), DESCRIPTION, resources
            )
            logs.cut(actor=last)
            for step in steps:
                logs.actor.write({"actor_steps": step})
    assert [row["actor_steps"] for row in test_run.rows(tmp_path, "actor")] == ["10", "40"]
    assert test_run.shown_in_tensorboard(tmp_path, actor="actor/actor_steps") == {"actor": [10, 40]}
