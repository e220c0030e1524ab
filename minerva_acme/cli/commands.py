"""The commands: the arguments of each, as the parser reads them, and the function that runs it.

Nothing here imports torch or numpy, so that help and errors about flags appear at once.
"""

import dataclasses
import pathlib
import re
import typing
from typing import Any, ClassVar, Literal, TypeVar

import tyro

from minerva_acme import constraints
from minerva_acme.runs import options

Settings = tuple[tuple[str, tuple[tuple[str, ...], ...]], ...]
"""Flags of `minerva train`, and for each of them the words of every value to try, including the flag:
("--discount", (("--discount", "0.98"), ("--discount", "0.99")))."""

COMMANDS: dict[str, type[Any]] = {}
"""The commands by their names."""

_Log = Literal["csv", "tensorboard", "wandb"]
_Made = TypeVar("_Made")
_Words = tyro.conf.UseAppendAction[tuple[str, ...]]  # one flag with several, or several flags


@typing.dataclass_transform(frozen_default=True, kw_only_default=True)
def _command(made: type[_Made]) -> type[_Made]:
    """Makes a class a command: a dataclass, which is called by the words of its name."""
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", made.__name__).lower()
    COMMANDS[name] = command = dataclasses.dataclass(frozen=True, kw_only=True)(made)
    return command


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainOptions(options.RunOptions):
    num_env_steps: constraints.Natural
    """Total environment steps of training, including those before a resume; 0: see `num_learner_steps`. They
    are the agent's decisions: with /repeat=2 in the environment's id, each lasts two frames. The default is
    the number in the agent's task preset for this environment, or else the usual one for its suite; the first
    line of the output says which."""
    # `--log` sets both.
    tensorboard: tyro.conf.Suppress[bool] = True
    wandb: tyro.conf.Suppress[bool] = False


@_command
class Demo:
    """Train MPO on dm_control's cartpole swingup until it is learned, for a few minutes at most, and show
    the scores, the learning curve and a video. Ctrl-C saves a checkpoint. The same command continues an
    interrupted demo; if the demo is complete, it starts another in a new folder."""

    function: ClassVar = "demo:run"
    directory: pathlib.Path = pathlib.Path("runs/demo")
    """The run's folder. If it holds a complete demo, or something else, -2, -3, ... is appended."""
    minutes: float = 4.5
    """Maximum training time in minutes."""
    goal: float = 810.0
    """Mean evaluation return at which training ends."""
    seed: int = 0
    """Seed of networks, exploration and environments."""


@_command
class Train:
    """Train an agent, or resume the run in the same directory. Ctrl-C saves a checkpoint first."""

    function: ClassVar = "training:train"
    agent: tyro.conf.Positional[str]
    """The agent: a name (see `minerva list agents`), or your own builder:
    --agent my_package.my_module:MyBuilder. Modules in the current folder are found too."""
    env: str
    """Environment: dm_control/<domain>/<task>, a Gymnasium id, or module:name of your own class or function,
    which makes a dm_env or Gymnasium environment. Modules in the current folder are found too. With --dataset
    it plays evaluations only; without it, there are none."""
    env_kwargs: _Words = ()
    """Arguments of the environment: --env-kwargs gravity=3.7 size=small. With concatenate=false, observations
    stay apart instead of becoming one vector; `minerva check-env` says which agents take them."""
    preset: str = "default"
    """Named settings, which flags override. `task` selects the settings and the number of steps listed for
    this agent and environment (see `minerva list tasks`)."""
    config: pathlib.Path | None = None
    """A file of settings, which flags override: TOML with flags as keys, or the run.json of a run."""
    directory: pathlib.Path | None = None
    """The run's folder; by default runs/<environment>/<agent>_<preset>-seed<seed>, with the hyperparameters
    that differ from the preset: runs/CartPole-v1/ppo_default+discount=0.98-seed0."""
    log: tuple[_Log, ...] = ("csv", "tensorboard")
    """Loggers, separated by commas; CSV files are always written."""
    distributed: Literal["ray", "inline"] | None = None
    """Run several actors alongside the learner: each in its own process with Ray (`ray`), or in threads of
    this process, for debugging (`inline`). By default one thread acts and learns."""
    num_actors: int | None = None
    """Number of actors of a distributed run, each with its own environments."""
    num_learners: int | None = None
    """Number of learners of a distributed run, each with an equal share of every batch; by default one."""
    address: str | None = None
    """Address of a Ray cluster, `auto` or host:port; by default Ray is started here, for this run alone."""
    dry_run: bool = False
    """Only show the settings, the memory and disk that the run takes, and an estimate of its time, for which
    it trains some seconds in a temporary folder."""
    run: TrainOptions
    """How long to train, and how often to evaluate and save."""
    hyperparameters: Any
    """The agent's config."""
    steps_by_default: tyro.conf.Suppress[str] = ""
    """Where the number of steps comes from, if it was not given."""


@_command
class Sweep:
    """Train an agent with several environments, seeds and settings, then compare the results. The same
    command resumes interrupted runs and skips those that are done. With --optuna N, search for good settings
    instead.

    Any flag of `minerva train` may be given, with one or more values to try; commas separate the numbers
    within one value: --discount 0.98 0.99 --policy-layer-sizes 64,64 256,256"""

    @property
    def function(self) -> str:
        return "sweep:run" if self.optuna is None else "search:run"

    agent: tyro.conf.Positional[str]
    """The agent, as for `minerva train`."""
    env: tuple[str, ...]
    """Environments, as for `minerva train`."""
    env_kwargs: _Words = ()
    """Arguments of every environment, as for `minerva train`."""
    seeds: tuple[int, ...] = (0,)
    """Seeds to run for each environment and setting."""
    jobs: int | None = None
    """Number of runs at a time, each in its own process; by default one, or one per CPU of a Ray cluster. If
    there are several, each uses one thread, unless OMP_NUM_THREADS is set."""
    distributed: Literal["ray"] | None = None
    """Where to run: `ray` spreads the runs over the machines of a Ray cluster; by default they run on this
    machine."""
    address: str | None = None
    """Address of a Ray cluster, `auto` or host:port; by default Ray is started here, for this sweep alone."""
    directory: pathlib.Path | None = None
    """The folder for the runs, their result rows and the report; runs/sweeps/<agent> by default, and
    runs/sweeps/<agent>-<environment>-optuna with --optuna."""
    dry_run: bool = False
    """Only show the plan and its commands."""
    optuna: int | None = None
    """Instead of all combinations, try this many settings that Optuna chooses, towards the highest mean over
    the seeds of the last evaluation's --metric. Several values of a flag are choices; the numbers are those
    of --search."""
    search: tuple[str, ...] = ()
    """The settings that --optuna varies: NAME, or with a range of your own NAME=LOW..HIGH or
    NAME=LOW..HIGH:log, such as policy-learning-rate=1e-5..1e-3:log. By default all settings of the agent that
    declare a range and are not given as flags."""
    search_seed: int = 0
    """Seed of the settings that --optuna chooses."""
    prune: bool = True
    """Whether --optuna stops trials whose evaluations are worse than the median of earlier trials."""
    report: bool = True
    """Whether to write a report at the end, in addition to the result rows."""
    range: tuple[str, ...] = ()
    """As for `minerva report`: lowest and highest return, such as CartPole-v1=0:500."""
    against: tuple[str, ...] | None = None
    """As for `minerva report`: published results to compare with."""
    settings: tyro.conf.Suppress[Settings] = ()


@_command
class Resume:
    """Resume a run from its folder alone, with the settings it was started with."""

    function: ClassVar = "training:resume"
    directory: tyro.conf.Positional[pathlib.Path]
    """The run's folder."""
    checkpoint: str = "latest"
    """The checkpoint: latest, best (by evaluation), an environment step or a folder."""
    num_env_steps: int | None = None
    """New total of environment steps (decisions), to train for longer than first requested."""
    num_learner_steps: int | None = None
    """New total of learner steps, for a run that makes no environment steps."""
    stop_at: float | None = None
    """New mean evaluation return at which to stop; inf for none."""
    stop_after_minutes: float | None = None
    """New time limit in minutes; inf for none. Each session gets the full time."""
    record: str | None = None
    """Another new folder for the episodes of the whole run, if the run has already written the first one;
    none to record no more."""
    dataset: str | None = None
    """Where the recorded episodes that the run learns from are now, if they were moved."""
    demonstrations: str | None = None
    """Where its demonstrations are now, if they were moved."""
    max_unpacked_gigabytes: float | None = None
    """As for `minerva train`, whose value is not resumed."""
    device: str | None = None
    """The learner's device, if it is to change."""
    log: tuple[_Log, ...] | None = None
    """Loggers, separated by commas, if they are to change."""
    import_code: bool = False
    """Allow importing the code that the run's folder names, such as your own builder. This runs the code."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Played:
    """The arguments of every command that plays a trained policy."""

    directory: tyro.conf.Positional[pathlib.Path]
    """The run's folder, a file of weights, the name of stored weights (see `minerva verify`), or
    hf:OWNER/NAME@REVISION for weights on the Hugging Face Hub (extra `hub`)."""
    episodes: constraints.Count
    """Episodes to play."""
    seed: int = 0
    """Seed of the environment and of exploration."""
    env: str | None = None
    """Another environment than the run's, as for `minerva train`."""
    env_kwargs: _Words = ()
    """Arguments of the environment, in addition to the run's or instead of them."""
    import_code: bool = False
    """Allow importing the code that the run's folder names, such as your own builder. This runs the code."""

    def __post_init__(self) -> None:
        constraints.check_fields(self)


@_command
class Eval(Played):
    """Play episodes with a trained run's checkpoint and report the returns."""

    function: ClassVar = "evaluate:run"
    checkpoint: str = "latest"
    """The checkpoint: latest, best (by evaluation), an environment step or a folder."""
    episodes: constraints.Count = 10
    explore: bool = False
    """Act with exploration; by default actions are greedy."""
    json: bool = False
    """Print JSON, and nothing else, on standard output."""


@_command
class Video(Played):
    """Record a video of the best of several episodes, played with one or several of a run's checkpoints."""

    function: ClassVar = "video:run"
    checkpoint: tuple[str, ...] = ("latest",)
    """The checkpoint: latest, first or middle (of those that are kept), best (by evaluation), an environment
    step or a folder. Several, such as first middle best, are shown side by side."""
    episodes: constraints.Count = 5
    """Episodes to play; the best is recorded."""
    output: pathlib.Path | None = None
    """Path of the video; by default in videos/ of the run's folder, or of the current one for a file of
    weights, named after the checkpoints."""
    format: tuple[Literal["mp4", "gif"], ...] = ("mp4", "gif")
    """Formats to write, separated by commas, if --output has no suffix."""
    camera: str | None = None
    """Number or name of one of the model's cameras."""
    height: int | None = None
    """Height of the picture in pixels."""
    width: int | None = None
    """Width of the picture in pixels."""
    every: int = 1
    """Draw every N-th environment step; the video still plays in real time."""
    seed: int = 0
    """Seed of the first episode; each further episode has the next seed."""
    explore: bool = False
    """Act with exploration; by default actions are greedy."""


@_command
class Dataset(Played):
    """Play episodes with a trained run's checkpoint, and record them in Minari's layout."""

    function: ClassVar = "dataset:run"
    output: pathlib.Path
    """The folder to write, which must be new."""
    greedy: bool = False
    """Act without exploration; by default the policy explores as in training, and what it records of each
    action, such as its log-probability, is recorded too."""
    checkpoint: str = "latest"
    """The checkpoint: latest, best (by evaluation), an environment step or a folder."""


@_command
class Plot:
    """Plot the learning curves of runs: the interquartile mean over seeds, with its confidence interval."""

    function: ClassVar = "report:plot"
    directories: tyro.conf.Positional[tuple[pathlib.Path, ...]]
    """Folders of runs, or folders that contain them."""
    output: pathlib.Path = pathlib.Path("curve")
    """Path of the figure; without a suffix both PNG and SVG are written."""
    metric: str = "evaluator/episode_return"
    """The metric to plot: <csv file>/<column>."""
    x: Literal["steps", "updates", "wall"] = "steps"
    """The x-axis: frames, learner steps or seconds. Frames are the environment's own steps: the environment
    steps of the logs, which are decisions, times the action repeat. Runs without any have learner steps."""
    group: str = "agent"
    """What the runs of one curve have in common: agent, repeat, hyperparameters or several of these,
    separated by commas."""
    published: tuple[str, ...] | None = None
    """Published curves of the base task to draw in the background, by frames, separated by commas; `none` for
    none. By default those that the agents are usually compared with."""
    aggregate: bool = False
    """Aggregate all dm_control tasks in one panel, over seeds and tasks."""
    range: tuple[str, ...] = ()
    """Lowest and highest value of an environment's vertical axis, such as CartPole-v1=0:500, or of all
    environments, such as 0:500; by default the axis fits the runs."""

    def __post_init__(self) -> None:
        if self.published and self.published != ("none",) and self.x != "steps":
            raise ValueError(
                f"`published` must be none if `x` is {self.x}, because published curves are given in frames "
                "only. Leave one of them out."
            )


@_command
class Report:
    """Compare results: interquartile means, performance profiles, probabilities of improvement and curves, as
    tables and as one page with figures."""

    function: ClassVar = "report:run"
    results: tyro.conf.Positional[tuple[str, ...]]
    """Folders of runs or folders that contain them, files of rows (see `minerva collect`), or experiments of
    the library, such as mpo_control."""
    against: tuple[str, ...] | None = None
    """Published results to compare with at the same number of frames, such as mpo sac simba_v2 dr_q bro_utd2;
    `none` for none. By default those that the agents are usually compared with. The report says their action
    repeats and updates per frame."""
    env: tuple[str, ...] = ()
    """The environments to compare, such as dm_control/walker/run; by default all."""
    step: int | None = None
    """Frames at which scores are compared; by default the last that all runs have reached. Frames are the
    environment's own steps: decisions (--num-env-steps) times the action repeat."""
    range: tuple[str, ...] = ()
    """Lowest and highest return of environments other than dm_control's, such as CartPole-v1=0:500; of one
    environment alone 0:500 is enough."""
    metric: str = "avg_return"
    """What is compared: a metric of the rows. Those of a run have its own --metric by name, such as
    info/is_success/last, which needs a --range for each environment and has no published results."""
    min_seeds: int = 1
    """Leave out environments in which an experiment has fewer seeds than this."""
    output: pathlib.Path = pathlib.Path("report")
    """The folder for the page, its figures and tables, and the rows."""


@_command
class Collect:
    """Write the results of runs as rows, with their provenance: a CSV and a JSON file per experiment. The
    steps of rows count frames: decisions times the action repeat."""

    function: ClassVar = "collect:run"
    directories: tyro.conf.Positional[tuple[pathlib.Path, ...]]
    """Folders of runs, or folders that contain them."""
    output: pathlib.Path = pathlib.Path("results")
    """The folder for the files; runs are added to the experiments that it already holds."""
    name: str = ""
    """The experiment's name; by default the agent, the preset and the settings that differ from it. An action
    repeat is added to it."""
    episodes: int = 0
    """Episodes to play with each run's last policy, from unseen initial states, for its final score; 0 for
    none."""
    import_code: bool = False
    """Allow importing the code that the runs' folders name, to play episodes. This runs the code."""


@_command
class Export:
    """Write a trained run's policy to one file: its weights, or a program that needs only torch or ONNX."""

    function: ClassVar = "export:run"
    directory: tyro.conf.Positional[pathlib.Path]
    """The run's folder."""
    output: pathlib.Path | None = None
    """The file; by default in the run's folder, named after the checkpoint."""
    format: Literal["safetensors", "pt2", "onnx"] | None = None
    """`safetensors`: weights, with the content of run.json, for `minerva_acme.load_policy`; `pt2` and `onnx`:
    a program of torch.export or ONNX that maps observations to actions without exploration. By default the
    file's suffix decides."""
    checkpoint: str = "latest"
    """The checkpoint: latest, best or its number of environment steps."""
    actions: Literal["agent", "task"] | None = None
    """`agent`: a program's observations and actions are those of training, continuous actions within [-1, 1]
    (the default of pt2); `task`: they are the bare environment's, actions within its own bounds (the default
    of onnx)."""
    half: bool = False
    """Round the weights to float16, which halves their size (safetensors only)."""
    episodes: int | None = None
    """Weights: episodes to play from unseen initial states, to store the score in the file for `minerva
    verify`; none by default. Programs: episodes to play in each of 1 and then 7 environments, to compare the
    actions with the policy's; 2 by default."""
    import_code: bool = False
    """Allow importing the code that the run's folder names, such as your own builder. This runs the code."""


@_command
class Publish:
    """Write a folder for the Hugging Face Hub: a trained run's weights, run.json, a model card with its score
    and a video. Only --to uploads it."""

    function: ClassVar = "publish:run"
    directory: tyro.conf.Positional[pathlib.Path]
    """The run's folder."""
    to: str | None = None
    """The repository to upload to, OWNER/NAME, which is made if there is none; nothing is uploaded by
    default. Log in first, with `hf auth login`."""
    private: bool = False
    """Make a new repository private."""
    output: pathlib.Path | None = None
    """The folder to write; hub/ in the run's folder by default."""
    checkpoint: str = "latest"
    """The checkpoint: latest, best or its number of environment steps."""
    episodes: int = 10
    """Episodes to play from unseen initial states, for the score."""
    video: bool = True
    """Record a video, if the environment can be drawn."""
    import_code: bool = False
    """Allow importing the code that the run's folder names, such as your own builder. This runs the code."""


@_command
class Verify:
    """Play weights that come with the library, and check that they still reach the stored score."""

    function: ClassVar = "verify:run"
    rows: tyro.conf.Positional[tuple[str, ...]] = ()
    """The weights: experiments, environments, both together (ppo_default:CartPole-v1), or files written by
    `minerva export --episodes`; all stored weights by default."""
    episodes: int | None = None
    """Episodes to play; by default as many as for the stored score."""
    seed: int | None = None
    """Seed of the initial states; by default the one used for the stored score."""
    import_code: bool = False
    """Allow importing the code that the weights name, such as your own environment. This runs the code."""


@_command
class List:
    """Show the agents, the environments available on this machine, the presets, and the task presets with
    the scores they reached; or your runs: how far each got, its last score, and how its settings differ."""

    function: ClassVar = "listing:run"
    kind: tyro.conf.Positional[str] = "all"
    """agents, environments, presets, tasks, or all of these; or runs."""
    word: tyro.conf.Positional[str] = ""
    """Show only entries that contain this word; for runs, it may be the folder."""
    directory: pathlib.Path | None = None
    """The folder below which to look for runs; runs by default."""
    json: bool = False
    """Print JSON, and nothing else, on standard output."""


@_command
class Bench:
    """List the repository's benchmarks, or run some of them, each with its reference for comparison."""

    function: ClassVar = "bench:run"
    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """The benchmarks to run, or `all`, which takes long; without names they are only listed."""
    seconds: float | None = None
    """Seconds to measure each benchmark."""
    profile: bool = False
    """Instead of benchmarks, profile an actor's step: environment, policy, adder, replay, weights, loop."""


@_command
class CheckEnv:
    """Check whether an environment follows the rules of dm_env, and which agents support it."""

    function: ClassVar = "check_env:run"
    environment: tyro.conf.Positional[str]
    """dm_control/<domain>/<task>, a Gymnasium id, or module:name of a class or function that makes a dm_env
    or Gymnasium environment, from a seed if it takes one. Modules in the current folder are found too."""
    env_kwargs: _Words = ()
    """Arguments of the environment: --env-kwargs gravity=3.7 size=small"""
    seed: int = 0
    """Seed of the environment."""
    steps: int = 1000
    """Maximum number of steps of an episode; a longer one counts as endless."""


@_command
class Init:
    """Write a folder with an agent of your own, an environment and their tests, which trains as it is."""

    function: ClassVar = "init:run"
    name: tyro.conf.Positional[str]
    """The agent's name, which its folder and module get too."""


@_command
class Doctor:
    """Check this machine, and suggest a command to fix each problem."""

    function: ClassVar = "doctor:run"
    directory: pathlib.Path = pathlib.Path("runs")
    """The folder where runs will be kept."""
    json: bool = False
    """Print JSON, and nothing else, on standard output."""


@_command
class Completion:
    """Print a script that completes commands and flags in a shell: eval "$(minerva completion bash)"

    To have it in every new shell, put that line into ~/.bashrc. For zsh, replace bash by zsh and put it into
    ~/.zshrc."""

    function: ClassVar = "completion:run"
    shell: tyro.conf.Positional[Literal["bash", "zsh"]]
    """The shell."""
