"""Do our agents learn as well as those of Stable-Baselines3? `make compare-sb3`, and `--help` behind ARGS.

SAC and TD3 on Pendulum-v1, DQN and PPO on CartPole-v1: equal settings, where either has a switch that the
other lacks it is off. The trained policies play the same episodes, by their mean or best action. The two
programs take turns, one after the other, seed by seed, so that their seconds can be compared too.
"""

import argparse
import copy
import csv
import functools
import pathlib
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch

from minerva_acme import builders, environments, experiments, runs
from minerva_acme.agents import dqn, ppo, sac, td3
from tests.learning import against_plain

Policy = Callable[[np.ndarray], Any]


class Row(NamedTuple):
    """A training: the mean return of its policy, and the seconds that it took by clock and of the CPU."""

    agent: str
    program: str
    seed: int
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


def train_ours(pair: Pair, seed: int, num_env_steps: int, folder: pathlib.Path) -> Policy:
    """Trains by the library, with two episodes of evaluation."""
    experiments.run_experiment(
        experiments.ExperimentConfig(
            builder=pair.builder,
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


def train_theirs(name: str, pair: Pair, seed: int, num_env_steps: int) -> Policy:
    """Trains by Stable-Baselines3."""
    import stable_baselines3
    from stable_baselines3.common import env_util, noise

    environment = env_util.make_vec_env(pair.task, n_envs=_NUM_ENVIRONMENTS.get(name, 1), seed=seed)
    settings = copy.deepcopy(dict(pair.theirs))  # they write into what they are given
    if name == "TD3":
        size = environment.action_space.shape
        settings["action_noise"] = noise.NormalActionNoise(np.zeros(size), np.full(size, 0.1))
    model = getattr(stable_baselines3, name)("MlpPolicy", environment, seed=seed, device="cpu", **settings)
    model.learn(num_env_steps)
    return lambda observation: model.predict(observation, deterministic=True)[0]


def mean_return(policy: Policy, task: str, num_episodes: int) -> float:
    """Plays episodes, the same for every policy.

    Returns:
        The mean over the episodes of the sum of rewards.
    """
    environment = gymnasium.make(task)
    total = 0.0
    for episode in range(num_episodes):
        observation, _ = environment.reset(seed=1_000_000 + episode)
        ended = False
        while not ended:
            # In float32, as in training.
            observation, reward, terminated, truncated, _ = environment.step(
                policy(np.asarray(observation, np.float32))
            )
            total += float(reward)
            ended = terminated or truncated
    environment.close()
    return total / num_episodes


def table(rows: Sequence[Row]) -> str:
    """A line an agent: mean returns over seeds with standard errors, and how much faster ours was.

    A mean is below theirs where it is so by more than the standard error of the difference.
    """
    lines = [
        "agent        ours          Stable-Baselines3  verdict           seconds  CPU seconds, theirs / ours"
    ]
    for agent in dict.fromkeys(row.agent for row in rows):
        ours, theirs = ([r for r in rows if (r.agent, r.program) == (agent, p)] for p in ("ours", "theirs"))
        if not ours or len(ours) != len(theirs):
            continue
        (mean, error), (their_mean, their_error) = (
            against_plain.mean_and_error([r.avg_return for r in x]) for x in (ours, theirs)
        )
        below = their_mean - mean > (error**2 + their_error**2) ** 0.5
        wall, cpu = (
            statistics.median(getattr(t, unit) / getattr(o, unit) for o, t in zip(ours, theirs, strict=True))
            for unit in ("seconds", "cpu_seconds")
        )
        lines.append(
            f"{agent:5} {mean:8.1f} +- {error:5.1f}  {their_mean:8.1f} +- {their_error:5.1f}  "
            f"{'below theirs' if below else 'not below theirs':16}  {wall:7.2f}  {cpu:7.2f}"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> list[Row]:
    """Trains, writes each row as soon as it is there, and prints the table."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.learning.against_stable_baselines3", description=__doc__
    )
    parser.add_argument("--agents", nargs="+", default=[*PAIRS], choices=[*PAIRS])
    parser.add_argument("--seeds", type=int, nargs="+", help="by default as many as the agent has, from 0")
    parser.add_argument("--num-env-steps", type=int, default=None, help="fewer than the task has")
    parser.add_argument("--episodes", type=int, default=50)
    parser.add_argument("--directory", type=pathlib.Path, default=pathlib.Path("runs/against_sb3"))
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
            pair = PAIRS[agent]
            steps = chosen.num_env_steps or pair.num_env_steps
            programs = {
                "ours": functools.partial(
                    train_ours, pair, seed, steps, chosen.directory / f"{agent}_{seed}"
                ),
                "theirs": functools.partial(train_theirs, agent, pair, seed, steps),
            }
            # Whoever begins has the cooler machine.
            for program in sorted(programs, reverse=bool(seed % 2)):
                clock, cpu = time.perf_counter(), time.process_time()
                policy = programs[program]()
                clock, cpu = time.perf_counter() - clock, time.process_time() - cpu
                score = mean_return(policy, pair.task, chosen.episodes)
                rows.append(Row(agent, program, seed, round(score, 1), round(clock, 1), round(cpu, 1)))
                writer.writerow(rows[-1])
                file.flush()
                print(*rows[-1], flush=True)
    print(table(rows))
    return rows


if __name__ == "__main__":
    main()
