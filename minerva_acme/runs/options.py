"""The options of a run: how long to train, and how often to evaluate and save.

Torch and numpy are imported only where a value needs them: the command line reads the names without them.
"""

import dataclasses
import importlib.util
import math
import os
from numbers import Real
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import torch

from minerva_acme import constraints
from minerva_acme.names import foreign_names

RETURN = "episode_return"
"""The name of the return among the metrics of an evaluation."""

RENAMED = MappingProxyType({"stop_at_return": "stop_at"})
"""Options by their names in the run.json of older versions."""

_PATHS = ("dataset", "from_run", "record", "demonstrations")  # text in a run's description


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions(foreign_names.Translated):
    """The plain values of an experiment: how long to train, and how often to evaluate and save."""

    num_env_steps: constraints.Natural
    """Total environment steps of training, including those before a resume; 0: see `num_learner_steps`. They
    are the agent's decisions, each of which lasts several frames if actions are repeated."""
    num_learner_steps: constraints.Natural = 0
    """Total learner steps of a run that plays only evaluations (`num_env_steps` 0) and learns from its
    agent's dataset. Its periods and checkpoints count these steps."""
    metric: str = RETURN
    """The column of evaluator.csv that chooses the best checkpoint and that `stop_at` is compared with, such
    as info/is_success/last: the highest mean is the best. Of a number in the environment's info, /mean, /min,
    /max or /sum over the episode's steps may be named as well. If lower is better, name the negative,
    as -info/energy/sum, which is then a column too."""
    stop_at: float | None = None
    """Stops the run once the mean of `metric` in an evaluation during or after training reaches this; None:
    never."""
    stop_after_minutes: float | None = None
    """Stops the run after this many minutes; a final evaluation and checkpoint follow. None: no time limit. A
    resumed run starts counting again from zero."""
    seed: constraints.Natural = 0
    """The seed of networks, exploration and environments."""
    device: str = "auto"
    """The learner's device: cpu, cuda, cuda:1, ...; auto: CUDA if torch finds it, otherwise the CPU."""
    replay: Literal["auto", "reverb", "memory"] = "auto"
    """The replay store: `reverb`; `memory`, which only this process can use, and with which a seed gives the
    same run twice; `auto`: Reverb if it is installed and can sample as the agent requires."""
    dataset: constraints.Path | None = None
    """A folder of recorded episodes to learn from, in a run that plays only evaluations (`num_env_steps` 0).
    They are kept in memory, as the agent's replay would be, and its checkpoints hold where the data is."""
    from_run: constraints.Path | None = None
    """The folder of a run that a new run starts from, or of one of its checkpoints: to train in the
    environment after a run on recorded episodes, or with another learner. Networks, statistics and replay are
    taken where they fit; the rest begins anew, and a warning says what."""
    record: constraints.Path | None = None
    """A new folder for the episodes of training, which are written there when the run has ended, in Minari's
    layout. Needs h5py (extra `datasets`)."""
    demonstrations: constraints.Path | None = None
    """A folder of recorded episodes, of which every batch holds a share, for agents with replay."""
    demonstration_share: constraints.Share = 0.5
    """The share of `demonstrations` in a batch, at the beginning of the run."""
    final_demonstration_share: constraints.Share | None = None
    """The share at the end of the run, reached linearly over its environment steps; None: no change."""
    max_unpacked_gigabytes: constraints.NonNegative = 1.0
    """How many GB more than their file recorded episodes may take, as compressed ones do. More is refused
    before it is unpacked, and no file can allow it: `minerva resume` takes this flag anew."""
    environment_processes: bool = False
    """Whether each training environment runs in its own process; worth it if a step is slow."""
    evaluation_period: constraints.Natural = 5_000
    """Environment steps between evaluations; 0: only before and after training."""
    evaluation_episodes: constraints.Natural = 10
    """Episodes in each evaluation, whose returns are averaged; 0: there are no evaluations."""
    evaluation_environments: constraints.Count = 1
    """Environments that an evaluation plays in parallel, with one policy call for all of them."""
    evaluation_video: bool = False
    """Whether TensorBoard (and Weights & Biases) show a video of each evaluation's first episode, which is
    played again to draw it: its first 10 seconds in real time, at most 320 pixels wide."""
    checkpoint_period: constraints.Natural = 10_000
    """Minimum environment steps between checkpoints; 0: only at the end and when interrupted. A checkpoint
    ends open episodes, so it waits until few of them would be cut short."""
    checkpoint_replay: bool = True
    """Whether checkpoints include the replay; without it, a resumed run first fills a new one."""
    checkpoint_keep: constraints.Count = 2
    """The number of newest checkpoints to keep."""
    checkpoint_best: bool = True
    """Whether to keep the weights with the best evaluation too, for `minerva eval RUN --checkpoint best`."""
    log_period_seconds: constraints.NonNegative = 5.0
    """Seconds between rows of the learner's log; its last row is always written."""
    tensorboard: bool = True
    """Whether to write logs as TensorBoard events in addition to the CSV files."""
    wandb: bool = False
    """Whether to log to Weights & Biases too; WANDB_MODE=offline keeps the logs on this machine."""

    def __post_init__(self) -> None:
        _check_finite("stop_at", self.stop_at)
        _check_finite("stop_after_minutes", self.stop_after_minutes)
        constraints.check_fields(self)
        for name in _PATHS:
            if (path := getattr(self, name)) is not None:
                object.__setattr__(self, name, os.fspath(path))
        if (self.num_env_steps > 0) == (self.num_learner_steps > 0):
            raise ValueError(
                "`num_env_steps` must be >= 1, or 0 with `num_learner_steps` >= 1 for a run that learns from "
                f"a dataset alone, got {self.num_env_steps} and {self.num_learner_steps}. With environment "
                "steps, the agent determines the number of learner steps."
            )
        if self.stop_after_minutes is not None and self.stop_after_minutes <= 0:
            raise ValueError(
                f"`stop_after_minutes` must be > 0 or None, got {self.stop_after_minutes}. With None, the "
                "run makes all its steps."
            )
        if self.evaluation_video and not (self.tensorboard or self.wandb):
            raise ValueError(
                "`evaluation_video` must be False if both `tensorboard` and `wandb` are False, got True. "
                "Enable one of them, or leave `evaluation_video` out."
            )
        if not self.evaluation_episodes:
            for name, off in (("metric", RETURN), ("stop_at", None), ("evaluation_video", False)):
                if getattr(self, name) != off:
                    raise ValueError(
                        f"`{name}` must be {off!r} without evaluations (`evaluation_episodes` 0), got "
                        f"{getattr(self, name)}."
                    )
        if self.demonstrations is None:
            for name in ("demonstration_share", "final_demonstration_share"):
                if getattr(self, name) != getattr(type(self), name):  # its default
                    raise ValueError(
                        f"`{name}` must not be set without `demonstrations`, got {getattr(self, name)}. Set "
                        "`demonstrations` to a folder of recorded episodes."
                    )
        for name in ("dataset", "record", "demonstrations"):
            if getattr(self, name) is not None:
                _check_datasets(name, self.num_env_steps)
        if self.replay == "reverb":
            _check_reverb()
        if self.device not in ("auto", "cpu"):
            _check_device(self.device)

    @property
    def num_steps(self) -> int:
        """The total steps of the run: environment steps or, if it makes none, learner steps."""
        return self.num_env_steps or self.num_learner_steps

    def lacks_data(self, settings: Any) -> bool:
        """Returns whether an agent needs recorded episodes but gets none.

        Weights of another run (`from_run`) count as data, since that run may have learned from some.

        Args:
            settings: The agent's config, with or without `needs_recorded_data`.
        """
        is_given = any((self.dataset, self.demonstrations, self.from_run))
        return not is_given and getattr(settings, "needs_recorded_data", False)

    @property
    def steps_key(self) -> str:
        """The name in the logs of the count of these steps."""
        return steps_key(self.num_env_steps)

    @property
    def torch_device(self) -> "torch.device":
        """The learner's device, with `auto` resolved."""
        import torch

        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return torch.device(self.device)


def _check_finite(name: str, value: float | None) -> None:
    """Raises ValueError unless the value is a finite number or None."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if value is not None and not (is_number and math.isfinite(value)):
        raise ValueError(f"`{name}` must be a finite number or None, got {value!r}.")


def _check_reverb() -> None:
    """Raises ValueError unless Reverb is installed."""
    from minerva_acme.replay import backends

    if not backends.is_reverb_installed():
        raise ValueError(
            "`replay` is 'reverb' but Reverb is not installed; it has wheels only for Python 3.11 on "
            "x86-64 Linux. Use 'memory', or such an environment."
        )


def steps_key(num_env_steps: int) -> str:
    """Returns the name in the logs of the steps that a run with so many environment steps counts."""
    return "actor_steps" if num_env_steps else "learner_steps"


def _check_datasets(name: str, num_env_steps: int) -> None:
    """Raises ValueError unless the run plays, or for `dataset` does not, and h5py is installed."""
    if name == "dataset":
        if num_env_steps:
            raise ValueError(
                f"`dataset` must be None in a run that makes environment steps, here {num_env_steps}. Set "
                "`num_learner_steps` instead, to learn from the recorded episodes alone, or mix them into "
                "what is played: `demonstrations`."
            )
    elif not num_env_steps:
        raise ValueError(
            f"`{name}` must be None in a run that makes no environment steps (`num_env_steps` 0): episodes "
            "are recorded, and demonstrations mixed in, as they are played."
        )
    if importlib.util.find_spec("h5py") is None:
        raise ValueError(f"`{name}` needs h5py, which is not installed: pip install 'minerva-acme[datasets]'")


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
