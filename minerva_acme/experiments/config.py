"""What an experiment is made of."""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import dm_env
import torch

from minerva_acme import builders, core, environments
from minerva_acme.replay import backends

EnvironmentFactory = Callable[[int], dm_env.Environment]
"""Makes an environment, wrapped as the agent needs it, from a seed."""

EpisodeFilmer = Callable[[core.Actor, int, Callable[[], bool]], bytes | None]
"""Lets an actor play in an environment made for it from a seed, and returns the film as an animated gif;
None if the function, asked in between, said to stop."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How long to train, how often to evaluate and save: the plain values of an experiment."""

    num_env_steps: int
    """Environment steps of training in all, resumed ones included."""
    seed: int = 0
    """Reproduces networks, exploration and environments."""
    device: str = "auto"
    """Where the learner computes: cpu, cuda, cuda:1, ...; auto: CUDA where torch finds it, else the CPU."""
    replay: Literal["auto", "reverb", "memory"] = "auto"
    """Where replay is kept: `reverb`; `memory`, which is of this process alone, and with which a seed gives
    the same run twice; `auto`: Reverb where it is installed."""
    environment_processes: bool = False
    """Whether each training environment runs in a process of its own; worth it where a step is slow."""
    evaluation_period: int = 5_000
    """Environment steps between evaluations; 0: only before and after training."""
    evaluation_episodes: int = 10
    """Episodes that an evaluation averages."""
    evaluation_video: bool = False
    """Whether TensorBoard (and Weights & Biases) show a film of each evaluation's first episode, which is
    played once more to draw it: its first 10 seconds in real time, at most 320 pixels wide."""
    checkpoint_period: int = 10_000
    """Environment steps between checkpoints; 0: only at the end and when interrupted."""
    checkpoint_replay: bool = True
    """Whether checkpoints hold the replay; without it a resumed run fills a new one first."""
    log_period_seconds: float = 5.0
    """Seconds between rows of the learner's log, whose last row is always written."""
    tensorboard: bool = True
    """Whether logs are written as TensorBoard events beside the CSV files."""
    wandb: bool = False
    """Whether logs go to Weights & Biases too; WANDB_MODE=offline keeps them on this machine."""

    def __post_init__(self) -> None:
        for name in ("num_env_steps", "evaluation_episodes"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be >= 1, got {getattr(self, name)}.")
        for name in ("seed", "evaluation_period", "checkpoint_period", "log_period_seconds"):
            if getattr(self, name) < 0:
                raise ValueError(f"`{name}` must be >= 0, got {getattr(self, name)}.")
        if self.evaluation_video and not (self.tensorboard or self.wandb):
            raise ValueError(
                "`evaluation_video` must be False where neither TensorBoard nor Weights & Biases is logged "
                "to, got True. Log to one of them, or leave it out."
            )
        if self.replay not in ("auto", "reverb", "memory"):
            raise ValueError(f"`replay` must be one of auto, reverb and memory, got '{self.replay}'.")
        if self.replay == "reverb" and not backends.is_reverb_installed():
            raise ValueError(
                "`replay` is 'reverb' but Reverb is not installed, which has wheels for Python 3.11 on "
                "x86-64 Linux alone. Use 'memory', or an environment with that."
            )
        try:
            device = self.torch_device
        except RuntimeError as error:
            raise ValueError(
                f"`device` must be like 'cpu', 'cuda', 'cuda:1' or 'auto', got '{self.device}'."
            ) from error
        if device.type == "cuda" and not torch.cuda.is_available():
            raise ValueError(
                f"`device` is '{self.device}' but torch {torch.__version__} finds no CUDA device. "
                "Use 'cpu', or install a CUDA build of torch."
            )

    @property
    def torch_device(self) -> torch.device:
        """Where the learner computes, `auto` decided."""
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return torch.device(self.device)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExperimentConfig(RunOptions):
    """An agent, an environment and how they should play."""

    builder: builders.AgentBuilder[Any]
    """Makes the agent's parts."""
    environment_factory: EnvironmentFactory
    """Makes environments; training and each evaluation have one of their own."""
    directory: str | os.PathLike[str]
    """The run's own folder: logs and checkpoints. A run found there is resumed."""
    observers: Sequence[environments.Observer] = ()
    """Look on in training and add their metrics to each episode's row; see `minerva_acme.observers`."""
    description: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """What the run is, such as its hyperparameters: TensorBoard and Weights & Biases show it. All but
    `options`, which may change when a run goes on, is in TensorBoard's table of runs."""
    film_episode: EpisodeFilmer | None = None
    """Makes the films of `evaluation_video`: `video.make_filmer(environment_id)` or a function of yours."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.evaluation_video and self.film_episode is None:
            raise ValueError(
                "`film_episode` must be given with `evaluation_video`, got None. "
                "minerva_acme.video.make_filmer(environment_id) makes one."
            )
