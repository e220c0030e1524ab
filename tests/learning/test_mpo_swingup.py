"""Long trainings: `make learn` runs them, and `minerva eval` shows what they left in runs/learn."""

import csv
import pathlib
import subprocess
import sys

import pytest

from minerva_acme import environments, experiments
from minerva_acme.cli import runs
from minerva_acme.experiments import checkpointing

TASK = "dm_control/cartpole/swingup"
FOLDER = pathlib.Path(__file__).parents[2] / "runs" / "learn"

pytestmark = pytest.mark.learning


def train(critic_target, seed, num_env_steps):
    """Trains, or goes on, with the preset `control`; returns the run's folder."""
    directory = FOLDER / f"cartpole-swingup-{critic_target}-seed{seed}"
    command = f"minerva_acme.cli.main train mpo --env {TASK} --preset control --seed {seed}"
    command += f" --critic-target {critic_target} --num-env-steps {num_env_steps}"
    subprocess.run([sys.executable, "-m", *command.split(), "--directory", str(directory)], check=True)
    return directory


def evaluate(directory, seed):
    """Mean return of ten episodes by the mean action, from initial states not seen in training."""
    result = experiments.evaluate_checkpoint(
        checkpointing.Checkpointer(directory / "checkpoints").latest(),
        runs.read(directory).make_builder(),
        environments.make_training_environment(TASK, seed=10_000 + seed),
        num_episodes=10,
    )
    print(f"{directory.name}: {result.mean:.1f} +- {result.std:.1f}", flush=True)
    return result.mean


def evaluation_at(directory, env_steps):
    """The return of the evaluation that training made after so many steps."""
    with open(directory / "evaluator.csv", newline="", encoding="utf-8") as file:
        rows = {int(float(row["actor_steps"])): float(row["episode_return"]) for row in csv.DictReader(file)}
    return rows[env_steps]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_mpo_with_retrace_swings_up_the_pole_in_50k_steps(seed):
    assert evaluate(train("retrace", seed, 50_000), seed) >= 800.0


def test_retrace_learns_more_than_one_step_targets_from_the_same_steps():
    num_env_steps = {"retrace": 50_000, "n_step": 40_000, "one_step": 40_000}
    folders = {target: train(target, 0, steps) for target, steps in num_env_steps.items()}
    by_target = {target: evaluation_at(folder, 40_000) for target, folder in folders.items()}
    print(f"after 40,000 steps, seed 0: {by_target}", flush=True)
    assert by_target["retrace"] > by_target["one_step"]
