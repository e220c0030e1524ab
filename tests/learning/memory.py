"""Agents with a memory, and without one, where observations have no velocities.

    python -m tests.learning.memory --tasks cartpole --seeds 0 1 2
    python -m tests.learning.memory --tasks pendulum --seeds 0 1

Each run has a folder and continues there if it was stopped. The rows of all finished runs are written to
`rows.csv`, in the form of `minerva_acme.results`.
"""

import argparse
import csv
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import dm_env
import numpy as np
import torch

from minerva_acme import builders, environments, experiments, specs, wrappers
from minerva_acme.agents import dqn, r2d2, sac
from minerva_acme.results import rows

_FINAL_EPISODES = 20


class Task(NamedTuple):
    """An environment, the numbers of its observation that are shown, and the agents that play it."""

    env: str
    shown: tuple[int, ...]
    num_env_steps: int
    agents: Mapping[str, builders.AgentBuilder[Any]]


TASKS: Mapping[str, Task] = {
    "cartpole": Task(
        "CartPole-v1",
        (0, 2),
        100_000,
        {
            "r2d2": r2d2.R2D2Builder(r2d2.PRESETS["memory"]),
            "dqn": dqn.DQNBuilder(dqn.PRESETS["default"]),
        },
    ),
    "pendulum": Task(
        "Pendulum-v1",
        (0, 1),
        50_000,
        {
            "sac_memory": sac.SACBuilder(sac.PRESETS["memory"]),
            "sac": sac.SACBuilder(sac.SACConfig(samples_per_insert=128.0)),  # an update every two steps, too
        },
    ),
}


def make_environment(task: Task, seed: int) -> dm_env.Environment:
    """Makes the task's environment without velocities."""
    shown = list(task.shown)
    return wrappers.ObservationTransformWrapper(
        environments.make_training_environment(task.env, seed=seed),
        transform=lambda observation: observation[shown],
        spec=specs.Array((len(shown),), np.float32, name="without velocities"),
    )


def train(
    name: str, agent: str, seed: int, directory: pathlib.Path, num_env_steps: int | None
) -> list[rows.Row]:
    """Trains, or continues a run, and returns its rows."""
    task = TASKS[name]
    folder = directory / f"{name}-{agent}-{seed}"
    steps = num_env_steps or task.num_env_steps
    result = experiments.run_experiment(
        experiments.ExperimentConfig(
            builder=task.agents[agent],
            environment_factory=lambda seed: make_environment(task, seed),
            directory=folder,
            num_env_steps=steps,
            seed=seed,
            replay="memory",
            evaluation_period=max(1, steps // 10),
            evaluation_episodes=_FINAL_EPISODES,
            tensorboard=False,
        )
    )
    found = []
    with open(folder / "evaluator.csv", newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            found.append(("avg_return", int(float(row["actor_steps"])), float(row["episode_return"])))
    found.append(("final_return", steps, result.after.mean))
    found.append(("final_return_std", steps, float(np.std(result.after.returns))))
    return [rows.Row(agent, f"{task.env} without velocities", seed, *measured) for measured in found]


def main(arguments: Sequence[str] | None = None) -> list[rows.Row]:
    """Trains, writes the rows after each run, and prints the last returns."""
    parser = argparse.ArgumentParser(prog="python -m tests.learning.memory", description=__doc__)
    parser.add_argument("--tasks", nargs="+", choices=[*TASKS], default=[*TASKS])
    parser.add_argument("--agents", nargs="+")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--num-env-steps", type=int)
    parser.add_argument("--directory", type=pathlib.Path, default=pathlib.Path("runs/learning_memory"))
    chosen = parser.parse_args(arguments)
    chosen.directory.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    path, found = chosen.directory / "rows.csv", {}
    if path.exists():
        found = {row[:-1]: row for row in rows.read_rows(path)}
    for name in chosen.tasks:
        for seed in chosen.seeds:
            for agent in chosen.agents or TASKS[name].agents:
                made = train(name, agent, seed, chosen.directory, chosen.num_env_steps)
                found |= {row[:-1]: row for row in made}
                path.write_text(rows.format_rows(found.values()), encoding="utf-8")
                print(name, agent, seed, f"{made[-2].value:.1f} +- {made[-1].value:.1f}", flush=True)
    return list(found.values())


if __name__ == "__main__":
    main()
