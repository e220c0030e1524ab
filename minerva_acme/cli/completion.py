"""`minerva completion`."""

import dataclasses
import functools
import operator
from typing import Annotated, Any

import tyro

from minerva_acme.agents import registry
from minerva_acme.cli import commands, parsing


def run(command: commands.Completion) -> int:
    """Prints the completion script; returns the exit status."""
    # Each agent has its own flags. Agents of installed packages are left out: they would have to be imported.
    agents: list[Any] = [
        Annotated[parsing.train_command(agent), tyro.conf.subcommand(agent)] for agent in registry.AGENTS
    ]
    train = dataclasses.make_dataclass("Train", [("agent", functools.reduce(operator.or_, agents))])
    kinds: dict[str, Any] = {**commands.COMMANDS, "train": train}
    try:
        tyro.extras.subcommand_cli_from_dict(
            kinds,
            prog="minerva",
            args=["--tyro-print-completion", command.shell],
            config=(tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes),
        )
    except SystemExit as stopped:
        return int(stopped.code or 0)
    return 0
