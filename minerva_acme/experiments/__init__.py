"""An agent and an environment, played, evaluated and saved."""

from typing import TYPE_CHECKING

from minerva_acme import lazy

if TYPE_CHECKING:
    from minerva_acme.experiments.config import (
        EnvironmentFactory,
        EpisodeFilmer,
        ExperimentConfig,
        LoggerFactory,
    )
    from minerva_acme.experiments.evaluation import Evaluation, evaluate, evaluate_checkpoint
    from minerva_acme.experiments.options import RunOptions
    from minerva_acme.experiments.policies import export_policy, load_policy
    from minerva_acme.experiments.progress import Callback, Progress, StopRun
    from minerva_acme.experiments.run import ExperimentResult, run_experiment

__all__ = [
    "Callback",
    "EnvironmentFactory",
    "EpisodeFilmer",
    "Evaluation",
    "ExperimentConfig",
    "ExperimentResult",
    "LoggerFactory",
    "Progress",
    "RunOptions",
    "StopRun",
    "evaluate",
    "evaluate_checkpoint",
    "export_policy",
    "load_policy",
    "run_experiment",
]

# Options and tasks need no torch; what does is imported when it is used.
__getattr__ = lazy.attach(__name__, __file__)
