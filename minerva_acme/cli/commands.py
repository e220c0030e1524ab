"""The commands: what each is given, as the parser reads it, and the function that runs it.

Nothing here imports torch or numpy, so that help and a wrong flag are answered at once.
"""

import dataclasses
import pathlib
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import tyro

from minerva_acme import constraints
from minerva_acme.runs import options

Settings = tuple[tuple[str, tuple[tuple[str, ...], ...]], ...]
"""Flags of `minerva train`, and for each of them the words of every value to try, the flag among them:
("--discount", (("--discount", "0.98"), ("--discount", "0.99")))."""

_Log = Literal["csv", "tensorboard", "wandb"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainOptions(options.RunOptions):
    num_env_steps: constraints.Natural
    """Environment steps of training in all, resumed ones included; 0: see `num_learner_steps`. They are the
    agent's decisions: with /repeat=2 in the environment's id each lasts two frames. By default those of this
    agent's task preset for the environment, or else what is usual for its suite; the first line of a training
    says which."""
    # `--log` sets both.
    tensorboard: tyro.conf.Suppress[bool] = True
    wandb: tyro.conf.Suppress[bool] = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Train:
    """Train an agent, or resume the run in the same directory. Ctrl-C saves first."""

    function: ClassVar = "training:train"
    agent: tyro.conf.Positional[str]
    """The agent: a name (minerva list agents), or a builder of your own:
    --agent my_package.my_module:MyBuilder, also of a module in the current folder."""
    env: str
    """Environment: dm_control/<domain>/<task> or a Gymnasium id."""
    preset: str = "default"
    """Named settings that flags override; `task`: the settings listed for this agent and environment, with
    the steps of training (minerva list tasks)."""
    config: pathlib.Path | None = None
    """A file of settings, which flags override: TOML, whose keys are flags, or a run's run.json."""
    directory: pathlib.Path | None = None
    """The run's folder; runs/<environment>/<agent>-seed<seed> by default."""
    log: tuple[_Log, ...] = ("csv", "tensorboard")
    """Where logs go, separated by commas; CSV files are always written."""
    distributed: Literal["ray", "inline"] | None = None
    """Play with several actors beside the learner, each in a process of its own, by Ray (`ray`), or in
    threads of this process, to debug (`inline`); by default one thread plays and learns."""
    num_actors: int | None = None
    """Actors of a distributed run, each with the agent's environments."""
    address: str | None = None
    """Of a Ray cluster, `auto` or host:port; by default Ray is started on this machine for the run."""
    run: TrainOptions
    """How long to train, how often to evaluate and save."""
    hyperparameters: Any
    """The agent's config."""
    steps_by_default: tyro.conf.Suppress[str] = ""
    """Where the number of steps is from, if it was not given."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Demo:
    """Train MPO on dm_control's cartpole swingup until it has learned it, some minutes at most, and show the
    scores, the learning curve and a film. Ctrl-C saves. The same command goes on with a demo that was
    stopped; where one is done, it begins another in a new folder."""

    function: ClassVar = "demo:run"
    directory: pathlib.Path = pathlib.Path("runs/demo")
    """The run's folder; where that holds a demo that is done, or something else, the same with -2, -3, ..."""
    minutes: float = 4.5
    """Training ends after so many minutes at the latest."""
    goal: float = 810.0
    """Mean return of an evaluation at which it ends."""
    seed: int = 0
    """Seed of networks, exploration and environments."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sweep:
    """Train an agent over environments, seeds and lists of settings, then compare the results. The same
    command resumes what was interrupted and skips what is done.

    Any flag of `minerva train` may be given, with several values to try each of them; commas separate the
    numbers of one value: --discount 0.98 0.99 --policy-layer-sizes 64,64 256,256"""

    function: ClassVar = "sweep:run"
    agent: tyro.conf.Positional[str]
    """The agent, as for `minerva train`."""
    env: tuple[str, ...]
    """Environments: dm_control/<domain>/<task> or Gymnasium ids."""
    seeds: tuple[int, ...] = (0,)
    """Seeds, for each environment and setting."""
    jobs: int | None = None
    """Runs at once, each in a process of its own; by default one, or one for each CPU of a Ray cluster. Of
    several, each computes with one thread, unless OMP_NUM_THREADS says otherwise."""
    distributed: Literal["ray"] | None = None
    """Where the runs are: on Ray (`ray`), which spreads them over the machines of a cluster; by default
    here."""
    address: str | None = None
    """Of a Ray cluster, `auto` or host:port; by default Ray is started on this machine for the sweep."""
    directory: pathlib.Path | None = None
    """The folder of the runs, their rows and the report; runs/sweeps/<agent> by default."""
    dry_run: bool = False
    """Only show what would be done, and the commands."""
    report: bool = True
    """Whether to end in a report; else in rows alone."""
    range: tuple[str, ...] = ()
    """As for `minerva report`: lowest and highest return, such as CartPole-v1=0:500."""
    against: tuple[str, ...] | None = None
    """As for `minerva report`: published results to compare with."""
    settings: tyro.conf.Suppress[Settings] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resume:
    """Resume a run from its folder alone, with the settings it was started with."""

    function: ClassVar = "training:resume"
    directory: tyro.conf.Positional[pathlib.Path]
    """The run's folder."""
    checkpoint: str = "latest"
    """Which of the run's checkpoints: latest, best (by evaluation), an environment step or a folder."""
    num_env_steps: int | None = None
    """Environment steps (decisions) of training in all, to train for longer than first asked."""
    num_learner_steps: int | None = None
    """Learner steps in all, likewise, of a run that makes no environment steps."""
    stop_at_return: float | None = None
    """Another mean return of an evaluation to end at; inf: none."""
    stop_after_minutes: float | None = None
    """Another time after which to stop; inf: none. Each session has all of it."""
    device: str | None = None
    """Where the learner computes, if not where it did before."""
    log: tuple[_Log, ...] | None = None
    """Where logs go, separated by commas, if not where they went before."""
    import_code: bool = False
    """Allow to import the code that the run's folder names, such as a builder of your own; that runs it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Eval:
    """Play episodes with a trained run's checkpoint and report the returns."""

    function: ClassVar = "evaluate:run"
    directory: tyro.conf.Positional[pathlib.Path]
    """The run's folder, a file of weights, or the name of stored ones (minerva verify)."""
    checkpoint: str = "latest"
    """Which of the run's checkpoints: latest, best (by evaluation), an environment step or a folder."""
    episodes: int = 10
    """Episodes to play."""
    seed: int = 0
    """Seed of the environment and of exploration."""
    explore: bool = False
    """Act with the exploring policy instead of its mean."""
    json: bool = False
    """Print JSON instead, and nothing else on standard output."""
    import_code: bool = False
    """Allow to import the code that the run's folder names, such as a builder of your own; that runs it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Video:
    """Film the best of several episodes of a trained run's checkpoint."""

    function: ClassVar = "video:run"
    directory: tyro.conf.Positional[pathlib.Path]
    """The run's folder, a file of weights, or the name of stored ones (minerva verify)."""
    checkpoint: str = "latest"
    """Which of the run's checkpoints: latest, best (by evaluation), an environment step or a folder."""
    episodes: int = 5
    """Episodes to choose the best from."""
    out: pathlib.Path | None = None
    """The film's path; in the run's folder, named by the checkpoint, by default (videos/ for weights)."""
    format: tuple[Literal["mp4", "gif"], ...] = ("mp4", "gif")
    """What to write, separated by commas, where --out has no suffix."""
    camera: str | None = None
    """Number or name of a camera of the model."""
    height: int | None = None
    """Height of the picture, pixels."""
    width: int | None = None
    """Width of the picture, pixels."""
    every: int = 1
    """Draw one in so many environment steps; the film plays in real time all the same."""
    seed: int = 0
    """Seed of the first episode; the others' follow it."""
    explore: bool = False
    """Act with the exploring policy instead of its mean."""
    import_code: bool = False
    """Allow to import the code that the run's folder names, such as a builder of your own; that runs it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plot:
    """Draw the learning curves of runs: interquartile mean over seeds, with its interval."""

    function: ClassVar = "plotting:run"
    directories: tyro.conf.Positional[tuple[pathlib.Path, ...]]
    """Runs' folders, or folders that hold such."""
    out: pathlib.Path = pathlib.Path("curve")
    """The picture; without a suffix both PNG and SVG are written."""
    metric: str = "evaluator/episode_return"
    """What to draw: <csv file>/<column>."""
    x: Literal["steps", "updates", "wall"] = "steps"
    """What to draw it against: frames, learner steps or seconds. Frames are the environment's own steps: the
    environment steps of the logs, which are decisions, times the action repeat."""
    group: str = "agent"
    """What runs of one curve have in common: agent, or repeat and hyperparameters too, separated by
    commas."""
    published: tuple[str, ...] | None = None
    """Published curves of the base task to draw behind, at frames, separated by commas; none: none; by
    default the nearest."""
    aggregate: bool = False
    """Draw all of dm_control's tasks in one panel, over seeds and tasks."""

    def __post_init__(self) -> None:
        if self.published and self.published != ("none",) and self.x != "steps":
            raise ValueError(
                f"`published` must be none where `x` is {self.x}: others' curves are known by frames alone. "
                "Leave one of them out."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """Compare results: interquartile means, performance profiles, probabilities of improvement and curves, as
    tables and as one page with pictures."""

    function: ClassVar = "report:run"
    results: tyro.conf.Positional[tuple[str, ...]]
    """Runs' folders or folders that hold such, files of rows (minerva collect), or experiments of the
    library, such as mpo_control."""
    against: tuple[str, ...] | None = None
    """Published results to compare with at the same frames, such as mpo sac simba_v2 dr_q bro_utd2; none:
    none; by default the nearest. The report says their action repeats and updates a frame."""
    step: int | None = None
    """Frames at which scores are compared; by default the last that all runs have reached. Frames are the
    environment's own steps: decisions (--num-env-steps) times the action repeat."""
    range: tuple[str, ...] = ()
    """Lowest and highest return of environments other than dm_control's, such as CartPole-v1=0:500."""
    output: pathlib.Path = pathlib.Path("report")
    """The folder of the page, its pictures and the rows."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Collect:
    """Write the results of runs as rows, with what produced them: a CSV and a JSON file an experiment. Steps
    of rows count frames: decisions times the action repeat."""

    function: ClassVar = "collect:run"
    directories: tyro.conf.Positional[tuple[pathlib.Path, ...]]
    """Runs' folders, or folders that hold such."""
    out: pathlib.Path = pathlib.Path("results")
    """The folder of the files; the runs are added to experiments that it holds. Files of an older format,
    whose steps count decisions, are rewritten."""
    name: str = ""
    """The experiment's name; agent, preset and what differs from it by default. An action repeat is added."""
    episodes: int = 0
    """Episodes of each run's last policy to play from unseen initial states, for its final score; 0: none."""
    import_code: bool = False
    """Allow to import the code that the runs' folders name, to play them; that runs it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Export:
    """Write a trained run's policy to one file to share: its weights, or a program for torch alone."""

    function: ClassVar = "export:run"
    directory: tyro.conf.Positional[pathlib.Path]
    """The run's folder."""
    output: pathlib.Path | None = None
    """The file; in the run's folder, named by the checkpoint, by default."""
    format: Literal["safetensors", "pt2"] | None = None
    """`safetensors`: weights, with what run.json says, for `minerva_acme.load_policy`; `pt2`: a program of
    torch.export from observations to actions without exploration. By default the file's suffix says it."""
    checkpoint: str = "latest"
    """Which checkpoint: latest, best or its number of environment steps."""
    actions: Literal["agent", "task"] = "agent"
    """`agent`: a program's continuous actions are within [-1, 1], as in training; `task`: within the
    environment's own bounds (pt2)."""
    half: bool = False
    """Round the weights to float16, in half the size (safetensors)."""
    episodes: int = 0
    """Episodes to play from unseen initial states, to note the score in the file for `minerva verify`
    (safetensors)."""
    import_code: bool = False
    """Allow to import the code that the run's folder names, such as a builder of your own; that runs it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verify:
    """Play weights that come with the library, and check that they still reach the stored score."""

    function: ClassVar = "verify:run"
    rows: tyro.conf.Positional[tuple[str, ...]] = ()
    """Which: experiments, environments, both together (ppo_default:CartPole-v1), or files that
    `minerva export --episodes` wrote; all by default."""
    episodes: int | None = None
    """Episodes to play; as many as the stored score is of by default."""
    seed: int | None = None
    """Seed of the initial states; that of the stored score by default."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class List:
    """Show the agents, the environments that can be made on this machine, presets, and tasks' own presets
    with the scores they reached."""

    function: ClassVar = "listing:run"
    kind: tyro.conf.Positional[str] = "all"
    """agents, environments, presets, tasks or all."""
    word: tyro.conf.Positional[str] = ""
    """Show only what contains this word."""
    json: bool = False
    """Print JSON instead, and nothing else on standard output."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bench:
    """Run the repository's benchmarks, each beside its reference."""

    function: ClassVar = "bench:run"
    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """Which; all by default."""
    seconds: float | None = None
    """Seconds of measurement, each."""
    profile: bool = False
    """Instead, where the time of an actor's step goes: environment, policy, adder, replay, weights, loop."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckEnv:
    """Check an environment: whether it keeps to its contract, and which agents take it."""

    function: ClassVar = "check_env:run"
    environment: tyro.conf.Positional[str]
    """dm_control/<domain>/<task>, a Gymnasium id, or module:name of a class or a function that makes a
    dm_env or Gymnasium environment, with a seed if it takes one; also of a module in the current folder."""
    seed: int = 0
    """Seed of the environment."""
    steps: int = 1000
    """An episode that is longer counts as one without end."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Doctor:
    """Check this machine: what is wrong, and the command that fixes it."""

    function: ClassVar = "doctor:run"
    directory: pathlib.Path = pathlib.Path("runs")
    """Where runs are to be kept."""
    json: bool = False
    """Print JSON instead, and nothing else on standard output."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Completion:
    """Print a script that completes commands and flags in a shell: eval "$(minerva completion bash)"

    For every new shell, put that line into ~/.bashrc; of zsh, with zsh for bash, into ~/.zshrc."""

    function: ClassVar = "completion:run"
    shell: tyro.conf.Positional[Literal["bash", "zsh"]]
    """The shell."""


COMMANDS: Mapping[str, type[Any]] = MappingProxyType(
    {
        re.sub(r"(?<=[a-z])(?=[A-Z])", "-", command.__name__).lower(): command
        for command in (
            Demo,
            Train,
            Sweep,
            Resume,
            Eval,
            Video,
            Plot,
            Report,
            Collect,
            Export,
            Verify,
            List,
            Bench,
            CheckEnv,
            Doctor,
            Completion,
        )
    }
)
