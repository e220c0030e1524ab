"""`minerva`: parses the command line and calls what it names."""

import contextlib
import dataclasses
import io
import logging
import pathlib
import sys
import typing
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

import tyro

from minerva_acme.agents import registry
from minerva_acme.cli import bench, choices, doctor, evaluate, listing, plotting, training, values, video
from minerva_acme.experiments import config as experiment_config
from minerva_acme.experiments import tasks
from minerva_acme.replay import base as replay

_Log = Literal["csv", "tensorboard", "wandb"]
_OTHER_NAMES = {"--num-envs": "--num-environments", "--environment": "--env"}
_TASK = "task"  # the preset that is looked up by agent and environment


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Options(experiment_config.RunOptions):
    # `--log` says both.
    tensorboard: tyro.conf.Suppress[bool] = True
    wandb: tyro.conf.Suppress[bool] = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Train:
    """Train an agent, or go on where a run in the same directory stopped. Ctrl-C saves first."""

    agent: tyro.conf.Positional[str]
    """The agent."""
    env: str
    """Environment: dm_control/<domain>/<task> or a Gymnasium id."""
    preset: str = "default"
    """Named settings that the flags start from; `task`: those noted for the agent and the environment, steps
    of training included (minerva list tasks)."""
    directory: pathlib.Path | None = None
    """The run's folder; runs/<environment>/<agent>-seed<seed> by default."""
    log: tuple[_Log, ...] = ("csv", "tensorboard")
    """Where logs go, separated by commas; CSV files are always written."""
    run: _Options
    """How long to train, how often to evaluate and save."""
    hyperparameters: Any
    """The agent's config."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resume:
    """Go on with a run from its folder alone, with the settings it was started with."""

    directory: tyro.conf.Positional[pathlib.Path]
    """The run's folder."""
    num_env_steps: int | None = None
    """Environment steps of training in all, to train for longer than first asked."""
    device: str | None = None
    """Where the learner computes, if it is to be elsewhere than before."""
    log: tuple[_Log, ...] | None = None
    """Where logs go, separated by commas, if it is to be elsewhere than before."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Eval:
    """Play episodes with a trained run's newest checkpoint and report the returns."""

    directory: tyro.conf.Positional[pathlib.Path]
    """The run's folder."""
    episodes: int = 10
    """Episodes to play."""
    seed: int = 0
    """Of the environment and of exploration."""
    explore: bool = False
    """Act with the exploring policy instead of its mean."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Video:
    """Film the best of several episodes of a trained run's newest checkpoint."""

    directory: tyro.conf.Positional[pathlib.Path]
    """The run's folder."""
    episodes: int = 5
    """Episodes to choose the best from."""
    out: pathlib.Path | None = None
    """The film's path; in the run's folder by default."""
    format: tuple[Literal["mp4", "gif"], ...] = ("mp4", "gif")
    """What to write, separated by commas, where --out has no suffix."""
    camera: str | None = None
    """Number or name of a camera of the model."""
    height: int | None = None
    """Height of the picture, pixels."""
    width: int | None = None
    """Width of the picture, pixels."""
    seed: int = 0
    """Of the first episode; the others' follow it."""
    explore: bool = False
    """Act with the exploring policy instead of its mean."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plot:
    """Draw the learning curves of runs: interquartile mean over seeds, with its interval."""

    directories: tyro.conf.Positional[tuple[pathlib.Path, ...]]
    """Runs' folders, or folders that hold such."""
    out: pathlib.Path = pathlib.Path("curve")
    """The picture; without a suffix both PNG and SVG are written."""
    metric: str = "evaluator/episode_return"
    """What to draw: <csv file>/<column>."""
    group: str = "agent"
    """What runs of one curve have in common: agent, or hyperparameters too, separated by commas."""
    published: tuple[str, ...] | None = None
    """Published curves to draw behind, separated by commas; none: none; by default the nearest."""
    aggregate: bool = False
    """Draw all of dm_control's tasks in one panel, over seeds and tasks."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class List:
    """Show the agents, the environments that can be made on this machine, presets, and tasks' own presets
    with the scores they reached."""

    kind: tyro.conf.Positional[str | None] = None
    """agents, environments, presets or tasks; all by default."""
    word: tyro.conf.Positional[str] = ""
    """Show only what holds this word."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bench:
    """Run the repository's benchmarks, each beside its reference."""

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """Which; all by default."""
    seconds: float | None = None
    """Seconds of measurement, each."""
    profile: bool = False
    """Instead, where the time of an actor's step goes: environment, policy, adder, replay, weights, loop."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Doctor:
    """Check this machine and say what is wrong and the command that mends it."""

    directory: pathlib.Path = pathlib.Path("runs")
    """Where runs are to be kept."""


_COMMANDS: dict[str, type[Any]] = {
    "train": Train,
    "resume": Resume,
    "eval": Eval,
    "video": Video,
    "plot": Plot,
    "list": List,
    "bench": Bench,
    "doctor": Doctor,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status.

    0: done, or stopped and saved; 1: failed; 2: misused; 130: stopped by Ctrl-C with nothing saved.
    """
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler) and handler.stream is sys.stderr:
            handler.setStream(_Stderr())
    try:
        return _run(_parse(list(sys.argv[1:] if arguments is None else arguments)))
    except ValueError as error:
        # What was asked for cannot be done and the message says why; a traceback would hide it.
        print(f"minerva: {error}", file=sys.stderr)
        return 2
    except (FloatingPointError, ImportError, OSError, replay.ReplayError) as error:
        # The machine or the training, not the code: no traceback either.
        print(f"minerva: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("minerva: stopped without saving", file=sys.stderr)
        return 130


class _Stderr:
    """Standard error as it is at each write: the live display puts itself in its place."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def _run(command: Any) -> int:
    match command:
        case Train():
            return training.run(
                agent=command.agent,
                hyperparameters=command.hyperparameters,
                environment_id=command.env,
                directory=command.directory,
                options=dataclasses.replace(
                    command.run, tensorboard="tensorboard" in command.log, wandb="wandb" in command.log
                ),
            )
        case Resume():
            return training.resume(
                command.directory,
                num_env_steps=command.num_env_steps,
                device=command.device,
                log=command.log,
            )
        case Eval():
            return evaluate.run(
                command.directory, episodes=command.episodes, seed=command.seed, explore=command.explore
            )
        case Video():
            camera = command.camera
            return video.run(
                command.directory,
                episodes=command.episodes,
                out=command.out,
                formats=command.format,
                camera=int(camera) if camera is not None and camera.isdigit() else camera,
                height=command.height,
                width=command.width,
                seed=command.seed,
                explore=command.explore,
            )
        case Plot():
            return plotting.run(
                command.directories,
                out=command.out,
                metric=command.metric,
                group=command.group,
                published=command.published,
                aggregate=command.aggregate,
            )
        case List():
            return listing.run(command.kind, command.word)
        case Bench():
            return bench.run(command.names, seconds=command.seconds, profile=command.profile)
        case _:
            return doctor.run(command.directory)


def _parse(arguments: list[str]) -> Any:
    if not arguments or arguments[0] in ("-h", "--help"):
        union: Any = typing.Union[  # noqa: UP007 -- of a list
            tuple(Annotated[command, tyro.conf.subcommand(name)] for name, command in _COMMANDS.items())
        ]
        return tyro.cli(
            union,
            prog="minerva",
            description="Reinforcement learning agents from interchangeable parts.",
            args=arguments,
        )
    if arguments[0].startswith("-"):
        raise ValueError(f"`minerva` has no flag {arguments[0]} before a command. There are: minerva --help")
    name = choices.choose("command", arguments[0], _COMMANDS)
    command = _train_type(arguments) if name == "train" else _COMMANDS[name]
    asked = f"minerva train {_agent(arguments)}" if name == "train" else f"minerva {name}"
    hints = dict(_flags(command))
    settled = _settle_flags(arguments[1:], sorted(hints), asked)
    values.check(settled, hints)
    return _parse_command(command, f"minerva {name}", settled)


def _parse_command(command: type[Any], prog: str, arguments: Sequence[str]) -> Any:
    """Parses what one command is given.

    Raises:
        ValueError: what the command's dataclasses say of the values; the parser would put its own
            names before it.
        SystemExit: of the parser, which said what it has to say.
    """

    def parse() -> Any:
        return tyro.cli(command, prog=prog, args=arguments, config=(tyro.conf.OmitArgPrefixes,))

    try:
        with contextlib.redirect_stderr(io.StringIO()):
            return parse()
    except SystemExit as stopped:
        if not stopped.code:  # --help
            raise
        cause = stopped.__context__
        while cause is not None:
            if isinstance(cause, ValueError):
                raise cause from None
            cause = cause.__context__
    return parse()  # says it where it belongs, in its colours


def _train_type(arguments: list[str]) -> type[Train]:
    """`Train` with the flags of the agent that is asked for, defaulting to the preset asked for."""
    agent = _agent(arguments)
    entry = registry.AGENTS[agent]
    presets = (*entry.presets, _TASK)
    preset = choices.choose("preset", _value_of("--preset", arguments) or "default", presets)
    environment = _value_of("--env", arguments) or _value_of("--environment", arguments)
    run: tuple[Any, ...] = ("run", _Options)
    if preset != _TASK or environment is None:  # without an environment the parser asks for it
        config = entry.presets["default" if preset == _TASK else preset]
    else:
        task = tasks.find(agent, environment)
        config = task.make_config()
        run = (*run, dataclasses.field(default=_Options(num_env_steps=task.num_env_steps)))
    train = dataclasses.make_dataclass(
        "Train",
        [
            ("agent", tyro.conf.Positional[Literal[tuple(registry.AGENTS)]]),  # type: ignore[misc]
            ("preset", Literal[presets], "default"),
            run,
            ("hyperparameters", entry.config, dataclasses.field(default=config)),
        ],
        bases=(Train,),
        frozen=True,
        kw_only=True,
    )
    train.__doc__ = Train.__doc__
    return train


def _agent(arguments: list[str]) -> str:
    if len(arguments) > 1 and not arguments[1].startswith("-"):
        return choices.choose("agent", arguments[1], registry.AGENTS)
    # Behind its flags, or none at all, of which the parser will say so.
    return next(
        (argument for argument in arguments if argument in registry.AGENTS), next(iter(registry.AGENTS))
    )


def _settle_flags(arguments: list[str], known: Sequence[str], command: str) -> list[str]:
    """Returns the arguments with flags by their own names, and what commas separate by itself.

    Raises:
        ValueError: the command has no such flag; the message has the nearest.
    """
    settled: list[str] = []
    flag = ""
    for argument in arguments:
        if argument.startswith("--") and len(argument) > 2:
            flag, equals, value = argument.partition("=")
            flag = flag.replace("_", "-")
            if flag not in known and _OTHER_NAMES.get(flag) in known:
                flag = _OTHER_NAMES[flag]
            if flag not in (*known, "--help"):
                near = choices.near(flag, known, at_most=3) or f"There are: {command} --help"
                if flag == "--num-envs":
                    near = "Its agent plays one environment."
                raise ValueError(f"`{command}` has no flag {flag}. {near}")
            settled.append(flag)
            if equals:
                settled += value.split(",") if flag in _BY_COMMAS else [value]
        else:
            settled += argument.split(",") if flag in _BY_COMMAS else [argument]
    return settled


_BY_COMMAS = ("--log", "--format", "--published")


def _flags(command: type[Any]) -> Iterator[tuple[str, Any]]:
    """Yields the flags that a command's fields become, nested ones without a prefix, and their types."""
    for name, hint in typing.get_type_hints(command, include_extras=True).items():
        if dataclasses.is_dataclass(hint):
            yield from _flags(hint)  # type: ignore[arg-type]
            continue
        marks = getattr(hint, "__metadata__", ())
        if tyro.conf.Suppress in marks or tyro.conf.Positional in marks:
            continue
        flag = f"--{name.replace('_', '-')}"
        yield flag, hint
        if hint is bool:
            yield f"--no-{name.replace('_', '-')}", bool


def _value_of(flag: str, arguments: list[str]) -> str | None:
    for index, argument in enumerate(arguments):
        if argument.startswith(f"{flag}="):
            return argument.removeprefix(f"{flag}=")
        if argument == flag and index + 1 < len(arguments):
            return arguments[index + 1]
    return None


if __name__ == "__main__":
    sys.exit(main())
