"""`minerva list runs` says of each run how far it got, its last score, and what tells it from the others."""

import dataclasses
import json
import pathlib

import pytest

from minerva_acme.agents import registry
from minerva_acme.cli import main
from minerva_acme.runs import checkpointing, evaluation, run_lock, run_results

PPO = registry.AGENTS["ppo"].presets


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def lines(capsys):
    """Lists runs: gives the lines, after checking the status."""

    def lines_(*arguments, status=0):
        assert main(["list", "runs", *arguments]) == status
        out, err = capsys.readouterr()
        return (out + err).splitlines()

    return lines_


def make_run(name, *, made=None, returns=(), light=False, options=(), changes=(), **description):
    """Makes a run's folder: a checkpoint if it has made steps, and a log of its evaluations."""
    directory = pathlib.Path("runs", name)
    directory.mkdir(parents=True)
    content = {
        "agent": "ppo",
        "environment": "CartPole-v1",
        "seed": 0,
        "hyperparameters": dataclasses.asdict(PPO["default"]) | dict(changes),
        "options": {"num_env_steps": 2_000, "tensorboard": False, "evaluation_period": 500, **dict(options)},
    }
    (directory / "run.json").write_text(json.dumps(content | description))
    if returns:
        rows = "".join(f"{step},{step // 4},{value}\n" for step, value in returns)
        text = f"actor_steps,learner_steps,episode_return\n{rows}1999,1,12"  # the last row is cut off
        (directory / "evaluator.csv").write_text(text)
    if made is not None:
        evaluations = evaluation.Evaluations()
        for step, value in returns:
            evaluations.note(step, evaluation.Evaluation((value,), (1,)))
        checkpointer = checkpointing.Checkpointer(directory / "checkpoints")
        checkpointer.save(made, evaluations.save(), evaluation=1.0 if light else None, light=light)
    return directory


def test_the_word_may_be_the_folder(lines):
    make_run("a", made=2_004)
    assert lines("runs") == lines() and lines("runs/a")[0].startswith("runs/a")


def test_what_was_published_from_a_run_is_no_run(lines):
    directory = make_run("a", made=2_004, returns=[(0, 9.5), (2_004, 475.25)])
    published = directory / "hub"
    published.mkdir()
    (published / "run.json").write_text((directory / "run.json").read_text())
    assert "hub" not in "".join(lines())
    assert run_results.find_runs([pathlib.Path("runs")]) == run_results.find_runs([directory]) == [directory]
    assert run_results.find_runs([published]) == [published]  # if it is named


@pytest.mark.promise("A list of runs")
def test_a_run_has_its_status_steps_and_last_score(lines):
    make_run("a", made=2_004, returns=[(0, 9.5), (2_004, 475.25)])
    make_run("b", made=1_000, returns=[(0, 9.5), (1_000, 20.0)], seed=1)
    make_run("c", seed=2)
    make_run("d", made=2_004, light=True, seed=3)  # its last evaluation was made, but not its end
    make_run("e", made=600, returns=[(600, 480.0)], options={"stop_at": 475.0}, seed=4)
    assert lines() == [
        "runs/a",
        "  finished, 2,004 of 2,000 steps, return 475.2, seed=0",
        "runs/b",
        "  interrupted, 1,000 of 2,000 steps, return 20.0, seed=1",
        "runs/c",
        "  interrupted, 0 of 2,000 steps, no evaluation, seed=2",
        "runs/d",
        "  interrupted, 2,004 of 2,000 steps, no evaluation, seed=3",
        "runs/e",
        "  finished, 600 of 2,000 steps, return 480.0, seed=4, stop_at=475",
        "All 5 have environment=CartPole-v1, agent=ppo, preset=default,",
        "  evaluation_period=500",
    ]


def test_a_run_in_progress_has_the_steps_of_its_last_evaluation(lines):
    directory = make_run("a", made=2_004, returns=[(0, 9.5), (1_500, 100.0)])
    alone = make_run("b", options={"num_env_steps": 0, "num_learner_steps": 900}, returns=[(1_500, 7.0)])
    with run_lock.hold(directory), run_lock.hold(alone):
        found = lines()
    assert found[1].startswith("  running, 1,500 of 2,000 steps, return 100.0")
    assert found[3].startswith("  running, 375 of 900 steps, return 7.0")
    assert lines()[1].startswith("  interrupted, 2,004 of 2,000 steps")  # without its last evaluation


def test_the_settings_that_differ_are_shown_with_the_run_and_those_in_common_once(lines):
    make_run("a", changes={"discount": 0.98, "clip_ratio": 0.3})
    make_run("b", changes={"clip_ratio": 0.3}, options={"replay": "memory"})
    make_run("c", hyperparameters=dataclasses.asdict(PPO["control"]) | {"clip_ratio": 0.3}, seed=1)
    make_run("d", environment_settings={"clip_ratio": 0.3})
    texts = lines()
    state = "  interrupted, 0 of 2,000 steps, no evaluation"
    assert texts[1] == f"{state}, preset=default, discount=0.98,"
    assert texts[2] == "    seed=0"
    assert texts[4:6] == [f"{state}, preset=default, seed=0,", "    replay=memory"]
    assert texts[7] == f"{state}, preset=control, seed=1"
    assert texts[-2] == "All 4 have environment=CartPole-v1, agent=ppo, clip_ratio=0.3,"
    # A single run has nothing in common with others: all is shown.
    (found, *_) = lines("control"), None
    assert found[:2] == ["runs/c", texts[7]]


def test_a_single_run_has_all_its_settings(lines):
    make_run("a", changes={"discount": 0.98})
    assert lines() == [
        "runs/a",
        "  interrupted, 0 of 2,000 steps, no evaluation, environment=CartPole-v1,",
        "    agent=ppo, preset=default, discount=0.98, seed=0, evaluation_period=500",
    ]


def test_of_an_own_agent_those_hyperparameters_are_shown_that_differ(lines):
    own = {"agent": "my_agent:MyBuilder", "config": "my_agent:MyConfig"}
    make_run("a", hyperparameters={"rate": 0.1, "size": 3, "new": 1}, **own)
    make_run("b", hyperparameters={"rate": 0.2, "size": 3}, **own)
    make_run("c")
    found = " ".join(lines())
    assert "agent=my_agent:MyBuilder, rate=0.1, new=1 runs/b" in " ".join(found.split())
    assert "rate=0.2" in found and "size" not in found


def test_everything_but_a_long_path_fits_into_80_columns(lines):
    flags = {"policy_layer_sizes": [64] * 30, "value_layer_sizes": [63] * 12, "discount": 0.98}
    for seed in range(2):
        make_run(f"{'x' * 70}/{seed}", changes=flags if seed else {}, seed=seed)
    found = lines()
    assert len(found) > 6 and max(len(line) for line in found if "x" * 70 not in line) <= 80
    assert f"runs/{'x' * 70}/0" in found  # whole, to be copied


def test_a_folder_that_cannot_be_read_is_shown_with_the_reason_and_hides_no_other(lines):
    make_run("a", made=2_004, returns=[(2_004, 9.5)])
    (make_run("b") / "run.json").write_text("{")
    damaged = make_run("c", made=2_004)
    next(damaged.glob("checkpoints/*/manifest.json")).write_text("{}")
    found = lines()
    assert found[1].startswith("  finished")
    assert found[found.index("runs/b") + 1].startswith(
        "  unreadable, runs/b/run.json does not describe a run"
    )
    assert found[found.index("runs/c") + 1].startswith("  unreadable, ")
    assert found[-2:] != ["runs/c"] and "environment=CartPole-v1" in " ".join(found)


def test_a_word_and_another_folder_choose_which_are_shown(lines):
    make_run("a/one", seed=1)
    make_run("b/two", seed=2)
    assert [line for line in lines("SEED=2") if line.startswith("runs")] == ["runs/b/two"]
    assert [line for line in lines("--directory", "runs/a") if line.startswith("runs")] == ["runs/a/one"]
    assert lines("seed=3", status=1) == ["minerva: none of the 2 runs contains 'seed=3'."]


def test_it_says_so_if_there_are_none_or_no_such_folder(lines):
    advice = "To train one: minerva train ppo --env CartPole-v1"
    assert lines() == [f"There are no runs in runs. {advice}"]
    assert lines("--json") == ["[]", f"There are no runs in runs. {advice}"]
    pathlib.Path("empty").mkdir()
    assert lines("--directory", "empty") == [f"There are no runs in empty. {advice}"]
    (said,) = lines("--directory", "nowhere", status=2)
    assert said == "minerva: `directory` must be a folder with runs, got nowhere, which is no folder."
    assert not pathlib.Path("runs").exists()


def test_the_other_lists_take_no_folder(capsys):
    assert main(["list", "agents", "--directory", "runs"]) == 2
    assert "`directory` is only for the list of runs, got the list of agents" in capsys.readouterr().err


def test_the_values_are_json_where_it_is_asked_for(capsys):
    make_run("a", made=2_004, returns=[(2_004, 475.25)])
    make_run("b", seed=1)
    assert main(["list", "runs", "--json"]) == 0
    one, two = json.loads(capsys.readouterr().out)
    assert one == {
        "directory": "runs/a",
        "status": "finished",
        "steps": 2_004,
        "num_steps": 2_000,
        "score": 475.25,
        "metric": "episode_return",
        "settings": {
            "environment": "CartPole-v1",
            "agent": "ppo",
            "preset": "default",
            "seed": 0,
            "evaluation_period": 500,
        },
        "problem": "",
    }
    assert two["score"] is None and two["settings"]["seed"] == 1
