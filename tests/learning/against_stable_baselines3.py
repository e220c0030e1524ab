"""Do our agents learn as well and as fast as those of others? `make compare-sb3`, and `--help` behind ARGS.

SAC and TD3 on Pendulum-v1, DQN and PPO on CartPole-v1: equal settings, where either has a switch that the
other lacks it is off. The programs are ours as it is by default, ours with `acceleration="compile"`,
Stable-Baselines3, and SBX, its version in JAX. Each of the latter two has a Python environment of its own.
The trained policies play the same episodes, by their mean or best action. The programs take turns, seed by
seed, each on one thread, so that their seconds can be compared too: those of whole trainings, with what it
takes to compile.
"""

import argparse
import csv
import dataclasses
import functools
import json
import os
import pathlib
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch

from minerva_acme import builders, environments, experiments, runs
from minerva_acme.agents import dqn, ppo, sac, td3
from tests.learning import against_plain, rival

OURS = ("ours", "compiled")
LIBRARIES: Mapping[str, str] = {"sb3": "stable_baselines3", "sbx": "sbx"}  # by program
_ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}


class Row(NamedTuple):
    """A training: the mean return of its policy, and the seconds that it took by clock and of the CPU."""

    agent: str
    program: str
    seed: int
    num_env_steps: int
    avg_return: float
    seconds: float
    cpu_seconds: float


class Pair(NamedTuple):
    """An agent in both programs, with equal settings."""

    task: str
    num_env_steps: int
    builder: builders.AgentBuilder[Any]
    theirs: Mapping[str, Any]  # of the class of the same name
    num_seeds: int = 3


_CONTINUOUS = {
    "buffer_size": 1_000_000,
    "learning_starts": 1_000,
    "batch_size": 256,
    "tau": 0.005,
    "gamma": 0.99,
}
_NETWORKS: dict[str, Any] = {"policy_kwargs": {"net_arch": [256, 256]}}
PAIRS: Mapping[str, Pair] = {
    "SAC": Pair(
        "Pendulum-v1",
        20_000,
        sac.SACBuilder(sac.SACConfig(torso="relu")),
        {**_CONTINUOUS, **_NETWORKS, "learning_rate": 3e-4, "train_freq": 1, "ent_coef": "auto_1.0"},
    ),
    "TD3": Pair(
        "Pendulum-v1",
        20_000,
        td3.TD3Builder(td3.TD3Config(torso="relu", learning_rate=1e-3)),
        {
            **_CONTINUOUS,
            **_NETWORKS,
            "learning_rate": 1e-3,
            "train_freq": 1,
            "policy_delay": 2,
            "target_policy_noise": 0.2,
            "target_noise_clip": 0.5,
        },
    ),
    "DQN": Pair(
        "CartPole-v1",
        50_000,
        dqn.DQNBuilder(
            dqn.DQNConfig(
                torso="relu",
                double=False,
                dueling=False,
                n_step=1,
                samples_per_insert=32.0,
                batch_size=64,
                max_td_error=1.0,  # theirs has a Huber loss, without a switch
            )
        ),
        {
            "policy_kwargs": {"net_arch": [128, 128]},
            "learning_rate": 5e-4,
            "buffer_size": 100_000,
            "learning_starts": 1_000,
            "batch_size": 64,
            "gamma": 0.99,
            "train_freq": 2,
            "gradient_steps": 1,
            "target_update_interval": 200,  # environment steps, so 100 gradient steps
            "exploration_fraction": 0.2,
            "exploration_final_eps": 0.05,
            "max_grad_norm": 10.0,
        },
        num_seeds=30,  # The last policy of either program fails after one in three or four.
    ),
    "PPO": Pair(
        "CartPole-v1",
        50_000,
        ppo.PPOBuilder(
            ppo.PPOConfig(
                num_environments=8,
                normalize_observations=False,
                scale_rewards=False,
                anneal_learning_rate=False,
                target_kl=None,
            )
        ),
        {
            "policy_kwargs": {"net_arch": {"pi": [64, 64], "vf": [64, 64]}},
            "learning_rate": 3e-4,
            "n_steps": 256,
            "batch_size": 64,
            "n_epochs": 10,
            "gae_lambda": 0.95,
            "clip_range": 0.2,
            "ent_coef": 0.0,
            "vf_coef": 0.5,
            "max_grad_norm": 0.5,
        },
    ),
}
_NUM_ENVIRONMENTS = {"PPO": 8}


def train_ours(
    pair: Pair, seed: int, num_env_steps: int, folder: pathlib.Path, acceleration: str = "auto"
) -> rival.Policy:
    """Trains by the library, with two episodes of evaluation."""
    config = dataclasses.replace(pair.builder.config, acceleration=acceleration)
    experiments.run_experiment(
        experiments.ExperimentConfig(
            builder=type(pair.builder)(config),
            environment_factory=functools.partial(_make_ours, pair.task),
            directory=folder,
            num_env_steps=num_env_steps,
            seed=seed,
            replay="memory",
            evaluation_episodes=1,
        )
    )
    policy = runs.load_policy(folder)
    task = gymnasium.make(pair.task)
    if not isinstance(task.action_space, gymnasium.spaces.Box):
        return lambda observation: policy(observation).action
    scaled = gymnasium.wrappers.RescaleAction(
        task, np.float32(-1.0), np.float32(1.0)
    )  # as the agents of the library act
    return lambda observation: scaled.action(policy(observation).action)


def _make_ours(task: str, seed: int) -> Any:
    return environments.make_training_environment(f"gymnasium/{task}", seed=seed)


def row_of_ours(
    name: str, program: str, seed: int, num_env_steps: int, num_episodes: int, folder: pathlib.Path
) -> Row:
    """Trains by the library and plays the episodes."""
    pair = PAIRS[name]
    clock, cpu = time.perf_counter(), rival.cpu_seconds()
    acceleration = "compile" if program == "compiled" else "auto"
    policy = train_ours(pair, seed, num_env_steps, folder, acceleration)
    clock, cpu = time.perf_counter() - clock, rival.cpu_seconds() - cpu
    score = rival.mean_return(policy, pair.task, num_episodes)
    return Row(name, program, seed, num_env_steps, round(score, 1), round(clock, 2), round(cpu, 2))


def row_of_theirs(
    name: str, program: str, seed: int, num_env_steps: int, num_episodes: int, python: pathlib.Path
) -> Row:
    """Trains by another library, in a process of its own Python, and plays the episodes there."""
    pair = PAIRS[name]
    settings = json.dumps(dict(pair.theirs))
    counts = {
        "--seed": seed,
        "--num-env-steps": num_env_steps,
        "--num-environments": _NUM_ENVIRONMENTS.get(name, 1),
        "--episodes": num_episodes,
    }
    arguments = [str(part) for item in counts.items() for part in item]
    run = subprocess.run(
        [python, rival.__file__, LIBRARIES[program], name, pair.task, "--settings", settings, *arguments],
        env={**os.environ, **_ONE_THREAD},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found = json.loads(run.stdout.splitlines()[-1])
    if found["dropped"]:
        print(f"{program} has no {', '.join(found['dropped'])}")
    score, clock, cpu = (found[key] for key in ("avg_return", "seconds", "cpu_seconds"))
    return Row(name, program, seed, num_env_steps, round(score, 1), round(clock, 2), round(cpu, 2))


def table(rows: Sequence[Row]) -> str:
    """A line an agent and program: the mean return over seeds with its standard error, and the CPU time.

    Our mean is below theirs where it is so by more than the standard error of the difference. The CPU time of
    a step is the median over the seeds, its ratio the median over those that ours was trained with too.
    """
    lines = ["agent program        return             our mean is      CPU ms a step  over ours"]
    for agent in dict.fromkeys(row.agent for row in rows):
        ours = {row.seed: row for row in rows if (row.agent, row.program) == (agent, "ours")}
        for program in dict.fromkeys(row.program for row in rows if row.agent == agent):
            found = {row.seed: row for row in rows if (row.agent, row.program) == (agent, program)}
            mean, error = against_plain.mean_and_error([row.avg_return for row in found.values()])
            verdict, ratio = "", ""
            if both := [seed for seed in found if seed in ours]:
                our_mean, our_error = against_plain.mean_and_error([ours[seed].avg_return for seed in both])
                below = mean - our_mean > (error**2 + our_error**2) ** 0.5
                if program != "ours" and error == error and our_error == our_error:  # more than one seed
                    verdict = "below" if below else "not below"
                ratio = f"{statistics.median(_ms(found[seed]) / _ms(ours[seed]) for seed in both):9.2f}"
            ms = statistics.median(map(_ms, found.values()))
            lines.append(
                f"{agent:5} {program:9} {mean:10.1f} ± {error:5.1f}    {verdict:15}  {ms:13.3f}  {ratio}"
            )
    return "\n".join(lines)


def _ms(row: Row) -> float:
    return 1000.0 * row.cpu_seconds / row.num_env_steps


def main(arguments: Sequence[str] | None = None) -> list[Row]:
    """Trains, writes each row as soon as it is there, and prints the table."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.learning.against_stable_baselines3", description=__doc__
    )
    parser.add_argument("--agents", nargs="+", default=[*PAIRS], choices=[*PAIRS])
    parser.add_argument(
        "--programs",
        nargs="+",
        default=[*OURS, *LIBRARIES],
        choices=[*OURS, *LIBRARIES],
        help="by default all",
    )
    parser.add_argument("--seeds", type=int, nargs="+", help="by default as many as the agent has, from 0")
    parser.add_argument("--num-env-steps", type=int, default=None, help="fewer than the task has")
    parser.add_argument("--episodes", type=int, default=50)
    parser.add_argument("--directory", type=pathlib.Path, default=pathlib.Path("runs/against_sb3"))
    parser.add_argument(
        "--environments",
        type=pathlib.Path,
        default=pathlib.Path("build/rivals"),
        help="the folder with a Python environment of each other program's name",
    )
    chosen = parser.parse_args(arguments)
    chosen.directory.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    rows: list[Row] = []
    with open(chosen.directory / "rows.csv", "a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        if not file.tell():
            writer.writerow(Row._fields)
        trainings = [
            (name, seed) for name in chosen.agents for seed in chosen.seeds or range(PAIRS[name].num_seeds)
        ]
        for agent, seed in trainings:
            steps = chosen.num_env_steps or PAIRS[agent].num_env_steps
            # Whoever begins has the cooler machine.
            for program in chosen.programs[:: -1 if seed % 2 else 1]:
                where = (agent, program, seed, steps, chosen.episodes)
                if program in OURS:
                    rows.append(row_of_ours(*where, chosen.directory / f"{agent}_{program}_{seed}"))
                else:
                    rows.append(row_of_theirs(*where, chosen.environments / program / "bin" / "python"))
                writer.writerow(rows[-1])
                file.flush()
                print(*rows[-1], flush=True)
    print(table(rows))
    return rows


if __name__ == "__main__":
    main()
