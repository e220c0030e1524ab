import csv
import itertools
import math

import pytest

from minerva_acme import environments, experiments
from minerva_acme.agents import ppo
from minerva_acme.experiments import stopping
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


def test_a_run_ends_at_the_first_evaluation_that_reaches_its_return_and_twice_at_the_same(tmp_path):
    whole = run(tmp_path / "whole")
    assert (whole.env_steps, whole.stopped_by) == (48, None)
    found = evaluations(tmp_path / "whole")
    goal = max(list(found.values())[1:4])  # is first reached before the end
    expected = next(step for step, value in found.items() if step > 0 and value >= goal)
    for name in ("one", "two"):
        result = run(tmp_path / name, stop_at_return=goal)
        assert result.env_steps == expected < 48
        assert result.after is not None and result.after.mean == pytest.approx(goal)
        assert f"has reached `stop_at_return` {goal:g}" in result.stopped_by
        assert evaluations(tmp_path / name) == {k: v for k, v in found.items() if k <= expected}
        newest = checkpointing.find(tmp_path / name, "latest")
        assert checkpointing.env_steps(newest) == expected and not checkpointing.is_light(newest)
        assert stopping.reached_return(newest, goal) == pytest.approx(goal)
        assert stopping.reached_return(newest, goal + 0.01) is None
        assert stopping.reached_return(newest, None) is None


def test_the_untrained_policys_return_ends_nothing(tmp_path):
    assert run(tmp_path, stop_at_return=-1.0).env_steps == 8


def test_a_run_that_has_reached_its_return_makes_no_more_steps_until_that_is_changed(tmp_path):
    first = run(tmp_path, stop_at_return=-1.0)
    again = run(tmp_path, stop_at_return=-1.0)
    assert (again.env_steps, again.after) == (8, first.after)
    assert "has reached" in again.stopped_by
    assert run(tmp_path, stop_at_return=1e6).env_steps == 48


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


@pytest.mark.parametrize("name", ["stop_at_return", "stop_after_minutes"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, True, "9"])
def test_an_end_is_a_finite_number_or_none(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must be a finite number or None, got {value!r}"):
        options.RunOptions(num_env_steps=1, **{name: value})


@pytest.mark.parametrize("minutes", [0, -1.5])
def test_a_run_has_some_time(minutes):
    with pytest.raises(ValueError, match=f"`stop_after_minutes` must be > 0 or None, got {minutes}"):
        options.RunOptions(num_env_steps=1, stop_after_minutes=minutes)


@pytest.mark.parametrize(
    ("made", "light", "goal", "complete"),
    [
        (9, False, None, False),
        (10, False, None, True),
        (11, False, None, True),
        (9, False, 5.0, True),
        (9, False, 5.5, False),
        (10, True, 5.0, False),  # it may be from the middle of the last evaluation
    ],
)
def test_a_run_is_complete_with_its_steps_or_its_return(tmp_path, made, light, goal, complete):
    evaluations = evaluation.Evaluations()
    evaluations.note(made, evaluation.Evaluation((5.0,), (1,)))
    checkpointing.Checkpointer(tmp_path).save(made, evaluations.save(), evaluation=5.0, light=light)
    checkpoint = checkpointing.latest(tmp_path)
    assert stopping.is_complete(checkpoint, 10, goal) is complete
