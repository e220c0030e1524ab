"""An agent and an environment, played, evaluated and saved."""

from minerva_acme.experiments.config import EnvironmentFactory, EpisodeFilmer, ExperimentConfig, RunOptions
from minerva_acme.experiments.evaluation import Evaluation, evaluate, evaluate_checkpoint, load_policy
from minerva_acme.experiments.progress import Progress
from minerva_acme.experiments.run import ExperimentResult, run_experiment

__all__ = [
    "EnvironmentFactory",
    "EpisodeFilmer",
    "Evaluation",
    "ExperimentConfig",
    "ExperimentResult",
    "Progress",
    "RunOptions",
    "evaluate",
    "evaluate_checkpoint",
    "load_policy",
    "run_experiment",
]
