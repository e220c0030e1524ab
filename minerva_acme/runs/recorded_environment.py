"""The environment of a run that has only recorded episodes: it has their specs, and cannot be played."""

import functools
import os
from collections.abc import Callable
from typing import NoReturn

import dm_env

from minerva_acme import datasets, specs, wrappers
from minerva_acme.environments import origin, task_actions, task_settings


class RecordedEnvironment(specs.SpecMethods, dm_env.Environment):
    """An environment with the specs of recorded episodes, for agents that learn from them alone.

    A run with it must not evaluate: set `evaluation_episodes` to 0.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Reads the specs.

        Args:
            path: The folder of the recorded episodes.

        Raises:
            ValueError: There are none, or they cannot be read.
        """
        self._path = path
        self._specs = datasets.read(path).spec

    def reset(self) -> NoReturn:
        raise ValueError(explain(self._path))

    def step(self, action: object) -> NoReturn:
        self.reset()


def explain(path: str | os.PathLike[str]) -> str:
    """Returns why it cannot be played, for messages."""
    return (
        f"An environment must be given to play in, but {path} only has recorded episodes. Give one to "
        "`minerva eval`, `video` and `dataset`, such as --env CartPole-v1; `minerva export` plays nothing "
        "with --episodes 0."
    )


def make(path: str | os.PathLike[str], seed: int = 0) -> dm_env.Environment:
    """Makes the environment of recorded episodes, as agents take it.

    It is in single precision, with a discrete observation as a one-hot vector, as `make_training_environment`
    makes the bare environment.
    """
    environment: dm_env.Environment = RecordedEnvironment(path)
    if isinstance(environment.observation_spec(), specs.DiscreteArray):
        environment = wrappers.FloatObservationWrapper(environment)
    environment = wrappers.SinglePrecisionWrapper(environment)
    origin.mark(environment, origin.Origin(task_settings.recorded(path), {}))
    task_actions.mark(environment, None)  # what was recorded are the agent's
    return environment


def make_factory(path: str | os.PathLike[str]) -> Callable[[int], dm_env.Environment]:
    """Returns an `environment_factory` for a run that learns from recorded episodes and does not evaluate."""
    return functools.partial(make, path)
