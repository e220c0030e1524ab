"""Figures of the learning curves of runs, read from their folders."""

import itertools
import logging
import os
import pathlib
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from minerva_acme.agents import registry
from minerva_acme.plotting import curves, panels, statistics
from minerva_acme.runs import run_curves, run_folder, run_results

if TYPE_CHECKING:
    from minerva_acme.plotting import figure

_logger = logging.getLogger(__name__)

_RETURNS = {"evaluator/episode_return": "Evaluation return", "actor/episode_return": "Training return"}
_DM_CONTROL_RETURNS = (0.0, 1000.0)
# The column of the logs, its unit, and the label of the axis.
_AXES = {
    "steps": (run_curves.STEPS, "frames", panels.FRAMES),
    "updates": ("learner_steps", "learner steps", "Learner steps"),
    "wall": ("wall_seconds", "seconds", "Wall time (s)"),
}
Axis = Literal["steps", "updates", "wall"]


class _Run(NamedTuple):
    directory: pathlib.Path
    description: run_folder.RunDescription
    settings: Mapping[str, Any]  # hyperparameters and the action repeat
    label: str
    curve: run_curves.Curve


class RunPanels(NamedTuple):
    """The content of a figure of runs."""

    panels: list[panels.Panel]
    y_label: str
    x_label: str


def draw_runs(
    directories: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    metric: str = "evaluator/episode_return",
    x: Axis = "steps",
    group: str = "agent",
    published: Sequence[str] | None = None,
    aggregate: bool = False,
) -> "figure.NotebookFigure":
    """Draws the learning curves of runs, as `minerva plot` does: a panel for each environment.

    Each curve is the interquartile mean over seeds, with an interval.

    Args:
        directories: Folders of runs, or folders that contain them; one or several.
        metric: The metric, `<csv file>/<column>`.
        x: The horizontal axis: "steps" for frames, which are the environment's own steps, "updates" for
            learner steps or "wall" for seconds. Runs that make no environment steps have learner steps.
        group: What the runs of one curve have in common: agent, repeat, hyperparameters or several of these,
            separated by commas.
        published: Published curves to draw in the background, by frames; () for none, and None for those that
            the agents are usually compared with.
        aggregate: Whether to aggregate all dm_control tasks in one panel, over seeds and tasks.

    Raises:
        ValueError: There are no such runs, they have no such metric, or they cannot be drawn as requested.
        ModuleNotFoundError: matplotlib is not installed.
    """
    from minerva_acme.plotting import figure

    if isinstance(directories, str | os.PathLike):
        directories = [directories]
    content = read_runs(
        [pathlib.Path(directory) for directory in directories],
        metric=metric,
        x=x,
        group=group,
        published=published,
        aggregate=aggregate,
    )
    return figure.draw(content.panels, y_label=content.y_label, x_label=content.x_label)


def read_runs(
    directories: Sequence[pathlib.Path],
    *,
    metric: str,
    x: Axis,
    group: str,
    published: Sequence[str] | None,
    aggregate: bool,
    ranges: Mapping[str, tuple[float, float]] = types.MappingProxyType({}),
    note: Callable[[str], object] = _logger.warning,
) -> RunPanels:
    """Reads what `draw_runs` draws.

    Args:
        directories: Folders of runs, or folders that contain them.
        metric: As for `draw_runs`, like all that follow.
        x: The horizontal axis.
        group: What the runs of one curve have in common.
        published: Published curves.
        aggregate: Whether to aggregate tasks.
        ranges: The limits of the vertical axes of environments, with "" for all that are not named.
        note: Called with each remark: a run or curve that is left out, a curve that ends before some of its
            runs, or runs of a group that differ in more than their seeds.

    Raises:
        ValueError: As for `draw_runs`.
    """
    if x not in _AXES:
        raise ValueError(f"`x` must be among {', '.join(_AXES)}, got {x!r}.")
    if x == "steps":
        x = _steps_of(run_results.find_runs(directories))
    found = sorted(
        _read(directories, metric, x, group, note), key=lambda run: run.description.base_task.env_name
    )
    if not found:
        raise ValueError(f"None of the runs has values of '{metric}' yet. Wait for one, or train for longer.")
    by_environment: dict[str, list[_Run]] = {}
    for one in found:
        by_environment.setdefault(one.description.base_task.env_name, []).append(one)
    if aggregate and metric not in _RETURNS:
        raise ValueError(f"`metric` must be a return to be aggregated over tasks, got '{metric}'.")
    each = [{name: members} for name, members in by_environment.items()]
    parts = [by_environment] if aggregate else each
    generator = np.random.default_rng(0)  # of the bootstrap
    made = [_make_panel(part, metric, x, published, generator, note) for part in parts]
    if unknown := sorted({*ranges} - {*by_environment, ""}):
        raise ValueError(f"`range` must be of {', '.join(by_environment)}, got {', '.join(unknown)}.")
    if empty := [f"{low:g}:{high:g}" for low, high in ranges.values() if not low < high]:
        raise ValueError(f"`range` must increase, got {', '.join(empty)}.")
    if ranges:
        limits = [None if aggregate else ranges.get(next(iter(part)), ranges.get("")) for part in parts]
        made = [
            panel if found is None else panel._replace(limits=found)
            for panel, found in zip(made, limits, strict=True)
        ]
    made = [panel for panel in made if panel.groups]
    if not made:
        raise ValueError(
            "The runs of at least one curve must have steps in common, got none. Train the short ones for "
            "longer, or plot them apart."
        )
    y_label = _RETURNS.get(metric, metric.partition("/")[2].replace("_", " "))
    return RunPanels(made, y_label, _AXES[x][2])


def _steps_of(directories: Sequence[pathlib.Path]) -> Axis:
    """Returns the axis of the steps of runs: learner steps if they make no environment steps.

    Raises:
        ValueError: Some of them do, and some do not.
    """
    played = [path for path in directories if run_curves.list_metrics(path)]
    offline = {path for path in played if not run_folder.read(path).plays}
    if not offline:
        return "steps"
    if others := [path for path in played if path not in offline]:
        raise ValueError(
            f"`x` must be updates or wall for runs of which some make no environment steps, got steps for "
            f"{min(offline)} and {others[0]}. Add --x updates, or plot them apart."
        )
    return "updates"


def _read(
    directories: Sequence[pathlib.Path], metric: str, x: Axis, group: str, note: Callable[[str], object]
) -> Iterator[_Run]:
    for directory in run_results.find_runs(directories):
        description = run_folder.read(directory)
        repeat = description.base_task.action_repeat
        settings = {
            **description.data(),
            **description.hyperparameters,
            "repeat": "unknown" if repeat is None else repeat,
        }
        curve = run_curves.read_curve(directory, metric, _AXES[x][0])
        if x == "steps":  # logs count decisions
            curve = curve._replace(x=curve.x * (repeat or 1))
        if len(curve.x):
            label = _label(description, settings, group.split(","))
            yield _Run(directory, description, settings, label, curve)
        else:
            note(f"Left out {directory}: it has no values of '{metric}' yet.")


def _label(description: run_folder.RunDescription, settings: Mapping[str, Any], group: Sequence[str]) -> str:
    values: dict[str, Any] = {**settings, "agent": description.agent}
    for key in group:
        if key not in values:
            raise ValueError(
                f"`group` must be agent, repeat, {', '.join(description.data())} or a hyperparameter of "
                f"every run, got '{key}'. {description.agent} has "
                f"{', '.join(sorted(description.hyperparameters))}."
            )
    return ", ".join(
        description.title
        if key == "agent"
        else f"{key.replace('_', ' ')} {str(values[key]).replace('_', '-')}"
        for key in group
    )


def _make_panel(
    by_environment: Mapping[str, Sequence[_Run]],
    metric: str,
    x: Axis,
    published: Sequence[str] | None,
    generator: np.random.Generator,
    note: Callable[[str], object],
) -> panels.Panel:
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
            _warn(members, note)
        name = f"{label} on {environments[0] if len(environments) == 1 else f'{len(environments)} tasks'}"
        runs = {_where(run, environments): run.curve for task in tasks for run in task}
        if end := panels.describe_end(name, runs, _AXES[x][1]):
            note(end)
        if curves.have_common_steps([*runs.values()]):
            made = [[run.curve for run in task] for task in tasks]
            groups.append(panels.make_group(label, made, generator))
    behind: Sequence[tuple[str, run_curves.Curve]] = ()
    random = limits = None
    if metric in _RETURNS:
        if x == "steps":  # published curves have no other axis
            behind = _published(by_environment, published)
        randoms = [value for value in map(_random_return, by_environment.values()) if value is not None]
        random = float(np.mean(randoms)) if len(randoms) == len(environments) else None
        limits = None if others else _DM_CONTROL_RETURNS
    title = panels.make_title(environments[0]) if len(environments) == 1 else f"{len(environments)} tasks"
    return panels.Panel(title, groups, behind, random, limits)


def _where(run: _Run, environments: Sequence[str]) -> str:
    """Returns a run's folder, with its environment if there are several."""
    name = run.description.base_task.env_name
    return f"{name}, {run.directory}" if len(environments) > 1 else str(run.directory)


def _warn(group: Sequence[_Run], note: Callable[[str], object]) -> None:
    """Notes if the runs of a group differ in more than their seeds."""
    name = f"{group[0].label} on {group[0].description.base_task.env_name}"
    differing = sorted(
        key
        for key, value in group[0].settings.items()
        if any(run.settings.get(key) != value for run in group)
    )
    if differing:
        note(
            f"The runs of {name} differ in {', '.join(differing)}; "
            f"--group agent,{','.join(differing)} gives each its own curve."
        )
    seeds = [run.description.seed for run in group]
    if len(set(seeds)) < len(seeds):
        note(f"The runs of {name} have seeds {seeds}: runs with equal seeds are not independent.")


def _published(
    by_environment: Mapping[str, Sequence[_Run]], wanted: Iterable[str] | None
) -> list[tuple[str, run_curves.Curve]]:
    """Returns the published curves of an environment, or of several their interquartile means."""
    if wanted is None:
        runs = itertools.chain(*by_environment.values())
        wanted = compared_with(run.description.agent for run in runs)
    backdrop = []
    for name in wanted:
        if name == "none":
            continue
        found = [curve for task in by_environment for curve in curves.published_curves(task, [name])]
        if len(found) == len(by_environment):
            common = curves.at_common_steps([published.curve for published in found])
            seeds = min(published.num_seeds for published in found)
            curve = run_curves.Curve(common.x, statistics.interquartile_mean(common.values.T))
            backdrop.append((f"{found[0].title}, published: mean of {seeds} seeds", curve))
    return backdrop


def _random_return(members: Sequence[_Run]) -> float | None:
    """Returns the mean return of random actions before training, as stored in the checkpoints."""
    found = (run_results.random_return(run.directory) for run in members)
    returns = [value for value in found if value is not None]
    return float(np.mean(returns)) if returns else None


def compared_with(agents: Iterable[str]) -> list[str]:
    """Returns the published results that agents are usually compared with."""
    known = (registry.AGENTS[agent].compared_with for agent in agents if agent in registry.AGENTS)
    return list(dict.fromkeys(name for names in known for name in names))
