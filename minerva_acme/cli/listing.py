"""`minerva list`."""

import dataclasses
import sys
import textwrap
from collections.abc import Iterator

from rich.columns import Columns
from rich.console import Console

from minerva_acme.agents import registry
from minerva_acme.cli import choices, commands
from minerva_acme.experiments import tasks

_ALL = "all"  # kinds
_WIDTH = 80  # of the tasks' table, whose last column is the seeds' scores
_TASK_COLUMNS = "{:5} {:7} {:34} {:>6} {:>6}  "
_TASK_HEAD = _TASK_COLUMNS.format("agent", "preset", "environment", "steps", "return") + "of each seed"
_TASK_ADVICE = "To train with such settings: minerva train AGENT --env ENVIRONMENT --preset task"


def run(command: commands.List) -> int:
    """Shows what there is to choose from; returns the exit status.

    Raises:
        ValueError: there is no such kind.
    """
    kind, word = command.kind, command.word
    if kind != _ALL:
        advice = f"By a word of the name: minerva list environments {kind}"
        choices.choose("list of", kind, _LISTS, advice=advice)
    console = Console(highlight=False, soft_wrap=True)
    kinds = _LISTS if kind == _ALL else [kind]
    found = {name: [line for line in _LISTS[name]() if word.lower() in line.lower()] for name in kinds}
    for name in filter(found.get, kinds):
        shown = found[name]
        if kind == _ALL:
            console.print(f"{name.capitalize()}:", style="bold")
        if name == "environments" and console.is_terminal:
            console.print(Columns(shown, padding=(0, 3), column_first=True), soft_wrap=False)
        else:
            shown = [_TASK_HEAD, *shown, _TASK_ADVICE] if name == "tasks" else shown
            console.print("\n".join(shown), markup=False)
    if not any(found.values()):
        every = [line.split()[0] for lines in _LISTS.values() for line in lines()]
        print(f"minerva: nothing contains '{word}'. {choices.near(word, every, at_most=3)}", file=sys.stderr)
        return 1
    return 0


def _agents() -> Iterator[str]:
    for name, entry in registry.entries().items():
        if entry.source:  # not imported for this: it may be slow, or broken
            yield f"{name:8}{entry.problem or f'{entry.path}, of {entry.source}'}"
        else:
            first_line = (entry.config.__doc__ or "").strip().splitlines()[0]
            yield f"{name:8}{first_line}"


def _environments() -> Iterator[str]:
    from minerva_acme import environments  # imports numpy, which the other lists do without

    yield from environments.list_makeable()


def _presets() -> Iterator[str]:
    for agent, entry in registry.entries().items():
        if entry.source:
            yield f"{agent:8}see: minerva train {agent} --help"
            continue
        default = dataclasses.asdict(entry.presets["default"])
        for name, config in entry.presets.items():
            values = dataclasses.asdict(config).items()
            changes = ", ".join(f"{field}={value}" for field, value in values if value != default[field])
            yield f"{agent:8}{name:12}{changes}".rstrip()


def _tasks() -> Iterator[str]:
    for task in tasks.load():
        line = _TASK_COLUMNS.format(
            task.agent, task.preset, task.environment, _short(task.num_env_steps), _rounded(task.mean)
        )
        seeds = textwrap.wrap(" ".join(_rounded(run.score) for run in task.runs), _WIDTH - len(line))
        lines = [line + seeds[0], *(" " * len(line) + more for more in seeds[1:])]
        # Below the environment.
        indent = " " * _TASK_COLUMNS.format("", "", "|", "", "").index("|")
        settings = " ".join(task.flags)
        lines += textwrap.wrap(settings, _WIDTH, initial_indent=indent, subsequent_indent=indent + "  ")
        yield "\n".join(lines)


def _short(count: int) -> str:
    for unit, name in ((1_000_000, "M"), (1_000, "k")):
        if count >= unit:
            return f"{count / unit:g}{name}"
    return str(count)


def _rounded(score: float) -> str:
    return f"{score:.0f}" if abs(score) >= 100 else f"{score:.1f}"


_LISTS = {"agents": _agents, "environments": _environments, "presets": _presets, "tasks": _tasks}
