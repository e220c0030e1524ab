"""From the words of the command line to a command of `commands`."""

import argparse
import contextlib
import dataclasses
import io
import os
import sys
from collections.abc import Sequence
from typing import Any, Literal

import tyro

from minerva_acme.agents import registry
from minerva_acme.cli import choices, commands, flags
from minerva_acme.experiments import tasks

AGENT = "--agent"
"""Names the agent of `minerva train` too: people write it before where a builder is."""

DEBUG = "--debug"
"""Anywhere among the arguments: errors come with their tracebacks. `main` takes it out."""

_TASK = "task"  # the preset that is looked up by agent and environment


def parse(arguments: Sequence[str]) -> Any:
    """Returns the command with what it was given.

    Raises:
        ValueError: there is no such command, agent, preset or flag, or a value is wrong.
        SystemExit: of the parser, after it printed help or what is missing or too much.
    """
    if not arguments or arguments[0] in ("-h", "--help"):
        return tyro.extras.subcommand_cli_from_dict(
            dict(commands.COMMANDS),
            prog="minerva",
            description="Reinforcement learning agents from interchangeable parts. With --debug, "
            "before or behind any command, errors come with their tracebacks.",
            args=arguments,
        )
    name, *rest = arguments
    if name.startswith("-"):
        raise ValueError(f"`minerva` has no flag {name} before a command. There are: minerva --help")
    command = commands.COMMANDS[choices.choose("command", name, commands.COMMANDS)]
    typed = program = f"minerva {name}"
    if command is commands.Train:
        rest = _with_agent_first(rest)
        agent = _agent(rest)
        command = train_command(agent, rest)
        typed += f" {agent}"
    parsed = _parse(command, program, flags.settle(rest, dict(flags.of(command)), typed))
    if getattr(parsed, "import_code", False) or isinstance(parsed, commands.CheckEnv):
        _find_modules_here()
    return parsed


def train_command(agent: str, arguments: Sequence[str] = ()) -> type[commands.Train]:
    """Returns `Train` with the flags of an agent; their defaults are those of the preset in the arguments."""
    if ":" in agent:
        _find_modules_here()
    entry = registry.find(agent)
    flags.check_config(entry.config, taken=[AGENT, DEBUG, *dict(flags.of(commands.Train))])
    presets = (*entry.presets, _TASK)
    peek = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    peek.add_argument("--preset", nargs="?")
    peek.add_argument("--env", "--environment", nargs="?")
    known, _ = peek.parse_known_args(arguments)
    preset = choices.choose("preset", known.preset or "default", presets)
    config, run = entry.presets["default" if preset == _TASK else preset], dataclasses.field()
    if preset == _TASK and known.env is not None:  # without an environment the parser asks for it
        task = tasks.find(agent, known.env)
        config = task.make_config()
        run = dataclasses.field(default=commands.TrainOptions(num_env_steps=task.num_env_steps))
    return dataclasses.make_dataclass(
        "Train",
        [
            ("agent", tyro.conf.Positional[Literal[tuple({**registry.entries(), agent: entry})]]),  # type: ignore[misc]
            ("preset", Literal[presets], "default"),
            ("run", commands.TrainOptions, run),
            ("hyperparameters", entry.config, dataclasses.field(default=config)),
        ],
        bases=(commands.Train,),
        namespace={"__doc__": commands.Train.__doc__},
        frozen=True,
        kw_only=True,
    )


def _with_agent_first(arguments: Sequence[str]) -> list[str]:
    peek = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    peek.add_argument(AGENT, nargs="?")
    named, others = peek.parse_known_args(arguments)
    if named.agent is None:
        return others
    if others and not others[0].startswith("-"):
        raise ValueError(f"The agent must be named once, got '{others[0]}' and {AGENT} {named.agent}.")
    return [named.agent, *others]


def _agent(arguments: Sequence[str]) -> str:
    known = registry.entries()
    if arguments and not arguments[0].startswith("-"):
        if ":" in arguments[0]:
            return arguments[0]
        advice = f"One of your own: {AGENT} my_package.my_module:MyBuilder"
        return choices.choose("agent", arguments[0], known, advice=advice)
    # Behind its flags. Where there is none, the parser asks for it.
    named = (argument for argument in arguments if argument in known)
    return next(named, next(iter(known)))


def _find_modules_here() -> None:
    """Lets Python find modules in the current folder too, behind everything installed."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def _parse(command: type[Any], program: str, arguments: Sequence[str]) -> Any:
    def parse_() -> Any:
        return tyro.cli(command, prog=program, args=arguments, config=(tyro.conf.OmitArgPrefixes,))

    try:
        with contextlib.redirect_stderr(io.StringIO()):
            return parse_()
    except SystemExit as stopped:
        if not stopped.code:  # --help
            raise
        # What the command's dataclasses say of values. The parser would put its own names before it.
        cause = stopped.__context__
        while cause is not None:
            if isinstance(cause, ValueError):
                raise cause from None
            cause = cause.__context__
    return parse_()  # says it where it belongs, in its colours
