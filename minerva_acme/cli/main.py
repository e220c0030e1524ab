"""`minerva`: parses the command line and calls what it names."""

import dataclasses
import difflib
import logging
import pathlib
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import tyro

from minerva_acme.agents import registry
from minerva_acme.cli import evaluation, training
from minerva_acme.experiments import config as experiment_config


@dataclasses.dataclass(frozen=True, kw_only=True)
class Train:
    """Train an agent, or go on where a run in the same directory stopped."""

    agent: tyro.conf.Positional[str]
    """The agent."""
    env: str
    """Environment: dm_control/<domain>/<task> or a Gymnasium id."""
    preset: str = "default"
    """Named hyperparameters that the agent's flags start from."""
    directory: pathlib.Path | None = None
    """The run's folder; runs/<environment>/<agent>-seed<seed> by default."""
    run: experiment_config.RunOptions
    """How long to train, how often to evaluate and save."""
    hyperparameters: Any
    """The agent's config."""


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status: 0 done (or stopped and saved), 1 failed, 2 misused."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    try:
        command = _parse(list(sys.argv[1:] if arguments is None else arguments))
        if isinstance(command, Eval):
            return evaluation.run(
                command.directory, episodes=command.episodes, seed=command.seed, explore=command.explore
            )
        return training.run(
            agent=command.agent,
            hyperparameters=command.hyperparameters,
            environment_id=command.env,
            directory=command.directory,
            options=command.run,
        )
    except ValueError as error:
        # What was asked for cannot be done and the message says why; a traceback would hide it.
        print(f"minerva: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("minerva: stopped without saving", file=sys.stderr)
        return 130


def _parse(arguments: list[str]) -> Any:
    commands: Any = (
        Annotated[_train_type(arguments), tyro.conf.subcommand("train")]
        | Annotated[Eval, tyro.conf.subcommand("eval")]
    )
    return tyro.cli(
        commands,
        prog="minerva",
        description="Reinforcement learning agents from interchangeable parts.",
        args=arguments,
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes),
    )


def _train_type(arguments: list[str]) -> type[Train]:
    """`Train` with the flags of the agent that is asked for, defaulting to the preset asked for."""
    agent = next(iter(registry.AGENTS))
    if len(arguments) > 1 and arguments[0] == "train" and not arguments[1].startswith("-"):
        agent = _choose("agent", arguments[1], registry.AGENTS)
    entry = registry.AGENTS[agent]
    preset = _choose("preset", _value_of("--preset", arguments) or "default", entry.presets)
    train = dataclasses.make_dataclass(
        "Train",
        [
            ("agent", tyro.conf.Positional[Literal[tuple(registry.AGENTS)]]),  # type: ignore[misc]
            ("preset", Literal[tuple(entry.presets)], "default"),
            ("hyperparameters", entry.config, dataclasses.field(default=entry.presets[preset])),
        ],
        bases=(Train,),
        frozen=True,
        kw_only=True,
    )
    train.__doc__ = Train.__doc__
    return train


def _value_of(flag: str, arguments: list[str]) -> str | None:
    for index, argument in enumerate(arguments):
        if argument.startswith(f"{flag}="):
            return argument.removeprefix(f"{flag}=")
        if argument == flag and index + 1 < len(arguments):
            return arguments[index + 1]
    return None


def _choose(what: str, name: str, choices: Any) -> str:
    if name in choices:
        return name
    near = difflib.get_close_matches(name, choices, n=1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    raise ValueError(f"There is no {what} '{name}'; there are {', '.join(choices)}.{hint}")


if __name__ == "__main__":
    sys.exit(main())
