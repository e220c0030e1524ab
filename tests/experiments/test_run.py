import csv
import dataclasses
import json
import logging
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest

from minerva_acme import environments, experiments, observers, runs, wrappers
from minerva_acme.agents import mpo, ppo
from minerva_acme.runs import checkpointing

SMALL = mpo.MPOConfig(
    policy_layer_sizes=(16,),
    critic_layer_sizes=(16,),
    batch_size=8,
    min_replay_size=20,
    samples_per_insert=1.0,
    num_samples=4,
    retrace_mc_actions=2,
)
NEVER_LEARNS = dataclasses.replace(SMALL, min_replay_size=100_000)

SEVERAL = ppo.PPOConfig(
    policy_layer_sizes=(8,), value_layer_sizes=(8,), num_environments=3, rollout_steps=60, minibatch_size=20
)


def make_pendulum(seed):
    # Episodes of 20 steps, cut by a time limit.
    environment = environments.make_training_environment("Pendulum-v1", seed=seed)
    return wrappers.StepLimitWrapper(environment, max_steps=20)


def make_config(directory, num_env_steps, agent=SMALL, **overrides):
    return experiments.ExperimentConfig(
        **{
            "builder": mpo.MPOBuilder(agent),
            "environment_factory": make_pendulum,
            "directory": directory,
            "num_env_steps": num_env_steps,
            "evaluation_period": 0,
            "evaluation_episodes": 1,
            "checkpoint_period": 0,
            "log_period_seconds": 0.0,
            "tensorboard": False,
            **overrides,
        }
    )


def rows(directory, label):
    with open(directory / f"{label}.csv", newline="") as file:
        return list(csv.DictReader(file))


def returns(directory):
    return [float(row["episode_return"]) for row in rows(directory, "actor")]


@pytest.mark.promise("Evaluation")
def test_evaluation_changes_nothing_in_training(tmp_path):
    experiments.run_experiment(make_config(tmp_path / "without", 40, NEVER_LEARNS))
    result = experiments.run_experiment(
        make_config(tmp_path / "with", 40, NEVER_LEARNS, evaluation_period=10, evaluation_episodes=2)
    )
    assert returns(tmp_path / "without") == returns(tmp_path / "with")
    # Before training, then every period; the last one is also what the result reports.
    steps = [int(float(row["actor_steps"])) for row in rows(tmp_path / "with", "evaluator")]
    assert steps == [0, 10, 20, 30, 40]
    means = [float(row["episode_return"]) for row in rows(tmp_path / "with", "evaluator")]
    assert result.after.mean == pytest.approx(means[-1])
    assert len(result.after.returns) == 2
    # The best of those that were trained.
    assert result.best[1].mean == pytest.approx(max(means[1:]))
    assert steps[means.index(max(means[1:]), 1)] == result.best[0]


def test_training_explores_and_evaluation_does_not(tmp_path):
    made = []

    class Builder(mpo.MPOBuilder):
        def make_policy(self, *args, evaluation=False, **more):
            made.append(evaluation)
            return super().make_policy(*args, evaluation=evaluation, **more)

    experiments.run_experiment(make_config(tmp_path, 20, builder=Builder(NEVER_LEARNS)))
    assert made[0] is False
    assert len(made) > 1 and all(made[1:])


def test_without_its_replay_a_resumed_run_fills_a_new_one_first(tmp_path):
    first = experiments.run_experiment(make_config(tmp_path, 60, checkpoint_replay=False))
    again = experiments.run_experiment(make_config(tmp_path, 120, checkpoint_replay=False))
    assert checkpointing.replay_folder(checkpointing.Checkpointer(tmp_path / "checkpoints").latest()) is None
    assert again.learner_steps == 2 * first.learner_steps


def test_a_finished_run_is_reported_and_not_trained_again(tmp_path):
    first = experiments.run_experiment(make_config(tmp_path, 40))
    assert {path.name for path in tmp_path.iterdir()} == {
        "actor.csv",
        "checkpoints",
        "evaluator.csv",
        "learner.csv",
        "provenance.json",
        "run.json",
    }
    again = experiments.run_experiment(make_config(tmp_path, 40))
    assert first == again


def same(row):
    """The part of a row that two runs of one seed share: all but times."""
    return {name: value for name, value in row.items() if not re.search("second|walltime", name)}


def shown_in_tensorboard(folder, **names):
    """The steps at which TensorBoard shows a number of each label in a training's one run."""
    code = f"""
import json, sys, types
sys.modules["tensorboard.compat.notf"] = types.ModuleType("tensorboard.compat.notf")
from tensorboard.backend.event_processing import event_accumulator
shown = {{}}
for label, name in {names!r}.items():
    accumulator = event_accumulator.EventAccumulator({str(folder / "tensorboard")!r}).Reload()
    shown[label] = [event.step for event in accumulator.Scalars(name)]
print(json.dumps(shown))
"""
    return json.loads(subprocess.check_output([sys.executable, "-c", code]))


def stop_at(env_steps, how):
    """Calls `how` in the training step that reaches so many environment steps."""

    def on_progress(progress):
        if progress.phase == "train" and progress.env_steps == env_steps:
            how()

    return on_progress


def kill():
    raise KeyboardInterrupt  # which saves nothing, as a kill


LOGGED = {
    "checkpoint_period": 60,
    "checkpoint_best": False,  # it has no replay, so that a run that resumes from it fills a new one
    "evaluation_period": 30,
    "replay": "memory",
    "tensorboard": True,
}


@pytest.mark.promise("Steps that a resumed run repeats appear once in the CSV files and")
def test_the_steps_after_a_checkpoint_are_made_again_and_logged_once(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    straight = experiments.run_experiment(make_config(tmp_path / "straight", 120, **LOGGED))
    killed = make_config(tmp_path / "killed", 120, **LOGGED)
    for at in (35, 115):  # before the first checkpoint, and with two episodes after one
        with pytest.raises(KeyboardInterrupt):
            experiments.run_experiment(killed, stop_at(at, kill))
    assert checkpointing.latest(tmp_path / "killed" / "checkpoints").name == "000000060"
    with open(tmp_path / "killed" / "actor.csv", "a") as file:
        file.write("half a r")
    result = experiments.run_experiment(killed)
    assert dataclasses.replace(result, directory=straight.directory) == straight
    for label, num_rows in (("actor", 6), ("evaluator", 5), ("learner", straight.learner_steps)):
        once = [same(row) for row in rows(tmp_path / "straight", label)]
        assert once == [same(row) for row in rows(tmp_path / "killed", label)]
        assert len(once) == num_rows
    shown = shown_in_tensorboard(
        tmp_path / "killed",
        actor="Return/training",
        evaluator="Return/evaluation",
        learner="loss/critic",
    )
    assert shown == {
        label: [int(row["actor_steps"]) for row in rows(killed.directory, label)] for label in shown
    }
    assert all(path.is_file() for path in (tmp_path / "killed" / "tensorboard").iterdir())
    assert "actor.csv: 2 rows with `actor_steps` above 60 are removed" in caplog.text


def test_a_run_that_begins_anew_takes_out_all_rows_and_says_so(tmp_path, caplog):
    with pytest.raises(KeyboardInterrupt):
        experiments.run_experiment(make_config(tmp_path, 40, replay="memory"), stop_at(30, kill))
    assert len(rows(tmp_path, "actor")) == len(rows(tmp_path, "evaluator")) == 1
    assert caplog.text == ""
    experiments.run_experiment(make_config(tmp_path, 40, replay="memory"))
    assert [row["actor_steps"] for row in rows(tmp_path, "actor")] == ["20", "40"]
    assert [row["actor_steps"] for row in rows(tmp_path, "evaluator")] == ["0", "40"]
    assert "evaluator.csv: 1 rows with `actor_steps` above -1 are removed" in caplog.text


def test_an_evaluation_that_a_stop_cuts_short_is_made_when_the_run_resumes(tmp_path):
    config = {"replay": "memory", "evaluation_period": 20, "checkpoint_period": 40}
    straight = experiments.run_experiment(make_config(tmp_path / "straight", 80, **config))
    stopped = experiments.run_experiment(
        make_config(tmp_path / "stopped", 80, **config), stop_at(40, lambda: signal.raise_signal(2))
    )
    assert (stopped.interrupted_by, stopped.env_steps) == ("SIGINT", 40)
    resumed = experiments.run_experiment(make_config(tmp_path / "stopped", 80, **config))
    assert dataclasses.replace(resumed, directory=straight.directory) == straight
    once, twice = (
        [same(row) for row in rows(tmp_path / name, "evaluator")] for name in ("straight", "stopped")
    )
    assert once == twice
    assert [row["actor_steps"] for row in once] == ["0", "20", "40", "60", "80"]
    kept = [
        sorted(checkpointing.env_steps(path) for path in (tmp_path / name / "checkpoints").iterdir())
        for name in ("straight", "stopped")
    ]
    assert kept[0] == kept[1]


@pytest.mark.promise("A second run in a folder is refused before it changes anything")
def test_a_second_run_in_a_folder_is_refused_before_it_touches_anything(tmp_path):
    config = make_config(tmp_path, 20, NEVER_LEARNS)
    left = [tmp_path / "checkpoints" / ".unfinished-000000020", tmp_path / ".replay" / "files"]
    refused = []

    def on_progress(progress):
        if progress.env_steps == 10 and not refused:
            for folder in left:
                folder.mkdir(parents=True)  # what the first run is writing
            with pytest.raises(ValueError, match=f"in use by process {os.getpid()} on") as error:
                experiments.run_experiment(config)
            refused.append(error)
            assert all(folder.exists() for folder in left)
            left[0].rmdir()

    experiments.run_experiment(config, on_progress)
    assert len(refused) == 1
    experiments.run_experiment(config)  # now it is free


def test_observers_add_their_metrics_to_the_episodes_of_training(tmp_path):
    experiments.run_experiment(
        make_config(tmp_path, 40, NEVER_LEARNS, observers=[observers.ActionNorm()], evaluation_period=20)
    )
    norms = [float(row["action_norm/mean"]) for row in rows(tmp_path, "actor")]
    assert len(norms) == 2
    assert all(0.0 < norm <= 1.0 for norm in norms)  # a single action in [-1, 1]


def test_the_last_evaluation_is_in_the_last_checkpoint(tmp_path):
    # The last step is also the end of an episode at which a checkpoint is due.
    config = make_config(tmp_path, 40, checkpoint_period=40)
    after = experiments.run_experiment(config).after
    assert experiments.run_experiment(config).after == after
    assert len(rows(tmp_path, "evaluator")) == 2  # before and after, not again


def test_the_last_rows_of_the_logs_are_written(tmp_path):
    experiments.run_experiment(make_config(tmp_path, 60, log_period_seconds=1000.0))
    assert int(float(rows(tmp_path, "actor")[-1]["actor_steps"])) == 60
    last = rows(tmp_path, "learner")[-1]
    assert int(float(last["learner_steps"])) == mpo.MPOBuilder(SMALL).learner_steps_due(60)


def test_checkpoints_are_written_on_the_way(tmp_path):
    seen = []

    def on_progress(progress):
        if progress.phase == "save":
            seen.append(progress.env_steps)

    experiments.run_experiment(make_config(tmp_path, 70, checkpoint_period=15), on_progress)
    # At the first end of an episode that is due, and at the end of the run.
    assert seen == [20, 40, 60, 70]


@pytest.mark.promise("The newest checkpoints and the best are kept")
def test_the_best_evaluation_has_its_weights_and_can_be_resumed_from(tmp_path, monkeypatch):
    means = iter([0.0, 0.0, 1.0, 9.0, 3.0, 2.0, 1.0, 5.0, 12.0])

    def evaluate(environment, actor, num_episodes, should_stop, **named):
        mean = next(means)
        return runs.Evaluation(returns=(mean,), lengths=(1,))

    monkeypatch.setattr("minerva_acme.experiments.evaluator.evaluation.evaluate", evaluate)
    options = {"evaluation_period": 10, "checkpoint_period": 15, "checkpoint_keep": 1, "replay": "memory"}
    result = experiments.run_experiment(make_config(tmp_path, 50, **options))
    assert result.best[0] == 20 and result.best[1].mean == 9.0
    steps = {
        which: checkpointing.env_steps(checkpointing.find(tmp_path, which)) for which in ("latest", "best")
    }
    assert steps == {"latest": 50, "best": 20}
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"000000020", "000000050"}
    state = checkpointing.load_state(checkpointing.find(tmp_path, "best"))
    assert state["best"][0] == state["latest"][0] == 20

    resumed = experiments.run_experiment(make_config(tmp_path, 35, resume_from="best", **options))
    assert (resumed.env_steps, resumed.best[0]) == (35, 35)
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"000000035"}


def test_a_run_that_is_killed_stays_with_the_older_checkpoint_that_was_chosen(tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    def start(num_env_steps, **overrides):
        """Returns the step at which the run begins; kills it there."""
        began = []

        def kill(progress):
            began.append(progress.env_steps)
            raise Killed

        with pytest.raises(Killed):
            experiments.run_experiment(
                make_config(tmp_path, num_env_steps, NEVER_LEARNS, **options, **overrides), kill
            )
        return began[0]

    options = {"replay": "memory", "checkpoint_keep": 3, "checkpoint_best": False}
    for num_env_steps in (20, 40, 60):
        experiments.run_experiment(make_config(tmp_path, num_env_steps, NEVER_LEARNS, **options))
    assert start(80) == 60
    assert start(80, resume_from=20) == 20
    assert start(80) == 20
    with monkeypatch.context() as patch:

        def kill(self, light):
            raise Killed

        patch.setattr(checkpointing.Checkpointer, "_remove_old", kill)
        with pytest.raises(Killed):
            experiments.run_experiment(make_config(tmp_path, 50, NEVER_LEARNS, **options))
    assert start(80) == 50
    experiments.run_experiment(make_config(tmp_path, 80, NEVER_LEARNS, **options))
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {
        *("000000020", "000000050", "000000080")
    }


def test_a_damaged_checkpoint_costs_the_steps_since_the_one_before_it(tmp_path, caplog):
    options = {"checkpoint_period": 20, "replay": "memory"}
    experiments.run_experiment(make_config(tmp_path / "damaged", 60, NEVER_LEARNS, **options))
    path = checkpointing.find(tmp_path / "damaged", 60) / "state.pt"
    path.write_bytes(path.read_bytes()[:-1])
    experiments.run_experiment(make_config(tmp_path / "damaged", 80, NEVER_LEARNS, **options))
    assert "state.pt is damaged" in caplog.text and " 20 environment steps are lost" in caplog.text
    experiments.run_experiment(make_config(tmp_path / "straight", 80, NEVER_LEARNS, **options))
    assert returns(tmp_path / "damaged")[-2:] == returns(tmp_path / "straight")[-2:]


@pytest.mark.parametrize("replay", ["memory", pytest.param("reverb", marks=pytest.mark.reverb)])
def test_a_missing_replay_is_not_passed_over(tmp_path, replay):
    experiments.run_experiment(make_config(tmp_path, 30, replay=replay))
    shutil.rmtree(checkpointing.find(tmp_path) / "replay")
    with pytest.raises(checkpointing.DamagedCheckpoint, match="replay/.* cannot be read: No such file"):
        experiments.run_experiment(make_config(tmp_path, 40, replay=replay))


@pytest.mark.parametrize(
    "name",
    [
        ".lock",
        "run.json",
        "provenance.json",
        "actor.csv",
        "learner.csv",
        "tensorboard",
        "checkpoints/.replay",
    ],
)
@pytest.mark.promise("Nothing in a run's folder is written or deleted through a symbolic")
def test_what_a_run_writes_is_no_link_to_what_is_not_its_own(tmp_path, name):
    theirs = tmp_path / "theirs"
    victim = theirs / name.replace("/", "-")
    theirs.mkdir()
    if name in ("tensorboard", "checkpoints/.replay"):
        victim.mkdir()
        (victim / "notes").write_text("theirs")
    elif name == "provenance.json":  # which is read before
        victim.write_text("[]")
    else:
        victim.write_text("theirs")
    content = {path: path.is_file() and path.read_text() for path in theirs.rglob("*")}
    link = tmp_path / "run" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(victim)
    config = make_config(tmp_path / "run", 20, NEVER_LEARNS, replay="memory", tensorboard=True)
    with pytest.raises(ValueError, match=f"{re.escape(str(link))} must .* got a symbolic link to "):
        experiments.run_experiment(config)
    assert {path: path.is_file() and path.read_text() for path in theirs.rglob("*")} == content
    assert link.is_symlink()


def test_checkpoints_may_lie_on_another_disk(tmp_path):
    other = pathlib.Path("/dev/shm")
    if not other.is_dir() or other.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no other disk here")
    with tempfile.TemporaryDirectory(dir=other) as folder:
        (tmp_path / "checkpoints").symlink_to(folder)
        for env_steps in (30, 60):
            experiments.run_experiment(make_config(tmp_path, env_steps))
        assert checkpointing.env_steps(checkpointing.find(tmp_path, with_replay=True)) == 60


def test_an_agent_that_cannot_play_says_so_before_anything_is_written(tmp_path):
    config = make_config(
        tmp_path / "run", 100, environment_factory=lambda seed: environments.make("CartPole-v1")
    )
    with pytest.raises(ValueError, match="MPO needs rewards"):
        experiments.run_experiment(config)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"num_env_steps": 0},
            "`num_env_steps` must be >= 1, or 0 with `num_learner_steps` >= 1 .* got 0 and 0",
        ),
        (
            {"num_learner_steps": 5},
            "With environment steps, the agent determines the number of learner steps",
        ),
        ({"evaluation_environments": 0}, "`evaluation_environments` must be >= 1"),
        ({"seed": -1}, "`seed` must be >= 0, got -1."),
        ({"device": "gpu0"}, "`device` must be like 'cpu'"),
        ({"evaluation_episodes": -1}, "`evaluation_episodes` must be >= 0"),
    ],
)
def test_options_that_make_no_sense_are_refused(tmp_path, overrides, message):
    with pytest.raises(ValueError, match=message):
        make_config(tmp_path, **{"num_env_steps": 10, **overrides})


def make_several(directory, num_env_steps, **overrides):
    return make_config(directory, num_env_steps, **{"builder": ppo.PPOBuilder(SEVERAL), **overrides})


def test_several_environments_are_played_at_once_and_logged_one_by_one(tmp_path):
    result = experiments.run_experiment(make_several(tmp_path, 120, observers=[observers.ActionNorm()]))
    assert (result.env_steps, result.learner_steps) == (120, 2)
    logged = rows(tmp_path, "actor")
    # Two episodes of 20 steps each, all of their own.
    assert [int(float(row["environment"])) for row in logged] == [0, 1, 2] * 2
    assert [int(float(row["actor_steps"])) for row in logged] == [60] * 3 + [120] * 3
    assert len({row["episode_return"] for row in logged}) == 6
    assert all(0.0 < float(row["action_norm/mean"]) <= 1.0 for row in logged)


def test_checkpoints_of_several_environments_are_written_between_episodes(tmp_path):
    seen = []

    def on_progress(progress):
        if progress.phase == "save":
            seen.append(progress.env_steps)

    experiments.run_experiment(make_several(tmp_path, 150, checkpoint_period=40), on_progress)
    # At the first step that ends all episodes, and at the end of the run.
    assert seen == [60, 120, 150]


@pytest.mark.usefixtures("fork_server")
def test_environments_in_processes_give_the_episodes_of_those_in_this_one(tmp_path):
    def make(seed):  # pickled whole: the processes do not import this module, and so not torch
        environment = environments.make_training_environment("Pendulum-v1", seed=seed)
        return wrappers.StepLimitWrapper(environment, max_steps=20)

    builder = ppo.PPOBuilder(dataclasses.replace(SEVERAL, num_environments=2))
    for name, processes in (("here", False), ("there", True)):
        experiments.run_experiment(
            make_several(
                tmp_path / name,
                120,
                builder=builder,
                environment_factory=make,
                environment_processes=processes,
            )
        )
    assert len(returns(tmp_path / "here")) == 6
    assert returns(tmp_path / "here") == returns(tmp_path / "there")


@pytest.mark.promise("Replay statistics")
def test_progress_tells_episodes_the_newest_row_and_the_state_of_replay(tmp_path, monkeypatch):
    # Whoever watches reads numbers that were logged anyway: no learner step waits for it.
    monkeypatch.setattr("minerva_acme.experiments.progress._MIN_METRICS_SECONDS", 0.0)
    seen = []
    config = make_config(tmp_path, 210, log_period_seconds=0.0, replay="memory")
    experiments.run_experiment(config, seen.append)
    assert [progress.num_episodes for progress in (seen[0], seen[-1])] == [0, 10]
    assert "loss/critic" not in seen[0].metrics
    last = seen[-1].metrics
    assert last["learner_steps"] == seen[-1].learner_steps > 0
    assert {"loss/critic", "kl/mean_rel"} <= last.keys()
    assert 190 <= last["replay/size"] <= 210
    assert last["replay/max_size"] == SMALL.max_replay_size
    assert last["replay/samples_per_insert"] == pytest.approx(SMALL.samples_per_insert, rel=0.2)


def test_auto_is_a_device_of_this_machine():
    import torch

    expected = "cuda" if torch.cuda.is_available() else "cpu"
    options = experiments.RunOptions(num_env_steps=1)
    assert options.device == "auto"
    assert options.torch_device.type == expected
    assert experiments.RunOptions(num_env_steps=1, device="cpu").torch_device.type == "cpu"


@pytest.mark.parametrize(
    "method", ["make_dataset", "make_learner", "make_policy", "make_adder", "make_actor"]
)
def test_a_method_of_a_builder_that_returns_nothing_is_named(tmp_path, method):
    builder = type("Own", (mpo.MPOBuilder,), {method: lambda *_, **__: None})(SMALL)
    message = f"`{method}` of Own must return what it makes, got None. Is a `return` missing?"
    with pytest.raises(TypeError, match=re.escape(message)):
        experiments.run_experiment(make_config(tmp_path / "run", 60, builder=builder))
