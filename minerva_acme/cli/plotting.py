"""`minerva plot`."""

import itertools
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from minerva_acme import plotting
from minerva_acme.cli import commands, extras, report
from minerva_acme.cli.console import Console
from minerva_acme.runs import run_folder, run_results

_RETURNS = {"evaluator/episode_return": "Evaluation return", "actor/episode_return": "Training return"}
_DM_CONTROL_RETURNS = (0.0, 1000.0)
# The column of the logs, its unit, and the label of the axis.
_AXES = {
    "steps": (plotting.STEPS, "frames", plotting.FRAMES),
    "updates": ("learner_steps", "learner steps", "Learner steps"),
    "wall": ("wall_seconds", "seconds", "Wall time (s)"),
}


class _Run(NamedTuple):
    directory: pathlib.Path
    description: run_folder.RunDescription
    settings: Mapping[str, Any]  # hyperparameters and the action repeat
    label: str
    curve: plotting.Curve


def run(command: commands.Plot) -> int:
    """Draws the learning curves of runs; returns the exit status.

    Raises:
        ValueError: There are no such runs, they have no such metric, or they cannot be plotted as requested.
    """
    with extras.needed("plot"):
        from minerva_acme.plotting import figure
    console = Console(stderr=True)
    metric = command.metric
    found = sorted(_read(command, console), key=lambda run: run.description.base_task.env_name)
    if not found:
        raise ValueError(f"None of the runs has values of '{metric}' yet. Wait for one, or train for longer.")
    by_environment: dict[str, list[_Run]] = {}
    for one in found:
        by_environment.setdefault(one.description.base_task.env_name, []).append(one)
    if command.aggregate and metric not in _RETURNS:
        raise ValueError(f"`metric` must be a return to be aggregated over tasks, got '{metric}'.")
    each = [{name: members} for name, members in by_environment.items()]
    parts = [by_environment] if command.aggregate else each
    generator = np.random.default_rng(0)  # of the bootstrap
    panels = [_make_panel(part, command, generator, console) for part in parts]
    y_label = _RETURNS.get(metric, metric.partition("/")[2].replace("_", " "))
    x_label = _AXES[command.x][2]
    files = figure.save(figure.draw(panels, y_label=y_label, x_label=x_label), command.out)
    caption = plotting.make_caption(panels, y_label, x_label)
    console.print(f"Wrote {', '.join(map(str, files))}. For the caption: {caption}")
    return 0


def _read(command: commands.Plot, console: Console) -> Iterator[_Run]:
    for directory in run_results.find_runs(command.directories):
        description = run_folder.read(directory)
        repeat = description.base_task.action_repeat
        settings = {**description.hyperparameters, "repeat": "unknown" if repeat is None else repeat}
        curve = plotting.read_curve(directory, command.metric, _AXES[command.x][0])
        if command.x == "steps":  # logs count decisions
            curve = curve._replace(x=curve.x * (repeat or 1))
        if len(curve.x):
            label = _label(description, settings, command.group.split(","))
            yield _Run(directory, description, settings, label, curve)
        else:
            console.print(f"Left out {directory}: it has no values of '{command.metric}' yet.")


def _label(description: run_folder.RunDescription, settings: Mapping[str, Any], group: Sequence[str]) -> str:
    values: dict[str, Any] = {**settings, "agent": description.agent}
    for key in group:
        if key not in values:
            raise ValueError(
                f"`group` must be agent, repeat or a hyperparameter of every run, got '{key}'. "
                f"{description.agent} has {', '.join(sorted(description.hyperparameters))}."
            )
    return ", ".join(
        description.title
        if key == "agent"
        else f"{key.replace('_', ' ')} {str(values[key]).replace('_', '-')}"
        for key in group
    )


def _make_panel(
    by_environment: Mapping[str, Sequence[_Run]],
    command: commands.Plot,
    generator: np.random.Generator,
    console: Console,
) -> plotting.Panel:
    """Makes the panel of one environment, or of several together."""
    environments = list(by_environment)
    others = [name for name in environments if not name.startswith("dm_control/")]
    if len(environments) > 1 and others:
        raise ValueError(
            "`aggregate` must be over tasks of dm_control, whose returns are between 0 and 1000, got "
            f"{', '.join(others)}. Without it each environment has its own panel."
        )
    groups = []
    for label in dict.fromkeys(run.label for members in by_environment.values() for run in members):
        tasks = [[run for run in members if run.label == label] for members in by_environment.values()]
        if not all(tasks):
            missing = [name for name, members in zip(environments, tasks, strict=True) if not members]
            raise ValueError(
                f"`aggregate` must be over the same tasks for each curve, got no runs of {label} on "
                f"{', '.join(missing)}. Train them or leave these tasks out."
            )
        for members in tasks:
            _warn(members, _AXES[command.x][1], console)
        groups.append(plotting.make_group(label, [[run.curve for run in task] for task in tasks], generator))
    published: Sequence[tuple[str, plotting.Curve]] = ()
    random = limits = None
    if command.metric in _RETURNS:
        if command.x == "steps":  # published curves have no other axis
            published = _published(by_environment, command.published)
        randoms = [value for value in map(_random_return, by_environment.values()) if value is not None]
        random = float(np.mean(randoms)) if len(randoms) == len(environments) else None
        limits = None if others else _DM_CONTROL_RETURNS
    title = plotting.make_title(environments[0]) if len(environments) == 1 else f"{len(environments)} tasks"
    return plotting.Panel(title, groups, published, random, limits)


def _warn(group: Sequence[_Run], unit: str, console: Console) -> None:
    """Warns if the runs of a group differ in more than their seeds, or in length."""
    name = f"{group[0].label} on {group[0].description.base_task.env_name}"
    differing = sorted(
        key
        for key, value in group[0].settings.items()
        if any(run.settings.get(key) != value for run in group)
    )
    if differing:
        console.print(
            f"The runs of {name} differ in {', '.join(differing)}; "
            f"--group agent,{','.join(differing)} gives each its own curve."
        )
    seeds = [run.description.seed for run in group]
    if len(set(seeds)) < len(seeds):
        console.print(f"The runs of {name} have seeds {seeds}: runs with equal seeds are not independent.")
    shortest = min(group, key=lambda run: run.curve.x[-1])
    longest = max(run.curve.x[-1] for run in group)
    if shortest.curve.x[-1] < longest:
        console.print(
            f"The curve of {name} ends at {shortest.curve.x[-1]:,.0f} {unit} with "
            f"{shortest.directory}; others continue to {longest:,.0f}."
        )


def _published(
    by_environment: Mapping[str, Sequence[_Run]], wanted: Iterable[str] | None
) -> list[tuple[str, plotting.Curve]]:
    """Returns the published curves of an environment, or of several their interquartile means."""
    if wanted is None:
        runs = itertools.chain(*by_environment.values())
        wanted = report.compared_with(run.description.agent for run in runs)
    backdrop = []
    for name in wanted:
        if name == "none":
            continue
        found = [curve for task in by_environment for curve in plotting.published_curves(task, [name])]
        if len(found) == len(by_environment):
            common = plotting.at_common_steps([published.curve for published in found])
            seeds = min(published.num_seeds for published in found)
            curve = plotting.Curve(common.x, plotting.interquartile_mean(common.values.T))
            backdrop.append((f"{found[0].title}, published: mean of {seeds} seeds", curve))
    return backdrop


def _random_return(members: Sequence[_Run]) -> float | None:
    """Returns the mean return of random actions before training, as stored in the checkpoints."""
    found = (run_results.random_return(run.directory) for run in members)
    returns = [value for value in found if value is not None]
    return float(np.mean(returns)) if returns else None
