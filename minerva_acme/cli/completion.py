"""`minerva completion`."""

import tyro

from minerva_acme.agents import registry
from minerva_acme.cli import commands, parsing


def run(command: commands.Completion) -> int:
    """Prints the shell's script; returns the exit status."""
    kinds = {name: kind for name, kind in commands.COMMANDS.items() if kind is not commands.Train}
    # Each agent has flags of its own. Those of installed packages would have to be imported for theirs.
    kinds |= {f"train {agent}": parsing.train_command(agent) for agent in registry.AGENTS}
    try:
        tyro.extras.subcommand_cli_from_dict(
            kinds,
            prog="minerva",
            args=["--tyro-print-completion", command.shell],
            config=(tyro.conf.OmitArgPrefixes,),
        )
    except SystemExit as stopped:
        return int(stopped.code or 0)
    return 0
