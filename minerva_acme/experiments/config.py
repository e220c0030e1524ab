"""What an experiment is made of."""

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any

import dm_env

from minerva_acme import builders, core, environments, loggers
from minerva_acme.experiments import options

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
        if self.evaluation_video and self.film_episode is None:
            raise ValueError(
                "`film_episode` must be given with `evaluation_video`, got None. "
                "minerva_acme.video.make_filmer(environment_id) makes one."
            )
