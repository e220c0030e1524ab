"""Films of evaluations, whoever makes them."""

import csv
import json
import logging

import pytest

from minerva_acme import actors, environments, experiments, runs
from minerva_acme.agents import ppo

SMALL = ppo.PPOConfig(
    policy_layer_sizes=(8,), value_layer_sizes=(8,), num_environments=2, rollout_steps=64, minibatch_size=16
)
GIF = b"GIF89a" + bytes([64, 1, 240, 0])


class FakeFilmer:
    """Plays the episode, and makes a film of a few bytes."""

    def __init__(self):
        self.returns = []

    def __call__(self, actor, seed, should_stop):
        assert isinstance(actor, actors.FeedForwardActor) and not should_stop()
        self.returns += runs.evaluate(make_environment(seed), actor, 1).returns
        return GIF


def make_environment(seed):
    return environments.make_training_environment("CartPole-v1", seed=seed)


def make_config(directory, film_episode=None, **overrides):
    return experiments.ExperimentConfig(
        **{
            "builder": ppo.PPOBuilder(SMALL),
            "environment_factory": make_environment,
            "directory": directory,
            "num_env_steps": 256,
            "evaluation_period": 128,
            "evaluation_episodes": 2,
            "checkpoint_period": 0,
            "replay": "memory",
            "evaluation_video": film_episode is not None,
            "film_episode": film_episode,
            **overrides,
        }
    )


def rows(directory, label):
    with open(directory / f"{label}.csv", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def written(monkeypatch):
    """The films that went to TensorBoard: name, bytes and step."""
    films = []
    monkeypatch.setattr(
        "minerva_acme.loggers.TensorBoardLogger.write_film",
        lambda logger, name, gif, step: films.append((name, gif, step)),
    )
    return films


def test_each_evaluations_first_episode_is_filmed_at_its_steps(tmp_path, written):
    filmer = FakeFilmer()
    result = experiments.run_experiment(make_config(tmp_path, filmer))
    assert written == [("evaluation/video", GIF, step) for step in (0, 128, 256)]
    assert (filmer.returns[0], filmer.returns[-1]) == (result.before.returns[0], result.after.returns[0])


def test_a_run_with_films_is_bit_for_bit_the_one_without(tmp_path, written):
    plain = experiments.run_experiment(make_config(tmp_path / "plain"))
    filmed = experiments.run_experiment(make_config(tmp_path / "filmed", FakeFilmer()))
    assert len(written) == 3
    assert (plain.random, plain.before, plain.after) == (filmed.random, filmed.before, filmed.after)
    for label, names in (
        ("actor", ("actor_steps", "episode_return")),
        ("learner", ("learner_steps", "loss/policy", "loss/value", "policy/approx_kl")),
    ):
        values = [
            [[row[name] for name in names] for row in rows(tmp_path / folder, label)]
            for folder in ("plain", "filmed")
        ]
        assert len(values[0]) > 1 and values[0] == values[1]


def test_nothing_is_filmed_unless_asked_for(tmp_path, written):
    filmer = FakeFilmer()
    experiments.run_experiment(make_config(tmp_path, filmer, evaluation_video=False))
    assert filmer.returns == written == []


@pytest.mark.parametrize("error", [OSError("no space left"), ValueError("no OpenGL here")])
def test_a_film_that_fails_costs_a_warning_and_not_the_run(tmp_path, written, caplog, error):
    def fail(actor, seed, should_stop):
        raise error

    with caplog.at_level(logging.WARNING):
        result = experiments.run_experiment(make_config(tmp_path, fail))
    assert result.after is not None and written == []
    warned = [record.getMessage() for record in caplog.records]
    assert warned == [f"no video of the evaluation at {step} steps: {error}" for step in (0, 128, 256)]


def test_a_film_that_was_stopped_is_not_shown(tmp_path, written):
    experiments.run_experiment(make_config(tmp_path, lambda actor, seed, should_stop: None))
    assert written == []


def test_the_hyperparameters_are_the_description_but_for_options(tmp_path, monkeypatch):
    from minerva_acme import loggers

    given = []

    class Spy(loggers.TensorBoardLogger):
        def __init__(self, *args, hyperparameters=None, **others):
            given.append(hyperparameters)
            super().__init__(*args, **others)

    monkeypatch.setattr(loggers, "TensorBoardLogger", Spy)
    experiments.run_experiment(make_config(tmp_path, num_env_steps=64))
    (parameters,) = filter(None, given)
    assert parameters == {
        "agent": "ppo",
        "environment": "CartPole-v1",
        "seed": 0,
        **json.loads((tmp_path / "run.json").read_text())["hyperparameters"],
    }
    assert "num_env_steps" not in parameters
