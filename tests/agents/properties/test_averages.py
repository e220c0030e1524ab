"""Evaluations and saved policies act by an average of the policy, if the config asks for one."""

import functools
import pathlib
from typing import Any

import numpy as np
import pytest
import torch

from minerva_acme import experiments, runs, testing
from minerva_acme.runs import checkpointing
from tests.distributed import small

from .. import table

RATE = 0.4
SETTINGS = {"normalize_observations": True}  # whose statistics are buffers


def test_the_average_is_the_mean_of_the_first_steps_and_then_forgets_at_its_rate(learner_scene):
    builder = learner_scene.builder(policy_average_rate=RATE, **SETTINGS)
    (newest,), (average,) = builder.policy_variables, builder.evaluation_variables
    learner, _ = learner_scene.make(builder=builder)
    trained = {name for name, _ in learner._modules[newest].named_parameters()}
    expected: dict[str, np.ndarray] = {}
    for share in (1.0, 1 / 2, RATE, RATE):
        learner.step()
        found, weights = learner.get_variables([average, newest])
        for name, value in weights.items():
            old = expected.get(name, 0.0)
            expected[name] = old + share * (value - old) if name in trained else value
        assert found.keys() == weights.keys() > trained
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6, err_msg=name)
    assert any((found[name] != weights[name]).any() for name in trained)


def test_training_is_the_same_with_an_average_beside_it(learner_scene):
    with_average, rows = learner_scene.make(policy_average_rate=RATE)
    without, others = learner_scene.make()
    for learner in (with_average, without):
        learner.run(num_steps=3)
    states = [table.state_of(learner) for learner in (with_average, without)]
    added = states[0]["modules"].keys() - states[1]["modules"].keys()
    assert added == set(with_average._variables) - set(without._variables) and len(added) == 1
    for name in added:
        del states[0]["modules"][name]
    testing.assert_nests_equal(*states, "The average must change nothing.")
    assert rows[-1].keys() == others[-1].keys()


def test_without_an_average_evaluations_act_by_the_newest_weights(learner_scene):
    builder = learner_scene.builder()
    assert builder.evaluation_variables == builder.policy_variables


def test_a_skipped_batch_leaves_the_statistics_of_the_average():
    scene = table.Scene("sac", {"policy_average_rate": RATE, **SETTINGS})
    bad = scene.make_batch(1)
    bad = bad._replace(reward=torch.full_like(bad.reward, torch.nan))
    learner, _ = scene.make([scene.make_batch(), bad], max_skipped_batches=1)
    learner.step()
    before = testing.through_a_file(learner.save())["modules"]["average_policy"]
    learner.step()
    testing.assert_nests_equal(learner.save()["modules"]["average_policy"], before, "Nothing was learned.")


class Watched(small.Ramp):
    """Notes each observation and the action that answers it."""

    def __init__(self, seed: int, seen: list[Any]) -> None:
        super().__init__(seed)
        self.seen = seen

    def step(self, action: np.ndarray) -> Any:
        if self._step < 20:
            self.seen.append((self._observation, action))
        return super().step(action)


@pytest.mark.parametrize("evaluation_environments", [1, 2])
def test_evaluations_and_checkpoints_have_the_average_and_actors_the_newest_weights(
    tmp_path: pathlib.Path, evaluation_environments: int
) -> None:
    seen: dict[float, list[Any]] = {0.05: [], 0.0: []}
    trained = []
    for rate, noted in seen.items():
        experiments.run_experiment(
            small.experiment(
                tmp_path / str(rate),
                small.sac_builder(policy_average_rate=rate, learning_rate=0.01),
                num_env_steps=200,
                evaluation_environment_factory=functools.partial(Watched, seen=noted),
                evaluation_episodes=2,
                evaluation_environments=evaluation_environments,
                replay="memory",
            )
        )
        trained.append([row["episode_return"] for row in small.rows(tmp_path / str(rate), "actor")])
        state: Any = checkpointing.load_state(checkpointing.find(tmp_path / str(rate)))
        expected = dict(state["learner"]["modules"]["average_policy" if rate else "policy"])
        testing.assert_nests_equal(state["policy_variables"][0], expected, "Saved")
        policy = runs.load_policy(tmp_path / str(rate), environment=small.Ramp(0))
        for observation, action in noted[-40:]:  # of the last two episodes
            np.testing.assert_allclose(policy(observation).action, action, rtol=1e-4, atol=1e-5)
    assert trained[0] == trained[1]
    assert any((a[1] != b[1]).any() for a, b in zip(*(noted[-40:] for noted in seen.values()), strict=True))
