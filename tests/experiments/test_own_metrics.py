"""Metrics of the user's own: evaluations log them, choose the best by one, and stop a run at one."""

import csv
import itertools
import logging

import gymnasium
import numpy as np
import pytest

from minerva_acme import core, environments, experiments, observers, runs, testing
from minerva_acme.agents import ppo
from minerva_acme.experiments import stopping
from minerva_acme.runs import checkpointing, evaluation
from tests.experiments import reaching

BUILDER = ppo.PPOBuilder(
    ppo.PPOConfig(
        num_environments=1,
        rollout_steps=8,
        minibatch_size=4,
        num_epochs=1,
        policy_layer_sizes=(4,),
        value_layer_sizes=(4,),
    )
)
LAST = "info/is_success/last"


def make_environment(seed):
    return environments.make_training_environment("tests.experiments.reaching:Reach", seed=seed)


def successes(seed, num_episodes):
    """Whether a point that stays at 0 is near its goal, at the end of each episode, by a plain loop."""
    task, found = reaching.Reach(), []
    for index in range(num_episodes):
        task.reset(seed=seed if index == 0 else None)
        *_, info = [task.step(np.zeros(1))[-1] for _ in range(8)]
        found.append(float(info["is_success"]))
    return found


class Stays(core.VectorActor):
    """Plays the action 0 in one environment, or in each of a vector."""

    def select_action(self, observation):
        zero = np.zeros(1, np.float32)
        return [zero] * len(observation) if isinstance(observation, list) else zero

    def observe_first(self, *arguments):
        pass

    def observe(self, *arguments, **named):
        pass

    def update(self, wait=False):
        pass


class Told(testing.FakeEnvironment):
    """Tells in `info` what the next evaluation is to find; None tells nothing."""

    def __init__(self, values):
        super().__init__(episode_length=2)
        self._value = next(values)

    def get_info(self):
        return {} if self._value is None else {"success": self._value}


def run(directory, values=(), *, making=None, **overrides):
    """Runs with an evaluation of random actions, of the untrained policy, and then every 8 steps."""
    told = itertools.chain(values, itertools.repeat(0.0))
    return experiments.run_experiment(
        experiments.ExperimentConfig(
            **{
                "builder": BUILDER,
                "environment_factory": lambda seed: testing.FakeEnvironment(seed=seed),
                "evaluation_environment_factory": making or (lambda seed: Told(told)),
                "directory": directory,
                "num_env_steps": 40,
                "evaluation_period": 8,
                "evaluation_episodes": 2,
                "checkpoint_period": 0,
                "tensorboard": False,
                "replay": "memory",
                "metric": "info/success/last",
                **overrides,
            }
        )
    )


def column(directory, name):
    with open(directory / "evaluator.csv", newline="") as file:
        return [row[name] for row in csv.DictReader(file)]


def test_the_last_numbers_of_an_episodes_info_are_metrics():
    result = runs.evaluate(make_environment(3), Stays(), 5)
    expected = successes(3, 5)
    assert 0 < np.mean(expected) < 1  # or the test says nothing
    assert result.measured[LAST] == tuple(expected)
    assert result.metrics()[LAST] == np.mean(expected)
    assert {*result.measured} == {LAST, "info/distance/last", "info/energy/last"}  # text is none


def test_in_a_vector_they_are_those_of_each_environment():
    expected = [successes(seed, 2) for seed in (3, 4, 5)]
    in_order = tuple(each[index] for index in (0, 1) for each in expected)
    made = environments.InProcessVectorEnvironment([make_environment(seed) for seed in (3, 4, 5)])
    assert runs.evaluate(made, Stays(), 6).measured[LAST] == in_order
    for mode in gymnasium.vector.AutoresetMode:
        vector = gymnasium.vector.SyncVectorEnv([reaching.Reach] * 3, autoreset_mode=mode)
        made = environments.GymnasiumVectorEnvironment(vector, seed=3)
        assert runs.evaluate(made, Stays(), 6).measured[LAST] == in_order


def test_a_metric_may_be_another_statistic_of_an_episodes_steps():
    for statistic, expected in (("sum", 8 * 0.25), ("max", 0.25), ("mean", 0.25)):
        actor = testing.FakeActor(np.full(1, 0.5, np.float32))
        result = runs.evaluate(make_environment(0), actor, 2, metric=f"info/energy/{statistic}")
        assert result.score(f"info/energy/{statistic}") == pytest.approx(expected)
        assert {name.rpartition("/")[2] for name in result.measured} == {"last", statistic}


def test_the_negative_of_a_metric_is_one_for_which_lower_is_better():
    actor = testing.FakeActor(np.full(1, 0.5, np.float32))
    result = runs.evaluate(make_environment(0), actor, 2, metric="-info/energy/sum")
    assert result.measured["-info/energy/sum"] == tuple(-x for x in result.measured["info/energy/sum"])
    assert result.score("-info/energy/sum") == pytest.approx(-8 * 0.25)
    assert (
        runs.evaluate(make_environment(0), actor, 2, metric="-episode_length").score("-episode_length") == -8
    )
    assert (
        "-info/nothing" not in runs.evaluate(make_environment(0), actor, 2, metric="-info/nothing").measured
    )


def test_the_lowest_is_the_best_of_a_negative_and_stops_a_run(tmp_path):
    result = run(tmp_path, [9.0, 8.0, 7.0, 3.0, 5.0, 2.0], metric="-info/success/last", stop_at=-4.0)
    assert (result.env_steps, result.best[0]) == (16, 16)
    assert column(tmp_path, "-info/success/last") == ["-8.0", "-7.0", "-3.0"]
    assert column(tmp_path, "info/success/last") == ["8.0", "7.0", "3.0"]
    assert result.stopped_by == "the evaluation -info/success/last of -3 has reached `stop_at` -4"


def test_copies_of_observers_watch_and_what_every_episode_has_is_averaged():
    class Counts(observers.SummarisingObserver):
        """Counts the episodes that it has seen."""

        num_seen = 0

        def measure(self, environment, timestep, action):
            return {}

        def get_metrics(self):
            self.num_seen += 1
            sometimes = {"early": 1.0} if self.num_seen == 1 else {"late": 1.0}
            return {"seen": self.num_seen, "text": "x"} | sometimes

    counts = Counts()
    for _ in range(2):  # the second knows nothing of the first
        result = runs.evaluate(
            testing.FakeEnvironment(), testing.FakeActor(np.zeros(2, np.float32)), 3, observers=[counts]
        )
        assert result.measured == {"seen": (1.0, 2.0, 3.0)}
    assert counts.num_seen == 0
    with pytest.raises(ValueError, match="must have names of their own, got `seen` of Counts twice"):
        runs.evaluate(
            testing.FakeEnvironment(),
            testing.FakeActor(np.zeros(2, np.float32)),
            1,
            observers=[counts, counts],
        )


def test_an_own_observer_of_the_info_takes_the_place_of_the_usual_one():
    own = observers.EnvironmentInfo(["energy"])
    result = runs.evaluate(make_environment(0), Stays(), 1, observers=[own])
    assert {*result.measured} == {f"info/energy/{name}" for name in own.statistics}


def test_the_metric_chooses_the_best_checkpoint_and_is_logged(tmp_path):
    result = run(tmp_path, [0.0, 0.1, 0.2, 0.9, 0.9, 0.5], num_env_steps=32)
    assert column(tmp_path, "info/success/last") == ["0.1", "0.2", "0.9", "0.9", "0.5"]
    assert len({*column(tmp_path, "episode_return")}) == 1  # which chooses nothing here
    assert result.best[0] == 16
    assert checkpointing.env_steps(checkpointing.find(tmp_path, "best")) == 16
    # A run that goes on compares with what it had reached.
    longer = run(tmp_path, [0.8, 0.7], num_env_steps=48)
    assert longer.best == result.best
    assert checkpointing.env_steps(checkpointing.find(tmp_path, "best")) == 16


def test_the_metric_stops_a_run(tmp_path):
    result = run(tmp_path, [1.0, 1.0, 0.2, 0.4, 0.9], stop_at=0.4)
    assert result.env_steps == 16
    assert result.stopped_by == "the evaluation info/success/last of 0.4 has reached `stop_at` 0.4"
    assert run(tmp_path, stop_at=0.4).env_steps == 16
    newest = checkpointing.find(tmp_path)
    assert stopping.reached(newest, 0.4) == "info/success/last of 0.4"
    assert stopping.reached(newest, 0.41) is None


def test_a_metric_that_is_unknown_is_refused_before_training_with_those_that_are(tmp_path):
    with pytest.raises(ValueError, match="got 'succes'. This one had episode_return, .*info/success/last"):
        run(tmp_path, metric="succes")
    assert run(tmp_path, num_env_steps=8).env_steps == 8  # in the same folder


def test_a_metric_that_only_some_episodes_have_is_refused(tmp_path):
    class Sometimes(testing.FakeEnvironment):
        num_resets = 0

        def reset(self):
            self.num_resets += 1
            return super().reset()

        def get_info(self):
            return {"success": True} if self.num_resets == 1 else {}

    with pytest.raises(ValueError, match="have for every episode, got 'info/success/last'"):
        run(tmp_path, making=lambda seed: Sometimes())


def test_an_evaluation_without_the_metric_is_not_the_best(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        result = run(tmp_path, [0.0, 0.0, 0.3, None, 0.2, 0.4, 0.1])
    assert result.best[0] == 32
    assert "evaluation at 16 steps had 'info/success/last': it is not compared" in caplog.text
    assert column(tmp_path, "info/success/last") == ["0.0", "0.3", "", "0.2", "0.4", "0.1"]


def test_a_run_keeps_its_metric(tmp_path):
    run(tmp_path, num_env_steps=8)
    with pytest.raises(ValueError, match="`metric` must be 'info/success/last', by which the run has"):
        run(tmp_path, num_env_steps=16, metric="episode_length")


def test_a_metric_replaces_no_column_of_the_log(tmp_path):
    class Takes(observers.ActionNorm):
        def get_metrics(self):
            return {"episode_return_std": 7.0, "actor_steps": 7.0, "mine": 7.0}

    run(tmp_path, num_env_steps=8, evaluation_observers=[Takes()], metric="mine")
    assert column(tmp_path, "mine") == ["7.0"] * 2
    assert column(tmp_path, "actor_steps") == ["0", "8"]
    assert column(tmp_path, "episode_return_std") == ["0.0"] * 2


def test_scores_that_are_not_numbers_are_never_the_best_for_long():
    evaluations = evaluation.Evaluations()
    for step, value in enumerate((np.nan, 1.0, np.nan, 0.5)):
        evaluations.note(step, runs.Evaluation((value,), (1,)))
    assert evaluations.best == (1, runs.Evaluation((1.0,), (1,)))
