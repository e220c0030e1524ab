"""Long trainings: `make learn` runs them, and `minerva eval` shows what they left in runs/learn."""

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


def train_and_evaluate(name, num_env_steps, seed, *flags):
    """The mean return of ten episodes, by the mean action, in an environment not seen in training."""
    directory = FOLDER / name
    command = [sys.executable, "-m", "minerva_acme.cli.main", "train", "mpo", "--env", TASK]
    command += ["--preset", "control", "--num-env-steps", str(num_env_steps), "--seed", str(seed)]
    subprocess.run([*command, "--directory", str(directory), *flags], check=True)
    checkpoint = checkpointing.Checkpointer(directory / "checkpoints").latest()
    assert int(checkpoint.name) == num_env_steps
    evaluation = experiments.evaluate_checkpoint(
        checkpoint,
        runs.read(directory).make_builder(),
        environments.make_training_environment(TASK, seed=10_000 + seed),
        num_episodes=10,
    )
    print(f"{name}: {evaluation.mean:.1f} +- {evaluation.std:.1f}", flush=True)
    return evaluation.mean


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_mpo_with_retrace_swings_up_the_pole_in_50k_steps(seed):
    assert train_and_evaluate(f"cartpole-swingup-retrace-seed{seed}", 50_000, seed) >= 800.0


def test_retrace_learns_more_than_one_step_targets_from_the_same_steps():
    by_target = {
        target: train_and_evaluate(
            f"cartpole-swingup-{target}-40k-seed0", 40_000, 0, "--critic-target", target
        )
        for target in ("retrace", "n_step", "one_step")
    }
    assert by_target["retrace"] > by_target["one_step"]
