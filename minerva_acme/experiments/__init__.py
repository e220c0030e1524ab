"""Experiments: an agent is trained in an environment, evaluated and saved.

    config = experiments.ExperimentConfig(
        builder=ppo.PPOBuilder(ppo.PPOConfig()),
        environment_factory=lambda seed: environments.make_training_environment("CartPole-v1", seed=seed),
        directory="runs/first",
        num_env_steps=50_000,
    )
    result = experiments.run_experiment(config)

A folder holds one run, which the same call resumes. On a terminal and in a notebook the progress is shown.
"""

from typing import TYPE_CHECKING

from minerva_acme.names import lazy

if TYPE_CHECKING:
    from minerva_acme.experiments.progress import Callback, Progress, StopRun
    from minerva_acme.experiments.progress_display import ProgressDisplay
    from minerva_acme.experiments.recording import write_recording
    from minerva_acme.experiments.run import ExperimentResult, run_experiment
    from minerva_acme.runs.config import (
        EnvironmentFactory,
        EpisodeFilmer,
        ExperimentConfig,
        LoggerFactory,
    )
    from minerva_acme.runs.options import RunOptions

__all__ = [
    "Callback",
    "EnvironmentFactory",
    "EpisodeFilmer",
    "ExperimentConfig",
    "ExperimentResult",
    "LoggerFactory",
    "Progress",
    "ProgressDisplay",
    "RunOptions",
    "StopRun",
    "run_experiment",
    "write_recording",
]

# Options and tasks need no torch; the modules that do are imported when they are used.
__getattr__, __dir__ = lazy.attach(__name__, __file__)
