"""`minerva plot`."""

import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from rich import console as rich_console

from minerva_acme import plotting
from minerva_acme.cli import runs
from minerva_acme.experiments import checkpointing

_RETURNS = ("evaluator/episode_return", "actor/episode_return")
_AGENT_NAMES = {"mpo": "MPO", "ppo": "PPO", "vmpo": "V-MPO"}
_PUBLISHED_NAMES = {
    "d4pg": "D4PG",
    "ddpg": "DDPG",
    "dmpo": "DMPO",
    "mpo": "MPO",
    "ppo_acme_fixhp": "PPO",
    "sac_1024": "SAC",
}
# What an agent is compared with unless the user says.
_BACKDROP = {"mpo": ("mpo", "dmpo"), "ppo": ("ppo_acme_fixhp",), "vmpo": ("mpo", "ppo_acme_fixhp")}
_DM_CONTROL_RETURNS = (0.0, 1000.0)


class _Run(NamedTuple):
    directory: pathlib.Path
    description: runs.RunDescription
    label: str
    curve: plotting.Curve


def run(
    directories: Sequence[pathlib.Path],
    *,
    out: pathlib.Path = pathlib.Path("curve"),
    metric: str = _RETURNS[0],
    group: str = "agent",
    published: Sequence[str] | None = None,
    aggregate: bool = False,
    seed: int = 0,
) -> int:
    """Draws the learning curves of runs; returns the exit status.

    Args:
        directories: runs' folders, or folders that hold such.
        out: the picture; without a suffix both PNG and SVG are written.
        metric: `<csv file>/<column>`.
        group: what runs of one curve have in common besides their environment: "agent", or
            hyperparameters too, such as "agent,critic_target".
        published: algorithms drawn as a backdrop where there are numbers of theirs ("none": none);
            None: those nearest to the runs' agents.
        aggregate: whether all tasks go into one panel, as the interquartile mean over seeds and tasks; for
            dm_control's, whose returns share a scale, from 0 to 1000.
        seed: of the bootstrap.
    """
    try:
        from minerva_acme.plotting import figure
    except ModuleNotFoundError as error:
        raise ValueError(
            f"`minerva plot` needs '{error.name}', which is not installed: pip install 'minerva-acme[plot]'"
        ) from error
    console = rich_console.Console(stderr=True, highlight=False, soft_wrap=True)
    found = list(_read(directories, metric, group.split(","), console))
    if not found:
        raise ValueError(f"None of the runs has a number of '{metric}' yet. Wait for the first, or train on.")
    generator = np.random.default_rng(seed)
    by_environment: dict[str, list[_Run]] = {}
    for item in sorted(found, key=lambda item: item.description.environment):
        by_environment.setdefault(item.description.environment, []).append(item)
    if aggregate and metric not in _RETURNS:
        raise ValueError(f"`metric` must be a return to be aggregated over tasks, got '{metric}'.")
    parts = [by_environment] if aggregate else [{name: members} for name, members in by_environment.items()]
    panels = [_make_panel(part, metric, published, generator, console) for part in parts]
    files = figure.save(figure.draw(panels, y_label=_y_label(metric)), out)
    console.print(
        f"Wrote {', '.join(map(str, files))}. For the caption: {_y_label(metric)}; lines: interquartile mean "
        f"over seeds{' and tasks' if aggregate else ''} (below four runs their mean), shaded: 95% stratified "
        "percentile bootstrap interval, 2000 resamples; thin lines: single runs."
    )
    return 0


def _read(
    directories: Sequence[pathlib.Path],
    metric: str,
    group: Sequence[str],
    console: rich_console.Console,
) -> Iterator[_Run]:
    for directory in _find(directories):
        description = runs.read(directory)
        curve = plotting.read_curve(directory, metric)
        if len(curve.env_steps):
            yield _Run(directory, description, _label(description, group), curve)
        else:
            console.print(f"Left out {directory}: it has no number of '{metric}' yet.")


def _find(directories: Sequence[pathlib.Path]) -> list[pathlib.Path]:
    if not directories:
        raise ValueError("At least one run must be given, got none. Give the folders that trainings wrote.")
    found: dict[pathlib.Path, pathlib.Path] = {}  # by where they really are: none counts twice
    for directory in directories:
        below = [directory] if (directory / "run.json").exists() else []
        below = below or sorted(path.parent for path in directory.rglob("run.json"))
        if not below:
            runs.read(directory)  # says that there is none
        found |= {path.resolve(): path for path in below}
    return list(found.values())


def _label(description: runs.RunDescription, group: Sequence[str]) -> str:
    values: dict[str, Any] = {**description.hyperparameters, "agent": description.agent}
    parts = []
    for key in group:
        if key not in values:
            raise ValueError(
                f"`group` must be agent or a hyperparameter of every run, got '{key}'. "
                f"{description.agent} has {', '.join(sorted(description.hyperparameters))}."
            )
        value = values[key]
        if key == "agent":
            parts.append(_AGENT_NAMES.get(value, value))
        else:
            parts.append(f"{key.replace('_', ' ')} {str(value).replace('_', '-')}")
    return ", ".join(parts)


def _make_panel(
    by_environment: Mapping[str, Sequence[_Run]],
    metric: str,
    published: Sequence[str] | None,
    generator: np.random.Generator,
    console: rich_console.Console,
) -> plotting.Panel:
    """Makes the panel of one environment, or of several together."""
    environments = list(by_environment)
    if len(environments) > 1:
        _check_one_scale(environments)
    labels = dict.fromkeys(run.label for members in by_environment.values() for run in members)
    groups = []
    for label in labels:
        tasks = [[run for run in members if run.label == label] for members in by_environment.values()]
        if not all(tasks):
            missing = [name for name, members in zip(environments, tasks, strict=True) if not members]
            raise ValueError(
                f"`aggregate` must be over the same tasks for each curve, got no runs of {label} on "
                f"{', '.join(missing)}. Train them or leave these tasks out."
            )
        for members in tasks:
            _warn(members, console)
        groups.append(plotting.make_group(label, [[run.curve for run in task] for task in tasks], generator))
    backdrop, random = [], None
    if metric in _RETURNS:
        backdrop = _published(by_environment, published)
        randoms = [_random_return(members) for members in by_environment.values()]
        if None not in randoms:
            random = float(np.mean([value for value in randoms if value is not None]))
    return plotting.Panel(
        title=_title(environments[0]) if len(environments) == 1 else f"{len(environments)} tasks",
        groups=groups,
        published=backdrop,
        random=random,
        limits=_limits(environments[0], metric),
    )


def _check_one_scale(environments: Sequence[str]) -> None:
    others = [name for name in environments if not name.startswith("dm_control/")]
    if others:
        raise ValueError(
            "`aggregate` must be over tasks of dm_control, whose returns go from 0 to 1000, got "
            f"{', '.join(others)}. Without it each has a panel of its own."
        )


def _warn(group: Sequence[_Run], console: rich_console.Console) -> None:
    """Says what makes a group something else than seeds of one training."""
    name = f"{group[0].label} on {group[0].description.environment}"
    differing = sorted(
        key
        for key, value in group[0].description.hyperparameters.items()
        if any(run.description.hyperparameters.get(key) != value for run in group)
    )
    if differing:
        console.print(
            f"The runs of {name} differ in {', '.join(differing)}; "
            f"--group agent,{','.join(differing)} draws them apart."
        )
    seeds = [run.description.seed for run in group]
    if len(set(seeds)) < len(seeds):
        console.print(f"The runs of {name} have seeds {seeds}: equal ones are not independent.")
    shortest = min(group, key=lambda run: run.curve.env_steps[-1])
    longest = max(run.curve.env_steps[-1] for run in group)
    if shortest.curve.env_steps[-1] < longest:
        console.print(
            f"The curve of {name} ends at {shortest.curve.env_steps[-1]:,.0f} steps with "
            f"{shortest.directory}; others go on to {longest:,.0f}."
        )


def _published(
    by_environment: Mapping[str, Sequence[_Run]], wanted: Sequence[str] | None
) -> list[tuple[str, plotting.Curve]]:
    """Returns what was published of the environment, or the means of what was of all of several."""
    if wanted is None:
        agents = dict.fromkeys(run.description.agent for runs in by_environment.values() for run in runs)
        wanted = list(dict.fromkeys(name for agent in agents for name in _BACKDROP.get(agent, ())))
    backdrop = []
    for name in wanted:
        if name == "none":
            continue
        found = [curve for task in by_environment for curve in plotting.published_curves(task, [name])]
        if len(found) == len(by_environment):
            common = plotting.at_common_steps([published.curve for published in found])
            seeds = min(published.num_seeds for published in found)
            curve = plotting.Curve(common.env_steps, common.values.mean(axis=0))
            backdrop.append((f"{_PUBLISHED_NAMES[name]}, published: mean of {seeds} seeds", curve))
    return backdrop


def _random_return(members: Sequence[_Run]) -> float | None:
    """What random actions reached before training; the checkpoints know."""
    means = []
    for run in members:
        newest = checkpointing.latest(run.directory / "checkpoints")
        state = checkpointing.load_state(newest).get("random") if newest else None
        if state:
            means.append(np.mean(state[0]))
    return float(np.mean(means)) if means else None


def _limits(environment: str, metric: str) -> tuple[float, float] | None:
    return _DM_CONTROL_RETURNS if environment.startswith("dm_control/") and metric in _RETURNS else None


def _title(environment: str) -> str:
    name = environment.removeprefix("gymnasium/")
    if not name.startswith("dm_control/"):
        return name
    return " ".join(part.replace("_", " ") for part in name.split("/")[1:]).capitalize()


def _y_label(metric: str) -> str:
    names = {"evaluator/episode_return": "Evaluation return", "actor/episode_return": "Training return"}
    return names.get(metric, metric.partition("/")[2].replace("_", " "))
