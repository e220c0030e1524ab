import json
import math
import os
import shlex
import signal
import sys

import numpy as np
import pytest

from minerva_acme import experiments, plotting, results, runs
from minerva_acme.agents import registry
from minerva_acme.cli import commands, demo, output, parsing, video
from minerva_acme.runs import checkpointing, options

TINY = (
    "train mpo --env Pendulum-v1 --preset demo --num-env-steps 60 --evaluation-period 20 --batch-size 8 "
    "--evaluation-episodes 1 --min-replay-size 20 --samples-per-insert 2 --policy-layer-sizes 8 "
    "--critic-layer-sizes 8 8 --num-samples 4 --retrace-mc-actions 2 --log csv --replay memory"
)
ALWAYS, NEVER = -1e6, 1e6  # goals


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs a small demo, which draws nothing: gives what it printed on one line."""
    monkeypatch.setattr(demo.recording, "choose_renderer", lambda: None)

    def run_(goal, *, film=lambda command: 0, known=None, **changes):
        monkeypatch.setattr(video, "run", film)
        command = commands.Demo(directory=tmp_path / "demo", goal=goal, **changes)
        assert demo.run(command, TINY.split(), known) == 0
        return " ".join(capsys.readouterr().out.split())

    return run_


def stop_after(env_steps, monkeypatch):
    shown = experiments.ProgressDisplay.__call__

    def stop(self, now):
        shown(self, now)
        if now.env_steps == env_steps and now.phase == "train":
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(experiments.ProgressDisplay, "__call__", stop)


def make_known(curves):
    """Experiments of seeds' returns at 0, 20, 40, ... steps of Pendulum."""
    return results.Experiment(
        exp_name="mpo_demo",
        rows=tuple(
            results.Row("mpo_demo", "Pendulum-v1", seed, "avg_return", 20 * index, value)
            for seed, values in enumerate(curves)
            for index, value in enumerate(values)
        ),
    )


def test_the_demo_is_a_training_that_could_be_typed_with_the_preset_of_its_name():
    typed = parsing.parse([*demo.TRAINING])
    assert typed.agent == "mpo"
    assert typed.env == "dm_control/cartpole/swingup/repeat=4"
    assert typed.hyperparameters == registry.AGENTS["mpo"].presets["demo"]
    assert typed.hyperparameters.critic_target == "retrace"
    assert typed.run.replay == "auto"
    known = demo._known_curves(results.load()[demo.EXPERIMENT], typed.env)
    assert len(known) == 10 and known[0].x[:3].tolist() == [0, 1000, 2000]  # by decisions, as it evaluates


@pytest.mark.promise("A first run")
def test_it_ends_at_its_goal_and_shows_scores_curve_picture_and_film(tmp_path, run):
    filmed = []
    out = run(ALWAYS, film=lambda command: filmed.append(command))
    directory = tmp_path / "demo"
    assert checkpointing.env_steps(checkpointing.find(directory)) == 20  # at the first evaluation
    assert "random actions" in out and "before training" in out and "after 20 environment" in out
    assert "Evaluation return and the goal" in out
    for suffix in ("png", "svg"):
        assert (directory / f"curve.{suffix}").stat().st_size > 0
        assert f"{directory}/curve.{suffix}" in out
    assert [(one.directory, one.episodes) for one in filmed] == [(directory, 1)]
    assert filmed[0].checkpoint == ("first", "middle", "best")
    assert "The goal, an evaluation return of -1e+06, is reached" in out
    # It says how to do the same without it.
    words = out.partition("The same as: minerva ")[2].split(" mpo on ")[0]
    assert parsing.parse(shlex.split(words)).directory == directory


def test_a_demo_without_time_says_where_it_stands_and_goes_on_with_the_same_command(tmp_path, run, unpainted):
    unpainted()
    directory = tmp_path / "demo"
    known = make_known([[-1500.0, -1000.0, NEVER], [-1400.0, -1200.0]])
    out = run(NEVER, known=known, minutes=1e-9)
    assert "Stopped early, evaluated and saved: the time is up, with `stop_after_minutes` 1e-09" in out
    assert "the goal of 1e+06 is not reached" in out
    assert "After this many steps, the returns of 2 known runs were" in out
    assert "1 of them reached the goal, after 40 to 40 steps" in out
    assert "interquartile mean of 2 known runs" in out
    made = checkpointing.env_steps(checkpointing.find(directory))
    assert made < 40

    out = run(NEVER)
    assert f"Resuming at {made} steps" in out
    assert "All steps are made. To train for longer: minerva resume" in out
    assert checkpointing.env_steps(checkpointing.find(directory)) == 60


def test_a_demo_that_is_done_stays_and_the_next_gets_a_folder_of_its_own(tmp_path, run, unpainted):
    unpainted()
    run(ALWAYS)
    out = run(ALWAYS)
    assert f"{tmp_path}/demo holds a demo that reached its goal; it is left unchanged" in out
    run(NEVER, seed=1)
    out = run(NEVER, seed=1)
    assert f"{tmp_path}/demo holds something other than this demo" in out  # another seed
    assert f"{tmp_path}/demo-3 holds a demo that made all its steps" in out
    seeds = {path.name: json.loads((path / "run.json").read_text())["seed"] for path in tmp_path.iterdir()}
    assert seeds == {"demo": 0, "demo-2": 0, "demo-3": 1, "demo-4": 1}


def test_files_of_somebody_elses_are_left_alone(tmp_path, run, unpainted):
    unpainted()
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "notes.txt").write_text("mine")
    run(ALWAYS)
    assert [path.name for path in (tmp_path / "demo").iterdir()] == ["notes.txt"]
    assert (tmp_path / "demo-2" / "run.json").exists()


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path, run, monkeypatch):
    with monkeypatch.context() as patched:
        stop_after(7, patched)
        out = run(NEVER)
    assert f"Stopped by SIGINT and saved. To resume: minerva resume {tmp_path}/demo" in out
    assert "run the same demo command again" in out
    assert not (tmp_path / "demo" / "curve.png").exists()
    assert "Resuming at 7 steps" in run(ALWAYS)


@pytest.mark.parametrize(
    "error", [ValueError("the environment cannot be\ndrawn"), OSError("no ffmpeg"), ImportError("no libEGL")]
)
def test_a_machine_that_cannot_draw_says_so_in_a_line(tmp_path, monkeypatch, capsys, error):
    def fail(command):
        raise error

    monkeypatch.setattr(video, "run", fail)
    demo._film(tmp_path, "Pendulum-v1", output.Console())
    assert capsys.readouterr().out == f"No video: {' '.join(str(error).split())}\n"


def test_without_matplotlib_the_curve_is_in_the_terminal_alone(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "minerva_acme.plotting.figure", None)
    monkeypatch.delattr(plotting, "figure", raising=False)
    out = run(ALWAYS)
    assert "Evaluation return and the goal" in out
    assert "No figure of the curve: `minerva demo` needs" in out
    assert "pip install 'minerva-acme[plot]'" in out


def result_of(tmp_path, env_steps, best):
    evaluation = runs.Evaluation((best,), (10,))
    return experiments.ExperimentResult(
        directory=tmp_path,
        env_steps=env_steps,
        learner_steps=0,
        random=None,
        before=None,
        after=evaluation,
        best=(env_steps, evaluation),
        interrupted_by=None,
    )


OPTIONS = options.RunOptions(num_env_steps=10_000, stop_at=800.0, stop_after_minutes=4.5)


@pytest.mark.parametrize(
    ("curves", "to", "minutes"),
    [
        ([], "10,000", 100),  # all of its steps
        ([[0.0, 500.0, 900.0, 900.0]], "6,000", 34),  # known: at 6,000 steps
        ([[0.0, 500.0, 900.0, 900.0], [0.0, 100.0, 300.0, 850.0]], "9,000", 84),  # the last of them
        ([[0.0, 850.0, 850.0, 850.0]], "10,000", 100),  # this run is later than any
    ],
)
def test_the_rest_is_until_the_known_runs_had_reached_the_goal(tmp_path, curves, to, minutes):
    behind = [plotting.Curve(np.arange(len(curve)) * 3_000.0, np.array(curve)) for curve in curves]
    text = demo._what_is_left(result_of(tmp_path, 4_000, 321.0), OPTIONS, 1.0, behind)
    assert "The best evaluation return is 321.0 after 4,000 steps; the goal of 800 is not reached." in text
    assert f"steps to {to} take about {minutes} minutes" in text
    words = text.rpartition(": minerva ")[2].split()
    resume = parsing.parse(words)
    assert (resume.directory, resume.stop_after_minutes) == (tmp_path, minutes + 1)
    assert ("known runs were" in text) == bool(curves)


def test_a_speed_that_is_not_known_promises_no_time(tmp_path):
    text = demo._what_is_left(result_of(tmp_path, 10, 0.0), OPTIONS, math.nan, [])
    assert "minutes" not in text and f"minerva resume {tmp_path}" in text


@pytest.mark.parametrize(
    ("rows", "speed"),
    [
        ("0,0,5 100,0,6 200,50,16 300,100,26 400,150,36", 10.0),
        ("0,0,5 1000,0,6 1001,1,8", 0.5),  # not those before the first learner step
        ("0,0,5 1000,0,6 1001,0,8", 0.5),  # none has been made
        ("0,,5 100,,6 1000,,7 1001,1,9", 0.5),
        ("0,0,5", math.nan),
        ("0,0,5 0,0,5", math.nan),
    ],
)
def test_the_speed_is_that_of_the_last_half_of_the_evaluations_once_it_learns(tmp_path, rows, speed):
    lines = ["actor_steps,learner_steps,wall_seconds", *rows.split()]
    (tmp_path / "evaluator.csv").write_text("\n".join([*lines, ""]))
    assert demo._speed(tmp_path) == pytest.approx(speed, nan_ok=True)


def test_the_speed_is_known_before_anything_is_learned(tmp_path):
    (tmp_path / "evaluator.csv").write_text("actor_steps,wall_seconds\n0,5\n10,10\n")
    assert demo._speed(tmp_path) == 2.0


def test_a_known_run_that_ended_early_stays_where_it_was():
    first, second = demo._known_curves(make_known([[1.0, 2.0, 3.0], [4.0, 5.0]]), "Pendulum-v1")
    assert (first.x.tolist(), first.values.tolist()) == ([0, 20, 40], [1, 2, 3])
    assert (second.x.tolist(), second.values.tolist()) == ([0, 20, 40], [4, 5, 5])
    assert demo._known_curves(make_known([[1.0, 2.0]]), "CartPole-v1") == []


def test_known_frames_are_shown_at_the_decisions_of_the_demo():
    swingup = "dm_control/cartpole/swingup"
    made = make_known([[1.0, 2.0, 3.0]])
    known = results.Experiment(
        exp_name="mpo_demo+repeat=4",
        rows=tuple(row._replace(env_name=swingup, env_step=4 * row.env_step) for row in made.rows),
        action_repeat=4,
    )
    (curve,) = demo._known_curves(known, f"{swingup}/repeat=4")
    assert (curve.x.tolist(), curve.values.tolist()) == ([0, 20, 40], [1, 2, 3])
