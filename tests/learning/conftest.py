"""Trainings by the command line. Their runs stay in runs/learn: a second call goes on with the first."""

import pathlib
import subprocess
import sys
from collections.abc import Callable

import pytest

from minerva_acme import environments, runs
from minerva_acme.runs import checkpointing, run_folder

FOLDER = pathlib.Path(__file__).parents[2] / "runs" / "learn"

Train = Callable[..., pathlib.Path]
Evaluate = Callable[[pathlib.Path], float]


@pytest.fixture(scope="session")
def train() -> Train:
    """Trains or goes on, `train(name, agent, env, num_env_steps, seed, *flags)`; returns the folder."""

    def function(name: str, agent: str, env: str, num_env_steps: int, seed: int, *flags: str) -> pathlib.Path:
        directory = FOLDER / f"{name}-seed{seed}"
        command = f"minerva_acme.cli.main train {agent} --env {env} --seed {seed}"
        command += f" --num-env-steps {num_env_steps}"
        subprocess.run(
            [sys.executable, "-m", *command.split(), *flags, "--directory", str(directory)], check=True
        )
        return directory

    return function


@pytest.fixture(scope="session")
def evaluate() -> Evaluate:
    """Mean return of ten episodes without exploration, from initial states not seen in training."""

    def function(directory: pathlib.Path) -> float:
        description = run_folder.read(directory)
        result = runs.evaluate_checkpoint(
            checkpointing.Checkpointer(directory / "checkpoints").latest(),
            description.make_builder(),
            environments.make_training_environment(description.environment, seed=10_000 + description.seed),
            num_episodes=10,
        )
        print(f"{directory.name}: {result.mean:.1f} ± {result.std:.1f}", flush=True)
        return result.mean

    return function
