"""`minerva demo`: a first training run, made like any other, and its results."""

import itertools
import math
import os
import pathlib
import shlex
from collections.abc import Sequence
from typing import Any

import numpy as np

from minerva_acme import experiments, plotting, results
from minerva_acme.cli import choices, commands, parsing, training, video
from minerva_acme.cli.output import Console
from minerva_acme.environments import task_settings
from minerva_acme.experiments import stopping
from minerva_acme.plotting import report
from minerva_acme.runs import checkpointing, run_folder, run_results
from minerva_acme.video import recording

TRAINING = (
    *("train", "mpo", "--env", "dm_control/cartpole/swingup/repeat=4", "--preset", "demo"),
    *("--num-env-steps", "60000", "--evaluation-period", "1000"),
    *("--evaluation-episodes", "10", "--evaluation-environments", "10"),
    # All are kept for the video, which shows several. None is saved in the middle of an episode.
    *("--checkpoint-period", "2500", "--checkpoint-keep", "24"),
)
"""The training command. Its hyperparameters are those of the preset, in `agents/mpo/config.py`."""

EXPERIMENT = "mpo_demo+repeat=4"
"""The stored results of runs of this command. The demo shows them by its environment steps: decisions."""

_THIS, _KNOWN = "This run", "Known runs"
_LIMITS = (0.0, 1000.0)
# A whole episode in real time, at 25 frames per second, takes a few seconds to draw at this size.
_FILM_HEIGHT, _FILM_WIDTH = 240, 320  # pixels


def run(
    command: commands.Demo, words: Sequence[str] = TRAINING, known: results.Experiment | None = None
) -> int:
    """Trains, or continues an interrupted run, and shows the results; returns the exit status.

    Args:
        command: The parsed command.
        words: The training command.
        known: Results of earlier runs to compare with; by default those stored in the library.

    Raises:
        ValueError: The requested training is not possible.
    """
    # Before MuJoCo is imported.
    recording.choose_renderer()
    console = Console()
    words = [*words, "--seed", str(command.seed)]
    words += ["--stop-at", str(command.goal), "--stop-after-minutes", str(command.minutes)]
    asked = parsing.parse(words)
    directory = _find_folder(command.directory, asked, console)
    asked = parsing.parse([*words, "--directory", str(directory)])
    console.print(f"The same as: minerva {shlex.join([*words, '--directory', str(directory)])}")
    result = training.start(asked)
    if result.interrupted_by:
        console.print("To also get the curve and the video, run the same demo command again instead.")
        return 0
    with training.saved(directory):
        known = results.load().get(EXPERIMENT) if known is None else known
        behind = _known_curves(known, asked.env)
        curve = plotting.read_curve(directory, "evaluator/episode_return")
        _show_curve(directory, asked, curve, behind, console)
        _film(directory, asked.env, console)
        best = -math.inf if result.best is None else result.best[1].mean
        if best >= command.goal:
            console.print(f"The goal, an evaluation return of {command.goal:g}, is reached: {best:.1f}.")
        else:
            console.print(_what_is_left(result, asked.run, _speed(directory), behind))
    return 0


def _find_folder(first: pathlib.Path, asked: Any, console: Console) -> pathlib.Path:
    """Returns the first of the folders NAME, NAME-2, ... that is empty or has a run to continue."""
    description = training.describe(asked)
    for number in itertools.count(1):
        directory = first if number == 1 else first.with_name(f"{first.name}-{number}")
        if not directory.exists() or not any(directory.iterdir()):
            break
        try:
            description.check_same_as(run_folder.read(directory), directory)
        except ValueError:
            console.print(f"{directory} holds something other than this demo; it is left unchanged.")
            continue
        checkpoint = checkpointing.find_to_resume(directory)
        if checkpoint is None or not stopping.is_complete(checkpoint, description.options):
            break
        has_reached = stopping.reached(checkpoint, asked.run.stop_at) is not None
        what = "reached its goal" if has_reached else "made all its steps"
        console.print(f"{directory} holds a demo that {what}; it is left unchanged.")
    return directory


def _known_curves(known: results.Experiment | None, env_name: str) -> list[plotting.Curve]:
    """Returns the curves of known runs by decisions; those that ended early keep their last value.

    Stored results count frames; a running training, its logs and its flags count decisions.
    """
    if known is None:
        return []
    task, repeat = task_settings.split_repeat(env_name)
    found = [
        curve._replace(x=curve.x / (repeat or 1)) for curve in report.read_runs(known).get(task, {}).values()
    ]
    last = max((curve.x[-1] for curve in found), default=0.0)
    return [
        plotting.Curve(np.append(curve.x, last), np.append(curve.values, curve.values[-1]))
        if curve.x[-1] < last
        else curve
        for curve in found
    ]


def _show_curve(
    directory: pathlib.Path,
    asked: Any,
    curve: plotting.Curve,
    behind: Sequence[plotting.Curve],
    console: Console,
) -> None:
    """Draws the curve in the terminal and to files, in front of the known ones."""
    from minerva_acme.plotting import terminal

    shown, generator = {"this run": curve}, np.random.default_rng(0)
    groups = [plotting.make_group(_THIS, [[curve]], generator)]
    if behind:
        groups.insert(0, plotting.make_group(_KNOWN, [behind], generator))
        shown[f"interquartile mean of {len(behind)} known runs"] = groups[0].mean
    values = np.concatenate([run.values for group in groups for run in group.runs])
    limits = _LIMITS
    if values.min() < _LIMITS[0] or values.max() > _LIMITS[1]:  # not a task of dm_control
        limits = float(values.min()) - 1.0, float(values.max()) + 1.0
    goal = asked.run.stop_at
    repeat = task_settings.split_repeat(asked.env).action_repeat or 1
    unit = "environment steps" if repeat == 1 else f"decisions, each of {repeat} frames"
    text = terminal.draw_curves(
        shown,
        title=f"Evaluation return and the goal, {goal:g}, against {unit}",
        limits=limits,
        line_at=goal if limits[0] <= goal <= limits[1] else None,
        width=min(80, console.width),
    )
    console.print(text)
    try:
        with choices.needed("demo", "plot"):
            from minerva_acme.plotting import figure
        random = run_results.random_return(directory)
        panel = plotting.Panel(plotting.make_title(asked.env), groups, random=random, limits=limits)
        drawn = figure.draw(
            [panel], y_label="Evaluation return", x_label=unit.capitalize(), labels=[_THIS, _KNOWN]
        )
        files = figure.save(drawn, directory / "curve")
        console.print(f"Figure of the curve: {', '.join(map(str, files))}")
    except ValueError as error:
        console.print(f"No figure of the curve: {error}")


def _film(directory: pathlib.Path, env_name: str, console: Console) -> None:
    """Records a video of early training, its middle and the best, or prints why that is not possible."""
    has_sizes = env_name.startswith("dm_control/")  # other environments choose their own size
    film = commands.Video(
        directory=directory,
        checkpoint=("first", "middle", "best"),
        episodes=1,
        output=directory / "videos" / "demo.mp4",
        height=_FILM_HEIGHT if has_sizes else None,
        width=_FILM_WIDTH if has_sizes else None,
    )
    try:
        video.run(film)
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        console.print(f"No video: {' '.join(str(error).split())}")


def _speed(directory: pathlib.Path) -> float:
    """Returns environment steps per second, including evaluations, over the last half of the run.

    Steps before the first learner step, which are much faster, are left out if possible. Returns nan if the
    speed is unknown.
    """
    steps, seconds = plotting.read_curve(directory, "evaluator/wall_seconds")
    if len(steps) < 2:
        return math.nan
    learned_at = math.inf
    if "evaluator/learner_steps" in plotting.list_metrics(directory):  # logged from the first step on
        updates = plotting.read_curve(directory, "evaluator/learner_steps")
        learned_at = min(updates.x[updates.values > 0], default=math.inf)
    num_before = np.count_nonzero(steps < learned_at)
    first = max((len(steps) - 1) // 2, min(num_before - 1, len(steps) - 2))
    spent = seconds[-1] - seconds[first]
    return float((steps[-1] - steps[first]) / spent) if spent > 0 else math.nan


def _what_is_left(
    result: experiments.ExperimentResult,
    options: experiments.RunOptions,
    speed: float,
    behind: Sequence[plotting.Curve],
) -> str:
    """Returns how far a run got that has not reached its goal, and how long the rest would take."""
    made, goal, minutes = result.env_steps, options.stop_at, options.stop_after_minutes
    assert goal is not None and minutes is not None
    best = -math.inf if result.best is None else result.best[1].mean
    sentences = [
        f"The best evaluation return is {best:.1f} after {made:,} steps; the goal of {goal:g} is not reached."
    ]
    wanted = options.num_env_steps
    if behind:
        there = sorted(float(np.interp(made, *curve)) for curve in behind)
        sentences.append(
            f"After this many steps, the returns of {len(behind)} known runs were {there[0]:.1f} to "
            f"{there[-1]:.1f}, with a median of {np.median(there):.1f}."
        )
        reached = [
            float(curve.x[curve.values >= goal][0]) for curve in behind if (curve.values >= goal).any()
        ]
        if reached:
            sentences.append(
                f"{len(reached)} of them reached the goal, after {min(reached):,.0f} to {max(reached):,.0f} "
                "steps."
            )
            wanted = round(max(reached)) if max(reached) > made else wanted
    resume = f"minerva resume {shlex.quote(os.fspath(result.directory))}"
    if made >= options.num_env_steps:
        sentences.append(f"All steps are made. To train for longer: {resume} --num-env-steps {2 * made}")
        return " ".join(sentences)
    left = (wanted - made) / speed / 60.0 if speed > 0 else math.nan
    if math.isfinite(left):
        sentences.append(
            f"At this machine's speed of {speed:.0f} steps per second, the remaining {wanted - made:,} steps "
            f"to {wanted:,} take about {max(1, math.ceil(left))} minutes: "
            f"{resume} --stop-after-minutes {max(minutes, 1 + math.ceil(left)):g}"
        )
    else:
        sentences.append(f"To continue: {resume}")
    return " ".join(sentences)
