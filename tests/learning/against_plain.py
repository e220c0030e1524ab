"""Does the library learn as well as a plain loop does? `make compare-plain`, and `--help` behind ARGS.

Both are MPO with Retrace and equal settings: the library by its command line with replay in memory; the plain
one acts by a torch module, keeps its steps in arrays, draws windows from them and makes
`tests.benchmarks.plain_mpo` updates. They share initial weights and no randomness. The mean over seeds at
each evaluation is printed, with its standard error.
"""

import argparse
import csv
import dataclasses
import pathlib
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import dm_env
import numpy as np
import torch

from minerva_acme import environments, specs
from minerva_acme.agents import mpo
from tests.benchmarks import mpo_setup, plain_mpo

FLAGS = ["--preset", "control", "--critic-loss-steps", "first", "--variable-update-period", "1"]
FLAGS += ["--temperature", "learned", "--no-bounded-mean"]
CONFIG = dataclasses.replace(mpo.PRESETS["control"], temperature="learned", bounded_mean=False)
STEPS_PER_UPDATE = int(CONFIG.inserts_per_learner_step)
COLUMNS = ["variant", "seed", "env_step", "avg_return"]


class Row(NamedTuple):
    """An evaluation."""

    variant: str
    seed: int
    env_step: int
    avg_return: float


class Ring:
    """All steps of a run, as arrays."""

    def __init__(self, num_steps: int, observation_size: int, action_size: int) -> None:
        self._size = 0
        self._observation = np.zeros((num_steps, observation_size), np.float32)
        self._next_observation = np.zeros_like(self._observation)
        self._action = np.zeros((num_steps, action_size), np.float32)
        self._raw_action = np.zeros_like(self._action)
        self._reward, self._discount, self._log_prob = np.zeros((3, num_steps), np.float32)
        self._episode = np.zeros(num_steps, np.int64)

    def add(self, episode: int, **step: object) -> None:
        """Adds a step, by the names of the arrays."""
        for name, value in step.items():
            getattr(self, f"_{name}")[self._size] = value
        self._episode[self._size] = episode
        self._size += 1

    def sample(self, random: np.random.Generator, batch_size: int, length: int) -> plain_mpo.PlainTrajectory:
        """Draws windows that lie within an episode."""
        last = self._size - length
        begins = np.empty(0, np.int64)
        while len(begins) < batch_size:
            drawn = random.integers(0, last + 1, size=batch_size)
            drawn = drawn[self._episode[drawn] == self._episode[drawn + length - 1]]
            begins = np.concatenate([begins, drawn])[:batch_size]
        rows = begins[:, None] + np.arange(length)
        observation = np.concatenate([self._observation[rows], self._next_observation[rows[:, -1:]]], axis=1)
        arrays = [self._action, self._reward, self._discount, self._raw_action, self._log_prob]
        return plain_mpo.PlainTrajectory(*map(torch.from_numpy, [observation, *(x[rows] for x in arrays)]))


def train_plain(
    task: str, seed: int, num_env_steps: int, period: int, num_episodes: int
) -> Iterator[tuple[int, float]]:
    """Yields the mean return of the mean action after every `period` steps."""
    environment, judge = (environments.make_training_environment(task, seed=s) for s in (seed, seed + 10_000))
    spec = specs.make_environment_spec(environment)
    learner = mpo_setup.make_plain(spec, CONFIG, seed)
    random = np.random.default_rng(seed)
    ring = Ring(num_env_steps, spec.observations.shape[0], spec.actions.shape[0])
    timestep, episode = environment.reset(), 0
    for step in range(1, num_env_steps + 1):
        observation = timestep.observation
        raw_action, log_prob = _act(learner.policy, observation)
        action = raw_action.clip(spec.actions.minimum, spec.actions.maximum)
        timestep = environment.step(action)
        ring.add(
            episode,
            observation=observation,
            next_observation=timestep.observation,
            action=action,
            raw_action=raw_action,
            reward=timestep.reward,
            discount=timestep.discount,
            log_prob=log_prob,
        )
        if timestep.last():
            timestep, episode = environment.reset(), episode + 1
        if step > CONFIG.min_replay_size and step % STEPS_PER_UPDATE == 0:
            learner.update(ring.sample(random, CONFIG.batch_size, CONFIG.sequence_length))
        if step % period == 0:
            yield step, float(np.mean([_return_of(learner.policy, judge) for _ in range(num_episodes)]))


@torch.no_grad()
def _act(policy: plain_mpo.Policy, observation: np.ndarray) -> tuple[np.ndarray, float]:
    distribution = policy(torch.from_numpy(observation)[None])
    raw_action = distribution.sample()
    return raw_action[0].numpy(), distribution.log_prob(raw_action).sum().item()


@torch.no_grad()
def _return_of(policy: plain_mpo.Policy, environment: dm_env.Environment) -> float:
    timestep, total = environment.reset(), 0.0
    while not timestep.last():
        action = policy(torch.from_numpy(timestep.observation)[None]).mean[0].clamp(-1.0, 1.0)
        timestep = environment.step(action.numpy())
        total += float(timestep.reward)
    return total


def train_library(
    task: str, seed: int, num_env_steps: int, period: int, num_episodes: int, folder: pathlib.Path
) -> Iterator[tuple[int, float]]:
    """The same by the command line."""
    command = [sys.executable, "-m", "minerva_acme.cli.main", "train", "mpo", "--env", task, *FLAGS]
    options = {
        "num-env-steps": num_env_steps,
        "evaluation-period": period,
        "evaluation-episodes": num_episodes,
        "seed": seed,
        "replay": "memory",
    }
    flags = [f"--{name}={value}" for name, value in options.items()]
    subprocess.run([*command, *flags, f"--directory={folder / str(seed)}"], check=True)
    with open(folder / str(seed) / "evaluator.csv", newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if int(float(row["actor_steps"])) > 0:
                yield int(float(row["actor_steps"])), float(row["episode_return"])


def table(rows: Sequence[Row]) -> str:
    """Means and standard errors over seeds, a line for each evaluation and variant."""
    lines = []
    for env_step in sorted({row.env_step for row in rows}):
        for variant in sorted({row.variant for row in rows}):
            found = [r.avg_return for r in rows if (r.variant, r.env_step) == (variant, env_step)]
            if found:
                mean, error = mean_and_error(found)
                lines.append(f"{env_step:8,}  {variant:8}  {mean:6.1f} ± {error:5.1f}  ({len(found)} seeds)")
    return "\n".join(lines)


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Returns the mean and its standard error, which is nan of a single value."""
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return statistics.fmean(values), error


def main(arguments: Sequence[str] | None = None) -> list[Row]:
    """Trains, writes each row as soon as it is there, and prints the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.learning.against_plain", description=__doc__)
    parser.add_argument("--env", default="dm_control/cartpole/swingup")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--num-env-steps", type=int, default=40_000)
    parser.add_argument("--evaluation-period", type=int, default=10_000)
    parser.add_argument("--evaluation-episodes", type=int, default=10)
    parser.add_argument("--directory", type=pathlib.Path, default=pathlib.Path("runs/against_plain"))
    chosen = parser.parse_args(arguments)
    chosen.directory.mkdir(parents=True, exist_ok=True)
    budget = chosen.num_env_steps, chosen.evaluation_period, chosen.evaluation_episodes
    variants: dict[str, Callable[[int], Iterator[tuple[int, float]]]] = {
        "library": lambda seed: train_library(chosen.env, seed, *budget, chosen.directory),
        "plain": lambda seed: train_plain(chosen.env, seed, *budget),
    }
    torch.set_num_threads(1)
    rows: list[Row] = []
    with open(chosen.directory / "rows.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for seed in chosen.seeds:
            for variant, train in variants.items():
                for env_step, avg_return in train(seed):
                    rows.append(Row(variant, seed, env_step, round(avg_return, 1)))
                    writer.writerow(rows[-1])
                    file.flush()
                    print(*rows[-1], flush=True)
    print(table(rows))
    return rows


if __name__ == "__main__":
    main()
