"""`minerva list runs`: the runs below a folder, how far they got, and what differs in their settings."""

import dataclasses
import math
import pathlib
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from minerva_acme.cli import commands, output
from minerva_acme.experiments import stopping
from minerva_acme.results import names
from minerva_acme.runs import (
    checkpointing,
    options,
    run_curves,
    run_folder,
    run_lock,
    run_names,
    run_results,
)

_BY_DEFAULT = pathlib.Path("runs")
_WIDTH = 80  # columns
_INDENT = "  "


class _Run(NamedTuple):
    directory: str
    status: str  # running, finished, interrupted or unreadable
    steps: int
    num_steps: int | None  # in total; None if unknown
    score: float  # the mean of `metric` in the last evaluation; nan if there is none
    metric: str
    settings: Mapping[str, Any]  # those that are neither a preset's nor a default
    problem: str = ""  # why it is unreadable


def run(command: commands.List) -> int:
    """Shows the runs below a folder; returns the exit status.

    Raises:
        ValueError: There is no such folder.
    """
    word, directory = command.word, command.directory
    if not directory and word and pathlib.Path(word).is_dir():
        word, directory = "", pathlib.Path(word)
    directory = directory or _BY_DEFAULT
    if command.directory and not directory.is_dir():
        raise ValueError(f"`directory` must be a folder with runs, got {directory}, which is no folder.")
    found = _find(directory)
    common = _in_common([one.settings for one in found if one.settings])
    texts = [(one, _text(one, common)) for one in found]
    shown = [(one, text) for one, text in texts if word.lower() in text.lower()]
    if command.json:
        output.show_json([one._asdict() for one, _ in shown])
    elif shown:
        print("\n".join(text for _, text in shown))
        if common:
            print("\n".join(_wrap(f"All {len(found)} have {_format(common)}", "", _INDENT)))
    if not found:
        advice = "To train one: minerva train ppo --env CartPole-v1"
        print(f"There are no runs in {directory}. {advice}", file=sys.stderr)
    elif not shown:
        print(f"minerva: none of the {len(found)} runs contains '{word}'.", file=sys.stderr)
        return 1
    return 0


def _find(directory: pathlib.Path) -> list[_Run]:
    if not any(directory.rglob(run_folder.FILE)):
        return []
    described: dict[pathlib.Path, run_folder.RunDescription | Exception] = {}
    for path in run_results.find_runs([directory]):
        try:
            described[path] = run_folder.read(path)
        except (OSError, ValueError) as error:
            described[path] = error
    readable = [one for one in described.values() if isinstance(one, run_folder.RunDescription)]
    return [_look(path, one, readable) for path, one in described.items()]


def _look(
    directory: pathlib.Path,
    description: run_folder.RunDescription | Exception,
    others: Sequence[run_folder.RunDescription],
) -> _Run:
    """Returns the state of a run, which may be changing at this moment."""
    try:
        if isinstance(description, Exception):
            raise description
        options_ = description.options
        num_steps = options_.get("num_env_steps") or options_.get("num_learner_steps")
        row = [{}, *run_curves.read_rows(directory / "evaluator.csv")][-1]
        metric = str(options_.get("metric", options.RETURN))
        score = _number(row.get(metric))
        checkpoint = checkpointing.latest(directory / "checkpoints")
        if run_lock.is_held(directory):
            counted = _number(row.get("actor_steps" if options_.get("num_env_steps") else "learner_steps"))
            status, made = "running", 0 if math.isnan(counted) else int(counted)
        elif checkpoint is None:
            status, made = "interrupted", 0
        else:
            status = "finished" if stopping.is_complete(checkpoint, options_) else "interrupted"
            made = checkpointing.env_steps(checkpoint)
        return _Run(str(directory), status, made, num_steps, score, metric, _settings(description, others))
    except (OSError, ValueError) as error:
        problem = " ".join(str(error).split())
        return _Run(str(directory), "unreadable", 0, None, math.nan, options.RETURN, {}, problem)


def _number(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return math.nan


def _settings(
    description: run_folder.RunDescription, others: Sequence[run_folder.RunDescription]
) -> dict[str, Any]:
    """Returns a run's settings: those that affect its result and are neither its preset's nor defaults.

    Args:
        description: The run.
        others: All runs. The presets of an agent that is not part of this library are unknown, and its
            hyperparameters are those that differ among its runs.
    """
    preset, changes = run_names.preset_of(description)
    if preset is None:
        peers = [other.hyperparameters for other in others if other.agent == description.agent]
        changes = {
            name: value for name, value in changes.items() if any(peer.get(name) != value for peer in peers)
        }
    defaults = {field.name: field.default for field in dataclasses.fields(options.RunOptions)}
    return {
        "environment": description.environment,
        **description.environment_settings,
        "agent": description.agent,
        **({} if preset is None else {"preset": preset}),
        **changes,
        "seed": description.seed,
        **{
            name: value
            for name, value in description.options.items()
            if name in run_results.OPTIONS and value != defaults[name]
        },
    }


def _in_common(settings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the settings that several runs have in common."""
    first, *others = settings or [{}]
    missing = object()
    return {
        name: value
        for name, value in first.items()
        if others and all(other.get(name, missing) == value for other in others)
    }


def _text(one: _Run, common: Mapping[str, Any]) -> str:
    """Returns the lines of a run, with the settings that not all runs have in common."""
    steps = f"{one.steps:,} of {'?' if one.num_steps is None else f'{one.num_steps:,}'} steps"
    number = f"return {one.score:,.1f}" if one.metric == options.RETURN else f"{one.metric} {one.score:.4g}"
    score = "no evaluation" if math.isnan(one.score) else number
    own = {name: value for name, value in one.settings.items() if name not in common}
    words = one.problem or ", ".join(filter(None, [steps, score, _format(own)]))
    return "\n".join([one.directory, *_wrap(f"{one.status}, {words}", _INDENT, 2 * _INDENT)])


def _format(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={names.format_value(value)}" for name, value in settings.items())


def _wrap(text: str, first: str, further: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=first, subsequent_indent=further)
