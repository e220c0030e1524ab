"""`minerva dataset`, and the flags of `minerva train` for data."""

import json
import logging
import shutil

import numpy as np
import pytest

from minerva_acme import datasets, environments, specs
from minerva_acme.cli import main, parsing, processes
from tests.agents import table

UNEVALUATED = ("--evaluation-episodes", "0")  # the last one of a flag counts


def test_episodes_of_the_exploring_policy_are_recorded_with_log_probabilities(call, trained, tmp_path):
    status, out, _ = call("dataset", trained, "--output", tmp_path / "data", "--episodes", 2, "--seed", 5)
    assert status == 0
    assert "2 of 2 episodes, 40 steps" in out
    assert f"mpo on Pendulum-v1, 60 steps, in {tmp_path / 'data'}" in out.replace("\n", "")
    found = datasets.read(tmp_path / "data")
    assert (len(found), found.num_steps) == (2, 40)
    assert found.settings["agent"] == "mpo"
    assert (found.settings["policy"], found.settings["episodes_seed"]) == ("exploring", 5)
    for episode in found:
        assert not episode.terminated
        assert np.isfinite(episode.extras["log_prob"]).all()
        np.testing.assert_array_equal(episode.action, episode.extras["raw_action"].clip(-1.0, 1.0))
    again = call("dataset", trained, "--output", tmp_path / "again", "--episodes", 2, "--seed", 5)
    assert again[0] == 0
    assert datasets.read(tmp_path / "again").checksum() == found.checksum()


def test_greedy_episodes_have_none(call, trained, tmp_path):
    assert call("dataset", trained, "--output", tmp_path / "data", "--episodes", 1, "--greedy")[0] == 0
    (episode,) = datasets.read(tmp_path / "data")
    assert episode.extras == {}
    assert datasets.read(tmp_path / "data").settings["policy"] == "greedy"


@pytest.mark.parametrize(
    ("words", "message"),
    [(("--episodes", 0), "`episodes` must be >= 1, got 0"), (("--episodes", 1), "must be a new folder")],
)
def test_what_cannot_be_recorded_is_told(call, trained, tmp_path, words, message):
    status, _, err = call("dataset", trained, "--output", tmp_path, *words)
    assert status == 2
    assert message in err


def test_a_run_records_what_another_learns_from(call, train, tmp_path):
    assert train(tmp_path / "one", "--record", str(tmp_path / "data"), *UNEVALUATED) == 0
    assert datasets.read(tmp_path / "data").num_steps == 60
    words = ["--demonstrations", str(tmp_path / "data"), "--demonstration-share", "0.25"]
    assert train(tmp_path / "two", *words, "--final-demonstration-share", "0", *UNEVALUATED) == 0
    status, _, err = call("resume", tmp_path / "one", "--num-env-steps", 120)
    assert status == 2 and "data must be a new folder, but exists" in err
    assert call("resume", tmp_path / "one")[2].count("--num-env-steps 120 --record ...") == 1
    more = ("--num-env-steps", 80, "--record", tmp_path / "more")
    assert call("resume", tmp_path / "one", *more)[0] == 0
    assert datasets.read(tmp_path / "more").num_steps == 80


@pytest.mark.parametrize("agent", [*table.RECORDED, "td3 --preset offline"])
def test_an_agent_that_needs_data_is_not_trained_on_its_own_play(agent, call, tmp_path):
    arguments = [
        *agent.split(),
        "--env",
        "Pendulum-v1",
        "--num-env-steps",
        "9",
        "--directory",
        tmp_path / "run",
    ]
    status, _, err = call("train", *arguments)
    assert status == 2 and "learns from recorded episodes" in err and "--dataset data/NAME" in err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("agent", ["mpo", "bc"])
def test_a_run_without_steps_and_without_data_is_refused_before_it_begins(agent, call, tmp_path):
    options = ["--env", "Pendulum-v1", "--num-learner-steps", 9, "--directory", tmp_path / "run"]
    status, _, err = call("train", agent, *options)
    assert status == 2 and "recorded episodes" in err and "`dataset` is not set" in err
    assert not (tmp_path / "run").exists()


def test_a_run_on_recorded_episodes_alone_counts_learner_steps(call, trained, tmp_path):
    assert call("dataset", trained, "--output", tmp_path / "data", "--episodes", 1)[0] == 0
    learn = ("train", "bc", "--dataset", f"{tmp_path / 'data'}/", "--num-learner-steps", 30)
    run = tmp_path / "run"
    status, out, _ = call(*learn, "--dry-run")
    assert status == 0 and "Replay of 21 items takes" in out and "for 0 evaluations" in out
    status, out, _ = call(*learn, "--directory", run)
    assert status == 0 and "Replay of" not in out and "0 environment and 30 learner steps" not in out
    for command in ("video", "publish"):
        status, _, err = call(command, run)
        assert status == 2 and "nvironment" in err and "recorded episodes" in err
    status, out, _ = call("eval", run, "--env", "Pendulum-v1", "--episodes", 1)
    assert status == 0 and "30 learner steps: return" in out
    status, out, _ = call("eval", run, "--env", "Pendulum-v1", "--episodes", 1, "--json")
    assert {"env_steps": 0, "learner_steps": 30}.items() <= json.loads(out).items()
    moved = shutil.copytree(tmp_path / "data", tmp_path / "moved")
    again = ("train", "bc", "--dataset", moved, "--num-learner-steps", 40, "--directory", run)
    assert call(*again)[0] == 0
    again = moved.rename(tmp_path / "again")
    longer = ("resume", run, "--num-learner-steps", 50)
    status, _, err = call(*longer)
    assert status == 2 and "If it was moved: " in err and "--dataset ..." in err
    assert call(*longer, "--dataset", again)[0] == 0
    assert call("resume", run, "--num-learner-steps", 60)[0] == 0
    played = ("dataset", run, "--env", "Pendulum-v1", "--episodes", 1, "--output", tmp_path / "played")
    assert call(*played)[0] == 0
    assert datasets.read(tmp_path / "played").settings["learner_steps"] == 60


def test_what_is_read_and_how_it_is_changed_is_printed(call, tmp_path, monkeypatch):
    spec = specs.make_environment_spec(environments.make_training_environment("Pendulum-v1"))
    episode = datasets.Episode(
        np.zeros((41, 3), np.float32), np.ones((40, 1), np.float32), np.zeros(40, np.float32), False
    )
    datasets.write(tmp_path / "data", [episode], spec)
    wide = spec._replace(actions=spec.actions.replace(minimum=[-2.0], maximum=[2.0]))
    datasets.write(tmp_path / "wide", [episode], wide)
    monkeypatch.setattr(logging.root, "handlers", [])  # so that `main` writes as in a process of its own
    words = {"mpo": ("--dataset", tmp_path / "data"), "bc": ("--dataset", tmp_path / "wide")}
    printed = {}
    for agent, data in words.items():
        short = ("--evaluation-episodes", 0, "--num-learner-steps", 1, "--log", "csv")
        run = ("--directory", tmp_path / agent, "--env", "Pendulum-v1")
        status, _, printed[agent] = call("train", agent, *run, *data, *short)
        assert status == 0
    assert "played 1 episodes, 40 steps, 100.0% of them without a log-probability" in printed["mpo"]
    assert "`action` of the data is scaled from BoundedArray" in printed["bc"]
    assert "[-2, 2]" in printed["bc"] and "[-1, 1]" in printed["bc"]


def test_discrete_observations_of_the_bare_environment_are_learned_from_without_it(call, tmp_path):
    spec = specs.EnvironmentSpec(
        specs.DiscreteArray(16, dtype=np.int64),
        specs.DiscreteArray(4, dtype=np.int64),
        specs.Array((), np.float32),
        specs.BoundedArray((), np.float32, 0.0, 1.0),
    )
    episode = datasets.Episode(np.arange(10), np.arange(9) % 4, np.zeros(9, np.float32), False)
    datasets.write(tmp_path / "data", [episode], spec)
    learn = ("train", "bc", "--dataset", tmp_path / "data", "--num-learner-steps", 2, "--batch-size", 4)
    assert call(*learn, "--directory", tmp_path / "run")[0] == 0
    assert call("eval", tmp_path / "run", "--env", "FrozenLake-v1", "--episodes", 1)[0] == 0


@pytest.mark.parametrize(
    ("flags", "expected"), [((), 1_000), (("--from", "R"), 0), (("--from", "R", "--random-steps", 7), 7)]
)
def test_a_policy_that_starts_from_a_run_acts_at_once(flags, expected):
    words = ["train", "td3", "--env", "Pendulum-v1", *map(str, flags)]
    assert parsing.parse(words).hyperparameters.random_steps == expected


def test_a_policy_that_acts_in_other_bounds_is_not_played(call, tmp_path):
    spec = specs.make_environment_spec(environments.make_training_environment("Pendulum-v1"))
    wide = spec._replace(actions=spec.actions.replace(minimum=[-2.0], maximum=[2.0]))
    episode = datasets.Episode(
        np.zeros((41, 3), np.float32), np.ones((40, 1), np.float32), np.zeros(40, np.float32), False
    )
    datasets.write(tmp_path / "data", [episode], wide)
    learn = ("train", "bc", "--dataset", tmp_path / "data", "--num-learner-steps", 2, "--batch-size", 8)
    assert call(*learn, "--directory", tmp_path / "run")[0] == 0
    # With the environment, the data's actions become the agent's.
    directory = ("--directory", tmp_path / "own")
    assert call(*learn, *directory, "--env", "Pendulum-v1", "--evaluation-episodes", 1)[0] == 0
    for command in ("eval", "dataset", "video"):
        out = ("--output", tmp_path / "out.mp4") if command != "eval" else ()
        status, _, err = call(command, tmp_path / "run", "--env", "Pendulum-v1", "--episodes", 1, *out)
        assert status == 2 and "in [-2, 2], as " in err and "train with `--env ID`" in err
        if command != "video":  # it asks as the others do, and takes longer
            assert call(command, tmp_path / "own", "--episodes", 1, *out)[0] == 0


def test_a_sweep_on_other_recorded_episodes_is_another_one(call, trained, tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "run_all", lambda jobs, **_: [main(job.words) for job in jobs] and None)
    for seed in (1, 2):
        words = ("--output", tmp_path / f"data{seed}", "--episodes", 1, "--seed", seed)
        assert call("dataset", trained, *words)[0] == 0
    sweep = ["sweep", "bc", "--env", "Pendulum-v1", "--num-learner-steps", 4, "--evaluation-episodes", 0]
    sweep += ["--seeds", 0, "--no-report", "--directory", tmp_path / "sweep", "--log", "csv"]
    assert call(*sweep, "--dataset", tmp_path / "data1")[0] == 0
    status, _, err = call(*sweep, "--dataset", tmp_path / "data2")
    assert status == 2 and "holds another run: Recorded episodes must have the checksum" in err
    (tmp_path / "data1").rename(tmp_path / "moved")
    status, out, _ = call(*sweep, "--dataset", tmp_path / "moved")
    assert status == 0 and "1 of them done" in out
    # In the same process, other episodes in the same place are seen too.
    shutil.rmtree(tmp_path / "moved")
    (tmp_path / "data2").rename(tmp_path / "moved")
    status, _, err = call(*sweep, "--dataset", tmp_path / "moved")
    assert status == 2 and "holds another run: Recorded episodes must have the checksum" in err


def test_a_recording_that_was_not_written_is_written_by_resuming(call, train, tmp_path):
    record = ("--record", str(tmp_path / "data"))
    assert train(tmp_path / "run", *record, *UNEVALUATED) == 0
    shutil.rmtree(tmp_path / "data")
    assert call("resume", tmp_path / "run")[0] == 0
    assert datasets.read(tmp_path / "data").num_steps == 60
    assert call("resume", tmp_path / "run")[0] == 2
    assert call("resume", tmp_path / "run", "--record", tmp_path / "other")[0] == 0
    assert datasets.read(tmp_path / "other").num_steps == 60
    (tmp_path / "run" / "recorded.episodes").unlink()
    longer = ("resume", tmp_path / "run", "--num-env-steps", 80)
    status, _, err = call(*longer, "--record", tmp_path / "third")
    assert status == 2 and "--record none" in err
    assert call(*longer, "--record", "none")[0] == 0


def test_demonstrations_may_be_moved(call, train, trained, tmp_path):
    assert call("dataset", trained, "--output", tmp_path / "data", "--episodes", 1)[0] == 0
    run = tmp_path / "run"
    assert train(run, "--demonstrations", str(tmp_path / "data"), *UNEVALUATED) == 0
    (tmp_path / "data").rename(tmp_path / "moved")
    longer = ("resume", run, "--num-env-steps", 80)
    status, _, err = call(*longer)
    assert status == 2 and "the `demonstrations` of" in err and "--demonstrations ..." in err
    assert call(*longer, "--demonstrations", tmp_path / "moved")[0] == 0
