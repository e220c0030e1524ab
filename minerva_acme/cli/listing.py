"""`minerva list`."""

import dataclasses
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rich.columns import Columns

from minerva_acme.agents import registry
from minerva_acme.cli import choices, commands, output
from minerva_acme.cli.output import Console
from minerva_acme.runs import tasks

_ALL = "all"  # every kind but `_RUNS`
_RUNS = "runs"
_WIDTH = 80  # columns of the table of tasks, which ends with the scores of the seeds
_TASK_COLUMNS = "{:5} {:7} {:34} {:>6} {:>6}  "
_TASK_HEAD = _TASK_COLUMNS.format("agent", "preset", "environment", "steps", "return") + "of each seed"
_TASK_ADVICE = "To train with them: minerva train AGENT --env ENVIRONMENT --preset task"
_PRESET_COLUMNS = "{:7} {:13} "
_PRESET_ADVICE = (
    "Shown is what differs from the default, which is in: minerva train AGENT --help\n"
    "To train with one: minerva train AGENT --env ENVIRONMENT --preset PRESET"
)


class _Item(NamedTuple):
    line: str
    value: Any  # for JSON
    names: tuple[str, ...]  # a word that is one of them means no other items


def run(command: commands.List) -> int:
    """Shows the available choices; returns the exit status.

    Raises:
        ValueError: There is no such kind.
    """
    kind, word = command.kind, command.word
    if kind != _ALL:
        advice = f"To search for a word: minerva list environments {kind}"
        choices.choose("list of", kind, (*_LISTS, _RUNS), advice=advice)
    if kind == _RUNS:
        from minerva_acme.cli import list_runs  # imports torch, which the other lists do not need

        return list_runs.run(command)
    if command.directory is not None:
        raise ValueError(f"`directory` is only for the list of runs, got the list of {kind}. Leave it out.")
    kinds = list(_LISTS) if kind == _ALL else [kind]
    with output.json_alone():  # imported packages may print something
        found = {name: _search([*_LISTS[name]()], word.lower()) for name in kinds}
    if command.json:
        values = {name: [item.value for item in items] for name, items in found.items()}
        output.show_json(values if kind == _ALL else values[kind])
    else:
        _show(found, with_titles=kind == _ALL)
    if not any(found.values()):
        # A word may be the name of something on another list.
        every = [item.line.split()[0] for items in _LISTS.values() for item in items()]
        hint = choices.near(word, [name for name in every if name != word], at_most=3)
        print(f"minerva: nothing contains '{word}'. {hint}".rstrip(), file=sys.stderr)
        return 1
    return 0


def _search(items: Sequence[_Item], word: str) -> Sequence[_Item]:
    """Returns the items with this name, or, if there are none, those that contain the word anywhere."""
    named = [item for item in items if word in map(str.lower, item.names)]
    return named or [item for item in items if word in item.line.lower()]


def _show(found: Mapping[str, Sequence[_Item]], *, with_titles: bool) -> None:
    console = Console()
    for name in filter(found.get, found):
        shown = [item.line for item in found[name]]
        if with_titles:
            console.print(f"{name.capitalize()}:", style="bold")
        if name == "environments" and console.is_terminal:
            console.print(Columns(shown, padding=(0, 3), column_first=True), soft_wrap=False)
        else:
            shown = [_TASK_HEAD, *shown, _TASK_ADVICE] if name == "tasks" else shown
            shown = [*shown, _PRESET_ADVICE] if name == "presets" else shown
            console.print("\n".join(shown))


def _agents() -> Iterator[_Item]:
    for name, entry in registry.entries().items():  # without importing them: they may be slow or broken
        words = entry.use or entry.problem or f"{entry.path}, from {entry.source}"
        source = entry.source or "minerva-acme"
        yield _Item(
            f"{name:8}{words}",
            {"name": name, "use": entry.use, "source": source, "path": entry.path},
            (name,),
        )


def _environments() -> Iterator[_Item]:
    from minerva_acme import environments  # imports numpy, which the other lists do not need

    for name in environments.list_makeable():
        yield _Item(name, name, (name,))


def _presets() -> Iterator[_Item]:
    for agent, entry in registry.entries().items():
        if entry.source:
            advice = f"see: minerva train {agent} --help"
            yield _Item(f"{agent:8}{advice}", {"agent": agent, "name": None, "changes": advice}, (agent,))
            continue
        default = dataclasses.asdict(entry.presets["default"])
        for name, config in entry.presets.items():
            values = dataclasses.asdict(config).items()
            changes = {field: value for field, value in values if value != default[field]}
            begin = _PRESET_COLUMNS.format(agent, name)
            # A line breaks between settings alone.
            words = (f"{field}={value}".replace(" ", "\0") for field, value in changes.items())
            lines = textwrap.wrap(
                ", ".join(words),
                _WIDTH,
                initial_indent=begin,
                subsequent_indent=" " * len(begin),
                break_on_hyphens=False,
            )
            line = "\n".join(lines).replace("\0", " ") or begin.rstrip()
            yield _Item(line, {"agent": agent, "name": name, "changes": changes}, (agent, name))


def _tasks() -> Iterator[_Item]:
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
        value = {
            "agent": task.agent,
            "environment": task.environment,
            "preset": task.preset,
            "settings": dict(task.settings),
            "num_env_steps": task.num_env_steps,
            "scores": {run.seed: run.score for run in task.runs},
            "mean": task.mean,
        }
        yield _Item("\n".join(lines), value, (task.agent, task.preset, task.environment))


def _short(count: int) -> str:
    for unit, name in ((1_000_000, "M"), (1_000, "k")):
        if count >= unit:
            return f"{count / unit:g}{name}"
    return str(count)


def _rounded(score: float) -> str:
    return f"{score:.0f}" if abs(score) >= 100 else f"{score:.1f}"


_LISTS = {"agents": _agents, "environments": _environments, "presets": _presets, "tasks": _tasks}
