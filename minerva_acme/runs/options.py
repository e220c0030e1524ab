"""How long to train and how often to evaluate and save.

Torch and numpy are imported where a value needs them: the command line reads the options' names without them.
"""

import dataclasses
import math
from numbers import Real
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch

from minerva_acme import constraints


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How long to train, how often to evaluate and save: the plain values of an experiment."""

    num_env_steps: constraints.Natural
    """Environment steps of training in all, resumed ones included; 0: see `num_learner_steps`."""
    num_learner_steps: constraints.Natural = 0
    """Learner steps of a run that plays nothing but evaluations (`num_env_steps` 0) and learns from its
    agent's dataset alone. Periods and checkpoints count them then."""
    stop_at_return: float | None = None
    """Ends the run once an evaluation, while or after training, has a mean return of so much; None: never."""
    stop_after_minutes: float | None = None
    """Ends the run after so much time, in which it makes a last evaluation and saves; None: never. A resumed
    run has all of it again."""
    seed: constraints.Natural = 0
    """Reproduces networks, exploration and environments."""
    device: str = "auto"
    """Where the learner computes: cpu, cuda, cuda:1, ...; auto: CUDA where torch finds it, else the CPU."""
    replay: Literal["auto", "reverb", "memory"] = "auto"
    """Where replay is kept: `reverb`; `memory`, which is of this process alone, and with which a seed gives
    the same run twice; `auto`: Reverb where it is installed and can sample as the agent asks."""
    environment_processes: bool = False
    """Whether each training environment runs in a process of its own; worth it where a step is slow."""
    evaluation_period: constraints.Natural = 5_000
    """Environment steps between evaluations; 0: only before and after training."""
    evaluation_episodes: constraints.Count = 10
    """Episodes that an evaluation averages."""
    evaluation_environments: constraints.Count = 1
    """Environments that an evaluation plays at once, with one policy call for all of them."""
    evaluation_video: bool = False
    """Whether TensorBoard (and Weights & Biases) show a film of each evaluation's first episode, which is
    played once more to draw it: its first 10 seconds in real time, at most 320 pixels wide."""
    checkpoint_period: constraints.Natural = 10_000
    """Environment steps between checkpoints, at least; 0: only at the end and when interrupted. A checkpoint
    ends open episodes, so it waits until that cuts few of them."""
    checkpoint_replay: bool = True
    """Whether checkpoints hold the replay; without it a resumed run fills a new one first."""
    checkpoint_keep: constraints.Count = 2
    """How many of the newest checkpoints are kept."""
    checkpoint_best: bool = True
    """Whether the weights with the best evaluation are kept too, for `minerva eval RUN --checkpoint best`."""
    log_period_seconds: constraints.NonNegative = 5.0
    """Seconds between rows of the learner's log, whose last row is always written."""
    tensorboard: bool = True
    """Whether logs are written as TensorBoard events beside the CSV files."""
    wandb: bool = False
    """Whether logs go to Weights & Biases too; WANDB_MODE=offline keeps them on this machine."""

    def __post_init__(self) -> None:
        constraints.check_fields(self)
        if (self.num_env_steps > 0) == (self.num_learner_steps > 0):
            raise ValueError(
                "`num_env_steps` must be >= 1, or 0 with `num_learner_steps` >= 1 for a run that learns from "
                f"a dataset alone, got {self.num_env_steps} and {self.num_learner_steps}. With environment "
                "steps the agent says how many learner steps are made."
            )
        _check_finite("stop_at_return", self.stop_at_return)
        _check_finite("stop_after_minutes", self.stop_after_minutes)
        if self.stop_after_minutes is not None and self.stop_after_minutes <= 0:
            raise ValueError(
                f"`stop_after_minutes` must be > 0 or None, got {self.stop_after_minutes}. With None the run "
                "makes all its steps."
            )
        if self.evaluation_video and not (self.tensorboard or self.wandb):
            raise ValueError(
                "`evaluation_video` must be False where neither TensorBoard nor Weights & Biases is logged "
                "to, got True. Log to one of them, or leave it out."
            )
        if self.replay == "reverb":
            _check_reverb()
        if self.device not in ("auto", "cpu"):
            _check_device(self.device)

    @property
    def num_steps(self) -> int:
        """Steps of the run in all: environment steps, or learner steps where there are none."""
        return self.num_env_steps or self.num_learner_steps

    @property
    def steps_key(self) -> str:
        """What counts them in logs."""
        return "actor_steps" if self.num_env_steps else "learner_steps"

    @property
    def torch_device(self) -> "torch.device":
        """Where the learner computes, `auto` decided."""
        import torch

        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return torch.device(self.device)


def _check_finite(name: str, value: float | None) -> None:
    """Raises ValueError unless it is a finite number or None."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if value is not None and not (is_number and math.isfinite(value)):
        raise ValueError(f"`{name}` must be a finite number or None, got {value!r}.")


def _check_reverb() -> None:
    """Raises ValueError unless Reverb is installed."""
    from minerva_acme.replay import backends

    if not backends.is_reverb_installed():
        raise ValueError(
            "`replay` is 'reverb' but Reverb is not installed, which has wheels for Python 3.11 on "
            "x86-64 Linux alone. Use 'memory', or an environment with that."
        )


def _check_device(name: str) -> None:
    """Raises ValueError unless torch has such a device."""
    import torch

    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"`device` must be like 'cpu', 'cuda', 'cuda:1' or 'auto', got '{name}'.") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            f"`device` is '{name}' but torch {torch.__version__} finds no CUDA device. "
            "Use 'cpu', or install a CUDA build of torch."
        )
