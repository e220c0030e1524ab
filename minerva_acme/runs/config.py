"""The config of an experiment."""

import dataclasses
import inspect
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import dm_env

from minerva_acme import builders, core, environments, loggers
from minerva_acme.runs import options

Environment: TypeAlias = dm_env.Environment | environments.VectorEnvironment | environments.BatchedEnvironment
"""An environment, or several in a vector or in a batch of tensors."""

EnvironmentFactory: TypeAlias = Callable[[int], Environment]
"""Makes an environment from a seed, wrapped as the agent needs it; or a vector or batch of all those that it
plays."""

EpisodeFilmer = Callable[[core.Actor, int, Callable[[], bool]], bytes | None]
"""Lets an actor play in an environment made from a seed, and returns the video as an animated GIF. Its third
argument is called in between; once that returns True, the filmer stops and returns None."""


LoggerFactory = Callable[[str], loggers.Logger]
"""Makes a logger from its label: `actor`, `learner` or `evaluator`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExperimentConfig(options.RunOptions):
    """An agent, an environment and the options of their run."""

    builder: builders.AgentBuilder[Any]
    """Makes the agent's parts."""
    environment_factory: EnvironmentFactory
    """Makes environments; training and each evaluation use their own. It is called for each of the agent's
    environments, or once if it returns a vector or a batch of them."""
    evaluation_environment_factory: EnvironmentFactory | None = None
    """Makes the environments of evaluations, with the same observations and actions as in training; None uses
    `environment_factory`."""
    directory: str | os.PathLike[str]
    """The folder of this run alone, for its logs and checkpoints. A run found there is resumed."""
    resume_from: str | os.PathLike[str] = "latest"
    """The checkpoint to resume from: `latest`, `best`, an environment step or a folder."""
    observers: Sequence[environments.Observer] = ()
    """Watch training and add their metrics to each episode's row; see `minerva_acme.observers`."""
    evaluation_observers: Sequence[environments.Observer] = ()
    """Watch the episodes of evaluations, a copy of each in every evaluation; the means of their metrics are
    logged beside the return."""
    logger_factory: LoggerFactory | None = None
    """Makes additional loggers, one for each label, besides the CSV files and the loggers that the options
    choose; the run closes them. After a resume, steps that are repeated are logged to them again."""
    film_episode: EpisodeFilmer | None = None
    """Makes the videos of `evaluation_video`: `video.make_filmer(environment_id)` or your own function."""

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
    """Raises ValueError unless the builder is an `AgentBuilder`."""
    if isinstance(builder, type):
        raise ValueError(
            f"`builder` must be an instance, got the class {builder.__name__}. Make one with its config: "
            f"{builder.__name__}(...)"
        )
    if not isinstance(builder, builders.AgentBuilder):
        raise ValueError(
            f"`builder` must be an AgentBuilder, got {type(builder).__name__}. Make one with the config "
            "of its agent."
        )


def _check_factory(name: str, factory: Any) -> None:
    """Raises ValueError unless the factory can be called with a seed."""
    expected = f"`{name}` must be a function that makes an environment from a seed"
    if isinstance(factory, str):
        raise ValueError(
            f"{expected}, got {factory!r}. Write lambda seed: "
            f"environments.make_training_environment({factory!r}, seed)"
        )
    if not callable(factory):
        raise ValueError(
            f"{expected}, got {type(factory).__name__}, which cannot be called. Training and evaluation each "
            "make their own environments: write lambda seed: ... around the code that makes yours."
        )
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # some callables do not tell their parameters
        return
    try:
        signature.bind(0)
    except TypeError as error:
        raise ValueError(
            f"{expected}, got one that cannot be called with a seed alone ({error}). Write lambda seed: ... "
            "around it."
        ) from error
