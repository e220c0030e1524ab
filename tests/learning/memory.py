"""Agents with a memory, and without one, where observations have no velocities.

    python -m tests.learning.memory --tasks cartpole --seeds 0 1 2
    python -m tests.learning.memory --tasks pendulum --seeds 0 1

Each run has a folder and continues there if it was stopped. The rows of all finished runs are written to
`rows.csv`, in the form of `minerva_acme.results`.
"""

import argparse
import csv
import functools
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import dm_env
import numpy as np
import torch

from minerva_acme import builders, distributed, environments, experiments, specs, wrappers
from minerva_acme.agents import dqn, r2d2, sac
from minerva_acme.results import rows


class Task(NamedTuple):
    """An environment, and the agents that play it."""

    env: str
    make_environment: Callable[[int], dm_env.Environment]
    num_env_steps: int
    agents: Mapping[str, builders.AgentBuilder[Any]]
    num_actors: Mapping[str, int] = {}  # of the agents that play in several


def without_velocities(env: str, shown: list[int], seed: int) -> dm_env.Environment:
    """Makes an environment of which only some numbers of the observation are shown."""
    return wrappers.ObservationTransformWrapper(
        environments.make_training_environment(env, seed=seed),
        transform=lambda observation: observation[shown],
        spec=specs.Array((len(shown),), np.float32, name="without velocities"),
    )


TASKS: Mapping[str, Task] = {
    "cartpole": Task(
        "CartPole-v1 without velocities",
        functools.partial(without_velocities, "CartPole-v1", [0, 2]),
        100_000,
        {
            "r2d2": r2d2.R2D2Builder(r2d2.PRESETS["memory"]),
            "dqn": dqn.DQNBuilder(dqn.PRESETS["default"]),
        },
    ),
    "pendulum": Task(
        "Pendulum-v1 without velocities",
        functools.partial(without_velocities, "Pendulum-v1", [0, 1]),
        50_000,
        {
            "sac_memory": sac.SACBuilder(sac.PRESETS["memory"]),
            "sac": sac.SACBuilder(sac.SACConfig(samples_per_insert=128.0)),  # an update every two steps, too
        },
    ),
}


def train(
    task: Task,
    agent: str,
    seed: int,
    folder: pathlib.Path,
    num_env_steps: int | None,
    num_evaluations: int,
    num_episodes: int,
) -> list[rows.Row]:
    """Trains, or continues a run, and returns its rows."""
    steps, num_actors = num_env_steps or task.num_env_steps, task.num_actors.get(agent)
    config = experiments.ExperimentConfig(
        builder=task.agents[agent],
        environment_factory=task.make_environment,
        directory=folder,
        num_env_steps=steps,
        seed=seed,
        replay="memory" if num_actors is None else "reverb",
        evaluation_period=max(1, steps // num_evaluations),
        evaluation_episodes=num_episodes,
        tensorboard=False,
    )
    if num_actors is None:
        result = experiments.run_experiment(config)
    else:
        result = distributed.run_distributed_experiment(config, num_actors=num_actors, engine="inline")
    found = []
    with open(folder / "evaluator.csv", newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            found.append(("avg_return", int(float(row["actor_steps"])), float(row["episode_return"])))
    found.append(("final_return", steps, result.after.mean))
    found.append(("final_return_std", steps, float(np.std(result.after.returns))))
    return [rows.Row(agent, task.env, seed, *measured) for measured in found]


def main(
    arguments: Sequence[str] | None = None,
    tasks: Mapping[str, Task] = TASKS,
    name: str = "memory",
    description: str | None = __doc__,
) -> list[rows.Row]:
    """Trains, writes the rows after each run, and prints the last returns."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.learning.{name}", description=description)
    parser.add_argument("--tasks", nargs="+", choices=[*tasks], default=[*tasks])
    parser.add_argument("--agents", nargs="+")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--num-env-steps", type=int)
    parser.add_argument("--num-evaluations", type=int, default=10)
    parser.add_argument("--evaluation-episodes", type=int, default=20)
    parser.add_argument("--directory", type=pathlib.Path, default=pathlib.Path(f"runs/learning_{name}"))
    chosen = parser.parse_args(arguments)
    chosen.directory.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    path, found = chosen.directory / "rows.csv", {}
    if path.exists():
        found = {row[:-1]: row for row in rows.read_rows(path)}
    budget = chosen.num_env_steps, chosen.num_evaluations, chosen.evaluation_episodes
    for name in chosen.tasks:
        for seed in chosen.seeds:
            for agent in chosen.agents or tasks[name].agents:
                made = train(tasks[name], agent, seed, chosen.directory / f"{name}-{agent}-{seed}", *budget)
                found |= {row[:-1]: row for row in made}
                path.write_text(rows.format_rows(found.values()), encoding="utf-8")
                print(name, agent, seed, f"{made[-2].value:.1f} +- {made[-1].value:.1f}", flush=True)
    return list(found.values())


if __name__ == "__main__":
    main()
