"""An experiment with another agent is the same experiment with another builder."""

import csv
import dataclasses

import pytest

from minerva_acme import environments, experiments
from minerva_acme.agents import mpo, ppo, vmpo

SIZES = {"policy_layer_sizes": (8,), "value_layer_sizes": (8,), "rollout_steps": 32, "num_environments": 2}
BUILDERS = {
    "mpo": mpo.MPOBuilder(
        mpo.MPOConfig(policy_layer_sizes=(8,), critic_layer_sizes=(8,), batch_size=8, min_replay_size=20)
    ),
    "ppo": ppo.PPOBuilder(ppo.PPOConfig(minibatch_size=16, **SIZES)),
    "vmpo": vmpo.VMPOBuilder(vmpo.VMPOConfig(**SIZES)),
}


@pytest.mark.parametrize("name", BUILDERS)
def test_swapping_the_agent_is_a_change_of_builder(tmp_path, name):
    experiment = experiments.ExperimentConfig(
        builder=BUILDERS["mpo"],
        environment_factory=lambda seed: environments.make_training_environment("Pendulum-v1", seed=seed),
        directory=tmp_path,
        num_env_steps=64,
        evaluation_period=32,
        evaluation_episodes=1,
        log_period_seconds=0.0,
        tensorboard=False,
    )
    result = experiments.run_experiment(dataclasses.replace(experiment, builder=BUILDERS[name]))
    assert result.env_steps == 64 and result.learner_steps >= 2
    assert all(evaluation.mean < 0.0 for evaluation in (result.random, result.before, result.after))
    # The same three logs, with rows of the same kind but for what the learner reports.
    assert {path.stem for path in tmp_path.glob("*.csv")} >= {"evaluator", "learner"}
    with open(tmp_path / "evaluator.csv", newline="") as file:
        steps = [int(float(row["actor_steps"])) for row in csv.DictReader(file)]
    assert steps == [0, 32, 64]
