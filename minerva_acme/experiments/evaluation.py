"""What a policy is worth: raw returns in an environment of its own."""

import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import dm_env
import numpy as np
import torch
import tree

from minerva_acme import builders, core, environment_loop, specs
from minerva_acme.experiments import checkpointing


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


def evaluate_checkpoint(
    checkpoint: pathlib.Path,
    builder: builders.AgentBuilder[Any],
    environment: dm_env.Environment,
    num_episodes: int,
    seed: int = 0,
    explore: bool = False,
    should_stop: Callable[[], bool] = lambda: False,
) -> Evaluation | None:
    """Plays episodes with the policy that a checkpoint holds.

    Args:
        checkpoint: its folder.
        builder: of the agent that was trained.
        environment: wrapped as in training.
        num_episodes: how many episodes to play.
        seed: of the policy's own randomness, if it has any.
        explore: whether to act with the exploring policy rather than the one to be judged by.
        should_stop: asked before each step; if true, None is returned.
    """
    spec = specs.make_environment_spec(environment)
    generator = torch.Generator().manual_seed(seed)
    policy = builder.make_policy(
        builder.make_networks(spec, generator), spec, generator, evaluation=not explore
    )
    values = checkpointing.load_state(checkpoint)["policy_variables"]
    policy.set_variables([tree.map_structure(lambda tensor: tensor.numpy(), value) for value in values])
    return evaluate(environment, builder.make_actor(policy), num_episodes, should_stop)
