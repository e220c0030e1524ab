"""The overview pages of `minerva --help` and `minerva train --help`, with first and next steps."""

import inspect
from collections.abc import Mapping

from minerva_acme.agents import registry
from minerva_acme.cli import commands, help_pages

_INDENT = 2

GROUPS: Mapping[str, tuple[str, ...]] = {
    "Begin": ("demo", "doctor", "list", "check-env", "init", "completion"),
    "Train": ("train", "resume", "sweep"),
    "Look at what was learned": ("eval", "video", "dataset", "plot", "report", "collect"),
    "Share": ("export", "publish", "verify"),
    "Measure": ("bench",),
}
"""The commands by purpose; commands that are not listed here are shown last."""


def commands_page() -> str:
    """Returns the help of `minerva` itself."""
    blocks = [
        "usage: minerva COMMAND ...",
        "Reinforcement learning agents from interchangeable parts.",
    ]
    grouped = {name for names in GROUPS.values() for name in names}
    others = tuple(name for name in commands.COMMANDS if name not in grouped)
    for title, names in {**GROUPS, "Others": others}.items():
        if not names:
            continue
        rows = {name: _first_sentence(commands.COMMANDS[name]) for name in names}
        blocks.append(_section(title, rows))
    first_steps = {
        "minerva train ppo --env CartPole-v1": "a minute on two cores",
        "minerva train --help": "the agents, and when to use which",
        "minerva COMMAND --help": "a command's flags",
    }
    anywhere = {"--debug": "shows the tracebacks of errors", "--version": "shows the version"}
    blocks += [_section("First steps", first_steps), _section("Anywhere", anywhere)]
    return "\n\n".join(blocks)


def agents_page() -> str:
    """Returns the help of `minerva train` without an agent."""
    rows = {
        name: entry.use or entry.problem or f"{entry.path}, from {entry.source}"
        for name, entry in registry.entries().items()
    }
    rows["module:Builder"] = "your own: minerva train --agent my_module:MyBuilder"
    next_steps = {
        "minerva train ppo --env CartPole-v1": "trains",
        "minerva train mpo --help": "every flag of MPO, with its default",
        "minerva list environments [WORD]": "the environments available here",
        "minerva list tasks": "tested settings, and their scores",
    }
    blocks = [
        "usage: minerva train AGENT --env ENVIRONMENT [FLAG ...]",
        help_pages.wrap(commands.Train.__doc__ or ""),
        _section("Agents, and when to use them", rows),
        _section("What comes next", next_steps),
    ]
    return "\n\n".join(blocks)


def _section(title: str, rows: Mapping[str, str]) -> str:
    width = max(map(len, rows))
    lines = [f"{title}:"]
    for name, words in rows.items():
        begin = f"{'':{_INDENT}}{name:{width}}  "
        lines.append(help_pages.wrap(words, " " * len(begin), begin))
    return "\n".join(lines)


def _first_sentence(command: type[object]) -> str:
    first = " ".join(inspect.cleandoc(command.__doc__ or "").split("\n\n")[0].split())
    return first.partition(". ")[0].removesuffix(".")
