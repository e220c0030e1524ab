"""How often exploration finds any reward: episodes of a policy whose mean is 0, by the noise around it.

python -m tests.learning.noise --episodes 40
"""

import argparse
from collections.abc import Callable, Sequence
from typing import NamedTuple

import dm_env
import numpy as np

from minerva_acme import environments

TASKS = (
    "acrobot/swingup",
    "ball_in_cup/catch",
    "cartpole/swingup_sparse",
    "finger/spin",
    "finger/turn_easy",
    "finger/turn_hard",
    "hopper/hop",
    "hopper/stand",
    "pendulum/swingup",
    "reacher/hard",
)
LEAST = 0.05  # a reward that counts as found


class Noise(NamedTuple):
    """Gaussian noise in units of the action, clipped to -1 and 1."""

    stddev: float
    repeat: int  # the number of steps that use the same noise


NOISES = (Noise(0.5, 4), Noise(0.5, 8), Noise(1.0, 1), Noise(1.0, 4), Noise(1.0, 8), Noise(1.0, 16))


def share_of_episodes_with_reward(environment: dm_env.Environment, noise: Noise, episodes: int) -> float:
    """Returns the share of episodes in which at least one step has a reward above `LEAST`."""
    random = np.random.default_rng(0)
    spec = environment.action_spec()
    found = 0
    for _ in range(episodes):
        timestep, steps, has_reward = environment.reset(), 0, False
        while not timestep.last():
            if steps % noise.repeat == 0:
                action = np.clip(noise.stddev * random.normal(size=spec.shape), -1.0, 1.0)
            timestep, steps = environment.step(action.astype(spec.dtype)), steps + 1
            has_reward |= bool(timestep.reward > LEAST)
        found += has_reward
    return found / episodes


def table(tasks: Sequence[str], episodes: int, make: Callable[[str], dm_env.Environment]) -> str:
    """Returns a Markdown table: a row for each task, a column for each noise."""
    rows = [["task", *(f"{each.stddev:g}, {each.repeat} steps" for each in NOISES)]]
    for task in tasks:
        shares = (share_of_episodes_with_reward(make(task), noise, episodes) for noise in NOISES)
        name = task.removeprefix("dm_control/").replace("/", " ")
        rows.append([name, *(f"{share:.2f}" for share in shares)])
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.learning.noise", description=__doc__)
    parser.add_argument("--episodes", type=int, default=40)
    parser.add_argument("--tasks", nargs="+", default=TASKS, help="such as hopper/stand")
    chosen = parser.parse_args(arguments)
    tasks = [f"dm_control/{task}" for task in chosen.tasks]
    print(table(tasks, chosen.episodes, lambda task: environments.make(task, seed=1)))


if __name__ == "__main__":
    main()
