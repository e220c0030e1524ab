"""What a policy is worth: raw returns in an environment of its own."""

from collections.abc import Callable
from typing import NamedTuple

import dm_env
import numpy as np

from minerva_acme import core, environment_loop


class Evaluation(NamedTuple):
    """The returns of a few episodes."""

    returns: tuple[float, ...]  # undiscounted sums of the environment's own rewards
    lengths: tuple[int, ...]  # environment steps

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(np.mean(self.returns))

    @property
    def std(self) -> float:
        """Standard deviation of the return over the episodes."""
        return float(np.std(self.returns))

    def metrics(self) -> dict[str, float]:
        """The evaluation as a row of a log."""
        return {
            "episode_return": self.mean,
            "episode_return_std": self.std,
            "episode_return_min": min(self.returns),
            "episode_return_max": max(self.returns),
            "episode_length": float(np.mean(self.lengths)),
        }


def evaluate(
    environment: dm_env.Environment,
    actor: core.Actor,
    num_episodes: int,
    should_stop: Callable[[], bool] = lambda: False,
) -> Evaluation | None:
    """Plays whole episodes; returns None if `should_stop` cut them short.

    The actor must have no adder, and should select the action that the agent is to be judged by.
    """
    loop = environment_loop.EnvironmentLoop(environment=environment, actor=actor)
    returns: list[float] = []
    lengths: list[int] = []
    while len(returns) < num_episodes:
        if should_stop():
            return None
        result = loop.step()
        if result is not None:
            returns.append(float(result["episode_return"]))
            lengths.append(int(result["episode_length"]))
    return Evaluation(tuple(returns), tuple(lengths))
