"""What an experiment is made of."""

import dataclasses
import inspect
import os
from collections.abc import Callable, Sequence
from typing import Any

import dm_env

from minerva_acme import builders, core, environments, loggers
from minerva_acme.runs import options

EnvironmentFactory = Callable[[int], dm_env.Environment | environments.VectorEnvironment]
"""Makes an environment, wrapped as the agent needs it, from a seed; or a vector of as many as it plays."""

EpisodeFilmer = Callable[[core.Actor, int, Callable[[], bool]], bytes | None]
"""Lets an actor play in an environment made for it from a seed, and returns the film as an animated gif;
None if the function, asked in between, said to stop."""


LoggerFactory = Callable[[str], loggers.Logger]
"""Makes a logger from what it logs: `actor`, `learner` or `evaluator`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExperimentConfig(options.RunOptions):
    """An agent, an environment and how they should play."""

    builder: builders.AgentBuilder[Any]
    """Makes the agent's parts."""
    environment_factory: EnvironmentFactory
    """Makes environments; training and each evaluation have one of their own. It is called for each of the
    agent's environments, or once where it returns a vector of them."""
    evaluation_environment_factory: EnvironmentFactory | None = None
    """Makes those of evaluations, with the observations and actions of training; None: as in training."""
    directory: str | os.PathLike[str]
    """The run's own folder: logs and checkpoints. A run found there is resumed."""
    resume_from: str | os.PathLike[str] = "latest"
    """Which checkpoint such a run is resumed from: `latest`, `best`, an environment step or a folder."""
    observers: Sequence[environments.Observer] = ()
    """Look on in training and add their metrics to each episode's row; see `minerva_acme.observers`."""
    logger_factory: LoggerFactory | None = None
    """Makes more loggers, one for each file of rows, beside those files and what the options choose; the run
    closes them. After a resume they get the rows again of steps that are made again."""
    film_episode: EpisodeFilmer | None = None
    """Makes the films of `evaluation_video`: `video.make_filmer(environment_id)` or a function of yours."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_builder(self.builder)
        _check_factory("environment_factory", self.environment_factory)
        if self.evaluation_environment_factory is not None:
            _check_factory("evaluation_environment_factory", self.evaluation_environment_factory)
        if self.evaluation_video and self.film_episode is None:
            raise ValueError(
                "`film_episode` must be given with `evaluation_video`, got None. "
                "minerva_acme.video.make_filmer(environment_id) makes one."
            )


def _check_builder(builder: Any) -> None:
    """Raises ValueError unless it makes an agent's parts."""
    if isinstance(builder, type):
        raise ValueError(
            f"`builder` must be made already, got the class {builder.__name__}. Make one with its config: "
            f"{builder.__name__}(...)"
        )
    if not isinstance(builder, builders.AgentBuilder):
        raise ValueError(
            f"`builder` must be an AgentBuilder, got {type(builder).__name__}. Make one with the config "
            "of its agent."
        )


def _check_factory(name: str, factory: Any) -> None:
    """Raises ValueError unless it can be called with a seed."""
    expected = f"`{name}` must be a function that makes an environment from a seed"
    if isinstance(factory, str):
        raise ValueError(
            f"{expected}, got {factory!r}. Write lambda seed: "
            f"environments.make_training_environment({factory!r}, seed)"
        )
    if not callable(factory):
        raise ValueError(
            f"{expected}, got {type(factory).__name__}, which cannot be called. Training and evaluation have "
            "environments of their own: write lambda seed: ... around what makes yours."
        )
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # of some callables nobody knows what they take
        return
    try:
        signature.bind(0)
    except TypeError as error:
        raise ValueError(
            f"{expected}, got one that cannot be called with a seed alone ({error}). Write lambda seed: ... "
            "around it."
        ) from error
