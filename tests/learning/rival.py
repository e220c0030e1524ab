"""Trains one agent of Stable-Baselines3 or SBX and scores its policy: a script for the Python of either.

It needs gymnasium, numpy and that library alone. Its last line of output is JSON: `avg_return`, `seconds`,
`cpu_seconds`, and `dropped`, the settings that the library does not have.
"""

import argparse
import importlib
import inspect
import json
import os
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

Policy = Callable[[np.ndarray], Any]


def cpu_seconds() -> float:
    """CPU time of this process and of the children that it waited for, such as a compiler; seconds."""
    return sum(os.times()[:4])


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


def train(
    library: Any,
    agent: str,
    task: str,
    *,
    seed: int,
    num_env_steps: int,
    num_environments: int,
    settings: dict[str, Any],
) -> tuple[Policy, list[str]]:
    """Trains on one thread. Returns the policy, and the settings that the library does not have."""
    from stable_baselines3.common import env_util, noise

    kind = getattr(library, agent)
    taken = inspect.signature(kind.__init__).parameters
    dropped = sorted(name for name in settings if name not in taken)
    settings = {name: value for name, value in settings.items() if name in taken}
    environment = env_util.make_vec_env(task, n_envs=num_environments, seed=seed)
    if agent == "TD3":
        size = environment.action_space.shape
        settings["action_noise"] = noise.NormalActionNoise(np.zeros(size), np.full(size, 0.1))
    model = kind("MlpPolicy", environment, seed=seed, device="cpu", **settings)
    model.learn(num_env_steps)
    return lambda observation: model.predict(observation, deterministic=True)[0], dropped


def main() -> None:
    """Trains by the arguments and prints the row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", choices=["stable_baselines3", "sbx"])
    parser.add_argument("agent")
    parser.add_argument("task")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--num-env-steps", type=int, required=True)
    parser.add_argument("--num-environments", type=int, default=1)
    parser.add_argument("--settings", type=json.loads, default={})
    parser.add_argument("--episodes", type=int, default=50)
    chosen = parser.parse_args()
    library = importlib.import_module(chosen.library)
    importlib.import_module("torch").set_num_threads(1)
    clock, cpu = time.perf_counter(), cpu_seconds()
    policy, dropped = train(
        library,
        chosen.agent,
        chosen.task,
        seed=chosen.seed,
        num_env_steps=chosen.num_env_steps,
        num_environments=chosen.num_environments,
        settings=chosen.settings,
    )
    row = {"seconds": time.perf_counter() - clock, "cpu_seconds": cpu_seconds() - cpu, "dropped": dropped}
    print(json.dumps({"avg_return": mean_return(policy, chosen.task, chosen.episodes), **row}))


if __name__ == "__main__":
    main()
