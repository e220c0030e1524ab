"""Evaluating a policy: the returns of a few episodes."""

import math
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self, cast, overload

import dm_env
import numpy as np

from minerva_acme import builders, core, environments, specs
from minerva_acme.runs import policies

_LEAF = "episode_return/"


class Evaluation(NamedTuple):
    """The returns of a few episodes."""

    returns: tuple[float, ...]  # undiscounted sums of rewards; if the reward is a nest, over all its leaves
    lengths: tuple[int, ...]  # environment steps
    leaf_returns: Mapping[str, tuple[float, ...]] = {}  # if the reward is a nest: returns by leaf path

    @property
    def mean(self) -> float:
        """The mean return, by which evaluations are compared."""
        return float(np.mean(self.returns))

    @property
    def std(self) -> float:
        """The standard deviation of the return over the episodes."""
        return float(np.std(self.returns))

    def __str__(self) -> str:
        shortest, longest, num_episodes = min(self.lengths), max(self.lengths), len(self.lengths)
        spread = f" ± {self.std:,.1f}, {num_episodes} episodes" if num_episodes > 1 else ", 1 episode"
        steps = f"{shortest:,}" if shortest == longest else f"{shortest:,} to {longest:,}"
        return f"return {self.mean:,.1f}{spread} of {steps} steps"

    def __repr__(self) -> str:
        return f"Evaluation({self})"

    def metrics(self) -> dict[str, float]:
        """Returns the evaluation as a row of a log."""
        return {
            "episode_return": self.mean,
            "episode_return_std": self.std,
            "episode_return_min": min(self.returns),
            "episode_return_max": max(self.returns),
            **{f"{_LEAF}{path}": float(np.mean(values)) for path, values in self.leaf_returns.items()},
            "episode_length": float(np.mean(self.lengths)),
        }


class Evaluations(core.Saveable):
    """The evaluations of a run that its checkpoints keep."""

    random: Evaluation | None = None
    """The evaluation of uniformly random actions before training, or None if the actions are unbounded."""
    before: Evaluation | None = None
    """The evaluation of the policy before training."""
    latest: tuple[int, Evaluation] | None = None
    """The last evaluation during or after training, and its step."""
    best: tuple[int, Evaluation] | None = None
    """The evaluation with the highest mean during or after training, and its step."""
    walltime: tuple[float, ...] = ()
    """The run's wall time and CPU time in seconds; empty if unknown."""

    @classmethod
    def of(cls, state: core.State) -> Self:
        """Returns the evaluations in a checkpoint's state."""
        made = cls()
        made.restore(state)
        return made

    @property
    def logged_until(self) -> int:
        """The step of the last logged evaluation, or -1 before the first."""
        if self.latest is not None:
            return self.latest[0]
        return -1 if self.before is None else 0

    def note(self, step: int, result: Evaluation) -> None:
        """Records the newest evaluation, also as the best one if it is."""
        self.latest = (step, result)
        if self.best is None or result.mean > self.best[1].mean:
            self.best = self.latest

    def mean_at(self, step: int) -> float | None:
        """Returns the mean return of the evaluation at a step; None if there is none or it is not finite."""
        if self.latest is None or self.latest[0] != step or not math.isfinite(self.latest[1].mean):
            return None
        return self.latest[1].mean

    def save(self) -> core.State:
        return {
            "random": self.random and tuple(self.random),
            "before": self.before and tuple(self.before),
            "latest": self.latest and (self.latest[0], tuple(self.latest[1])),
            "best": self.best and (self.best[0], tuple(self.best[1])),
            "walltime": self.walltime,
        }

    def restore(self, state: core.State) -> None:
        """Restores the state that `save` returned; missing entries keep their defaults."""
        self.random, self.before = _unpack(state.get("random")), _unpack(state.get("before"))
        self.latest, self.best = _unpack_dated(state.get("latest")), _unpack_dated(state.get("best"))
        self.walltime = tuple(state.get("walltime", ()))


def _unpack(packed: Any) -> Evaluation | None:
    if packed is None:
        return None
    returns, lengths, *leaves = packed  # checkpoints of older versions have no leaves
    by_leaf = {str(path): tuple(map(float, values)) for path, values in dict(*leaves).items()}
    return Evaluation(tuple(map(float, returns)), tuple(map(int, lengths)), by_leaf)


def _unpack_dated(packed: Any) -> tuple[int, Evaluation] | None:
    result = _unpack(packed[1]) if packed else None
    return None if result is None else (int(packed[0]), result)


@overload
def evaluate(
    environment: dm_env.Environment | environments.VectorEnvironment,
    actor: core.Actor | core.VectorActor,
    num_episodes: int,
) -> Evaluation: ...


@overload
def evaluate(
    environment: dm_env.Environment | environments.VectorEnvironment,
    actor: core.Actor | core.VectorActor,
    num_episodes: int,
    should_stop: Callable[[], bool] = ...,
) -> Evaluation | None: ...


def evaluate(
    environment: dm_env.Environment | environments.VectorEnvironment,
    actor: core.Actor | core.VectorActor,
    num_episodes: int,
    should_stop: Callable[[], bool] = lambda: False,
) -> Evaluation | None:
    """Plays whole episodes. Returns None if `should_stop` ended them early.

    The actor must have no adder. It usually acts with the policy for evaluation, without exploration. A
    vector of environments is played by a vector actor, with one policy call for all of them. Each environment
    contributes its first few episodes: counting whichever end first would favour short ones.

    Raises:
        ValueError: `num_episodes` is below 1.
    """
    if num_episodes < 1:
        raise ValueError(f"`num_episodes` must be >= 1, got {num_episodes}. A return needs a whole episode.")
    loop: Any
    if isinstance(environment, environments.VectorEnvironment):
        loop = environments.VectorEnvironmentLoop(
            environment=environment, actor=cast(core.VectorActor, actor)
        )
        num_environments = environment.num_environments
    else:
        loop = environments.EnvironmentLoop(environment=environment, actor=cast(core.Actor, actor))
        num_environments = 1
    left = [len(range(index, num_episodes, num_environments)) for index in range(num_environments)]
    episodes: list[environments.EpisodeResult] = []
    while max(left) > 0:
        if should_stop():
            return None
        for episode in loop.step():
            index = episode.get("environment", 0)
            if left[index] > 0:
                left[index] -= 1
                episodes.append(episode)
    return Evaluation(
        tuple(float(episode["episode_return"]) for episode in episodes),
        tuple(int(episode["episode_length"]) for episode in episodes),
        {
            name.removeprefix(_LEAF): tuple(float(episode[name]) for episode in episodes)
            for name in episodes[0]
            if name.startswith(_LEAF)
        },
    )


def evaluate_checkpoint(
    path: str | os.PathLike[str],
    builder: builders.AgentBuilder[Any],
    environment: dm_env.Environment | environments.VectorEnvironment,
    num_episodes: int,
    seed: int = 0,
    explore: bool = False,
) -> Evaluation:
    """Plays episodes with the policy that a run has learned.

    Args:
        path: The folder of a run, whose newest checkpoint is used, or of a checkpoint.
        builder: The builder of the trained agent, with its config.
        environment: An environment wrapped as in training, or a vector of such environments.
        num_episodes: The number of episodes to play, >= 1.
        seed: The seed of the policy's randomness, if it has any.
        explore: Whether to explore as in training.

    Raises:
        ValueError: As for `load_policy` and `evaluate`.
    """
    spec = specs.make_environment_spec(environment)
    policy = policies.load_policy(path, builder, spec, seed=seed, explore=explore)
    is_vector = isinstance(environment, environments.VectorEnvironment)
    make_actor: Any = builder.make_vector_actor if is_vector else builder.make_actor
    return evaluate(environment, make_actor(policy), num_episodes)
