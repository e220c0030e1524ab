"""`minerva completion`."""

import contextlib
import dataclasses
import functools
import io
import operator
from typing import Annotated, Any

import tyro

from minerva_acme.agents import registry
from minerva_acme.cli import commands, flags, parsing

_BETTER_IN_BASH = {
    # Help of several lines is one candidate, and None is not offered as a value.
    "        print(completion)\n": '        if completion.partition("\\t")[0] != "None":\n'
    '            print(" ".join(completion.splitlines()))\n',
    # Where there is no candidate, bash completes files.
    '    matches+=("$completion")\n': '    [[ -n "$completion" ]] && matches+=("$completion")\n',
    "complete -F": "complete -o bashdefault -o default -F",
}
"""Replacements in tyro's script, whose Python part prints the candidates."""


def run(command: commands.Completion) -> int:
    """Prints the completion script; returns the exit status."""
    # Each agent has its own flags. Agents of installed packages are left out: they would have to be imported.
    agents: list[Any] = [
        Annotated[parsing.train_command(agent), tyro.conf.subcommand(agent)] for agent in registry.AGENTS
    ]
    train = dataclasses.make_dataclass("Train", [("agent", functools.reduce(operator.or_, agents))])
    kinds: dict[str, Any] = {**commands.COMMANDS, "train": train}
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.suppress(SystemExit):
        tyro.extras.subcommand_cli_from_dict(
            kinds,
            prog="minerva",
            args=["--tyro-print-completion", command.shell],
            config=(tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes),
        )
    script = printed.getvalue()
    for old, new in _BETTER_IN_BASH.items() if command.shell == "bash" else ():
        script = script.replace(old, new)
    for own in set(flags.OTHER_NAMES.values()):
        script = script.replace(f"'flags': {[own]}", f"'flags': {flags.names(own)}")
    print(script, end="")
    return 0
