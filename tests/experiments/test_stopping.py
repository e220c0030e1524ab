import csv
import itertools
import math
import signal

import pytest

from minerva_acme import environments, experiments
from minerva_acme.agents import ppo
from minerva_acme.cli import main
from minerva_acme.experiments import saver, stopping
from minerva_acme.runs import checkpointing, evaluation, options

CONFIG = ppo.PPOConfig(
    num_environments=1,
    rollout_steps=8,
    minibatch_size=4,
    num_epochs=1,
    policy_layer_sizes=(4,),
    value_layer_sizes=(4,),
)


def make_environment(seed):
    # Returns differ from evaluation to evaluation.
    return environments.make_training_environment("CartPole-v1", seed=seed)


def run(directory, **overrides):
    return experiments.run_experiment(
        experiments.ExperimentConfig(
            **{
                "builder": ppo.PPOBuilder(CONFIG),
                "environment_factory": make_environment,
                "directory": directory,
                "num_env_steps": 48,
                "evaluation_period": 8,
                "evaluation_episodes": 1,
                "checkpoint_period": 0,
                "log_period_seconds": 0.0,
                "tensorboard": False,
                "replay": "memory",
                **overrides,
            }
        )
    )


def evaluations(directory):
    """The mean return of each evaluation by its step."""
    with open(directory / "evaluator.csv", newline="") as file:
        return {int(float(row["actor_steps"])): float(row["episode_return"]) for row in csv.DictReader(file)}


def test_a_run_ends_at_the_first_evaluation_that_reaches_its_return(tmp_path):
    whole = run(tmp_path / "whole")
    assert (whole.env_steps, whole.stopped_by) == (48, None)
    found = evaluations(tmp_path / "whole")
    goal = max(list(found.values())[1:4])  # is first reached before the end
    expected = next(step for step, value in found.items() if step > 0 and value >= goal)
    for name in ("one", "two"):
        result = run(tmp_path / name, stop_at=goal)
        assert result.env_steps == expected < 48
        assert result.after is not None and result.after.mean == pytest.approx(goal)
        assert f"has reached `stop_at` {goal:g}" in result.stopped_by
        assert evaluations(tmp_path / name) == {k: v for k, v in found.items() if k <= expected}
        newest = checkpointing.find(tmp_path / name, "latest")
        assert checkpointing.env_steps(newest) == expected and not checkpointing.is_light(newest)
        assert stopping.reached(newest, goal) == f"return of {goal:.1f}"
        assert stopping.reached(newest, goal + 0.01) is None
        assert stopping.reached(newest, None) is None


def test_the_untrained_policys_return_ends_nothing(tmp_path):
    assert run(tmp_path, stop_at=-1.0).env_steps == 8


def test_a_run_that_has_reached_its_return_makes_no_more_steps_until_that_is_changed(tmp_path):
    first = run(tmp_path, stop_at=-1.0)
    again = run(tmp_path, stop_at=-1.0)
    assert (again.env_steps, again.after) == (8, first.after)
    assert "has reached" in again.stopped_by
    assert run(tmp_path, stop_at=1e6).env_steps == 48


def test_a_run_ends_when_its_time_is_over_and_has_all_of_it_again_when_it_resumes(tmp_path, monkeypatch):
    made = []
    for seconds in (itertools.count(), itertools.count(1000.0)):  # of a clock that goes on when it is read
        monkeypatch.setattr(stopping, "time", type("Time", (), {"monotonic": seconds.__next__}))
        result = run(tmp_path, stop_after_minutes=0.25)
        assert result.stopped_by == "the time is up, with `stop_after_minutes` 0.25"
        assert result.after is not None
        assert list(evaluations(tmp_path))[-1] == result.env_steps
        assert checkpointing.env_steps(checkpointing.find(tmp_path)) == result.env_steps
        made.append(result.env_steps)
    assert 0 < made[0] < made[1] < 48
    monkeypatch.undo()
    assert run(tmp_path).env_steps == 48


@pytest.mark.parametrize("name", ["stop_at", "stop_after_minutes"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, True, "9"])
def test_an_end_is_a_finite_number_or_none(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must be a finite number or None, got {value!r}"):
        options.RunOptions(num_env_steps=1, **{name: value})


@pytest.mark.parametrize("minutes", [0, -1.5])
def test_a_run_has_some_time(minutes):
    with pytest.raises(ValueError, match=f"`stop_after_minutes` must be > 0 or None, got {minutes}"):
        options.RunOptions(num_env_steps=1, stop_after_minutes=minutes)


@pytest.mark.parametrize(
    ("made", "evaluated", "changes", "complete"),
    [
        (9, 9, {}, False),
        (10, 10, {}, True),
        (11, 11, {}, True),
        (10, 9, {}, False),  # the last evaluation was interrupted
        (10, None, {}, False),
        (10, None, {"evaluation_episodes": 0}, True),
        (10, 9, {"has_evaluator": False}, True),  # a distributed run that has given its evaluator up
        (9, 9, {"stop_at": 5.0}, True),
        (9, 9, {"stop_at": 5.5}, False),
        (10, 10, {"num_env_steps": 0, "num_learner_steps": 10}, True),
        (9, 9, {"num_env_steps": 0, "num_learner_steps": 10}, False),
        (10, 10, {"num_env_steps": None}, False),  # of an older version, which did not store it
    ],
)
@pytest.mark.parametrize("light", [False, True])
def test_a_run_is_complete_with_its_steps_and_their_evaluation_or_its_return(
    tmp_path, made, evaluated, changes, complete, light
):
    evaluations = evaluation.Evaluations()
    if evaluated is not None:
        evaluations.note(evaluated, evaluation.Evaluation((5.0,), (1,)))
    state = {**evaluations.save(), "has_evaluator": changes.get("has_evaluator", True)}
    checkpointing.Checkpointer(tmp_path).save(made, state, evaluation=5.0, light=light)
    run_options = {"num_env_steps": 10, "evaluation_episodes": 1, "stop_at": None, **changes}
    checkpoint = checkpointing.latest(tmp_path)
    assert stopping.is_complete(checkpoint, run_options) is (complete and not light)


def test_an_evaluation_at_the_end_that_was_interrupted_is_made_on_resuming(tmp_path, monkeypatch, capsys):
    evaluate, directory = evaluation.evaluate, tmp_path / "run"
    words = ["train", "ppo", "--env", "CartPole-v1", "--num-env-steps", "16", "--rollout-steps", "8"]
    words += ["--num-envs", "1", "--minibatch-size", "4", "--evaluation-episodes", "2", "--log", "csv"]
    calls = []

    def interrupt(*arguments, **named):
        calls.append(arguments)
        if len(calls) == 3:  # after random actions and the untrained policy
            signal.raise_signal(signal.SIGTERM)
        return evaluate(*arguments, **named)

    monkeypatch.setattr(evaluation, "evaluate", interrupt)
    assert main([*words, "--directory", str(directory)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"Stopped by SIGTERM and saved. To resume: minerva resume {directory}" in said
    assert checkpointing.env_steps(checkpointing.find(directory)) == 16
    assert list(evaluations(directory)) == [0]
    assert main(["resume", str(directory)]) == 0
    assert "Resuming at 16 steps" in capsys.readouterr().out
    assert list(evaluations(directory)) == [0, 16]
    assert main(["resume", str(directory)]) == 2
    assert "must be greater than the 16 steps" in capsys.readouterr().err


def test_a_run_that_was_killed_after_its_last_light_checkpoint_saves_a_whole_one(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(saver.Saver, "save", lambda self, **_: None)
        run(tmp_path)
    assert checkpointing.is_light(checkpointing.latest(tmp_path / "checkpoints"))
    run(tmp_path)
    assert not checkpointing.is_light(checkpointing.latest(tmp_path / "checkpoints"))
