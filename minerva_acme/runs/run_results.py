"""Makes results from runs' folders: rows, and the settings and machines that produced them."""

import dataclasses
import logging
import pathlib
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from minerva_acme import results
from minerva_acme.runs import (
    checkpointing,
    env_kwargs,
    evaluation,
    options,
    policies,
    provenance,
    run_curves,
    run_folder,
    run_names,
    tasks,
)

_logger = logging.getLogger(__name__)

UNSEEN_SEED = 10_000
"""Added to a run's seed, this gives the seed of the initial states with which its last policy is scored."""

_LEAF = "evaluator/episode_return/"
_AT_EACH_EVALUATION = {"evaluator/episode_return": "avg_return", "evaluator/cpu_seconds": "cpu_seconds"}
_TOTALS = ("learner_steps", "wall_seconds")
OPTIONS = (
    "dataset",
    "from_run",
    "demonstrations",
    "demonstration_share",
    "final_demonstration_share",
    "metric",
    "stop_at",
    "replay",
    "environment_processes",
    "evaluation_period",
    "evaluation_episodes",
    "evaluation_environments",
)
"""The options that affect the result of a run, or the precision of its evaluations."""


_Run: TypeAlias = tuple[pathlib.Path, run_folder.RunDescription]


class _NoEvaluationError(ValueError):
    pass


def find_runs(directories: Sequence[pathlib.Path]) -> list[pathlib.Path]:
    """Returns the folders of runs among these folders and below them, each once.

    What lies below a run's folder, such as what `minerva publish` writes there, is no run.

    Raises:
        ValueError: One of the folders holds no run, or no folder was given.
    """
    if not directories:
        raise ValueError("At least one run must be given, got none. Give the folders of trained runs.")
    found: dict[pathlib.Path, pathlib.Path] = {}  # by resolved path, so that no run counts twice
    for directory in directories:
        below = sorted(path.parent for path in directory.rglob(run_folder.FILE))
        if not below:
            run_folder.read(directory)  # raises: there is no run
        folders = {*below}
        found |= {path.resolve(): path for path in below if folders.isdisjoint(path.parents)}
    return list(found.values())


def collect(
    directories: Iterable[pathlib.Path], *, name: str = "", num_episodes: int = 0, import_code: bool = False
) -> list[results.Experiment]:
    """Makes experiments from runs: rows of every evaluation with its CPU time, and of the whole cost.

    A run without an evaluation after its first step, which may have failed, is left out with a warning.

    A run's logs count the agent's decisions, rows count frames: the steps are multiplied by the action repeat
    in the environment's id. Rows of a run that makes no environment steps count learner steps.

    Args:
        directories: The runs' folders, such as `find_runs` returns.
        name: The name of the experiment; by default each run's is made of its agent, its preset and the
            differences from that. In both cases the action repeat is added, see `results.with_repeat`.
        num_episodes: The number of episodes to play with the last policy, from unseen initial states, for
            `final_return`; 0 plays none.
        import_code: Whether code that is not part of this library may be imported to play them.

    Raises:
        ValueError: No run has an evaluation, two runs have the same experiment, environment and seed, or
            runs with different settings would be one experiment although no `name` was given.
    """
    without: list[_NoEvaluationError] = []
    found: dict[str, results.Experiment] = {}
    places: dict[tuple[str, str, int], pathlib.Path] = {}
    firsts: dict[str, _Run] = {}  # of each experiment
    for directory in directories:
        try:
            description = run_folder.read(directory)
            made = _make_experiment(directory, description, name, num_episodes, import_code)
        except _NoEvaluationError as error:
            without.append(error)
            continue
        place = (made.exp_name, *made.trainings[0])
        if place in places:
            raise ValueError(
                f"{places[place]} and {directory} are both {made.exp_name} on {place[1]} with seed "
                f"{place[2]}. Leave one of them out, or give one another name: "
                f"minerva collect {shlex.quote(str(directory))} --name NAME"
            )
        places[place] = directory
        if made.exp_name not in firsts:
            firsts[made.exp_name] = directory, description
        elif not name:
            _check_same_settings(made.exp_name, firsts[made.exp_name], (directory, description))
        old = found.get(made.exp_name)
        found[made.exp_name] = made if old is None else results.merge(old, made)
    if without and not found:
        raise without[0]
    for reason in without:
        _logger.warning("%s Until then it is left out.", reason)
    return list(found.values())


def random_return(directory: pathlib.Path) -> float | None:
    """Returns the mean return of random actions before training, from the newest checkpoint, or None."""
    if not checkpointing.latest(directory / "checkpoints"):
        return None
    found = evaluation.Evaluations.of(checkpointing.load_state(checkpointing.find(directory))).random
    return found and found.mean


def _make_experiment(
    directory: pathlib.Path,
    description: run_folder.RunDescription,
    name: str,
    num_episodes: int,
    import_code: bool,
) -> results.Experiment:
    steps = description.steps_key
    logged = run_curves.list_metrics(directory)
    own = str(description.options.get("metric", options.RETURN))
    stored_as = (
        {f"evaluator/{own}": own}
        | _AT_EACH_EVALUATION
        | {
            metric: results.RETURN_OF + metric.removeprefix(_LEAF)
            for metric in logged
            if metric.startswith(_LEAF)
        }
    )
    values = {
        (stored, int(step)): value
        for metric, stored in stored_as.items()
        if metric in logged
        for step, value in zip(*run_curves.read_curve(directory, metric, steps), strict=True)
    }
    last = max((step for metric, step in values if metric == "avg_return"), default=0)
    if last == 0:
        raise _NoEvaluationError(
            f"{directory} has no evaluation after its first step yet. Wait for it, resume the run, or remove "
            "the folder."
        )
    env_name, repeat = description.base_task
    frames = repeat if repeat and description.plays else 1  # of a step
    name = results.with_repeat(name, repeat) if name else run_names.exp_name(description)
    for metric in _TOTALS:
        if f"evaluator/{metric}" in logged:
            values[metric, last] = run_curves.read_curve(directory, f"evaluator/{metric}", steps).values[-1]
    random = random_return(directory)
    if random is not None:
        values["random_return", 0] = random
    if num_episodes:
        found = policies.find(directory)
        result = evaluation.play(found, num_episodes, UNSEEN_SEED + description.seed, import_code)
        values["final_return", found.env_steps] = result.mean
        values["final_return_std", found.env_steps] = result.std
    training = env_name, description.seed
    sessions: list[Mapping[str, Any]] = [*provenance.read(directory)]
    contexts = [results.Context(frozenset({training}), **session) for session in sessions]
    updates = values.get(("learner_steps", last)) if description.plays else None
    return results.Experiment(
        exp_name=name,
        rows=tuple(
            results.Row(name, *training, metric, step * frames, float(value))
            for (metric, step), value in values.items()
        ),
        commands={env_name: _command(description)},
        contexts=tuple(contexts) or (results.Context(frozenset({training}), None, None, {}, None),),
        updates_per_frame=None if updates is None else float(f"{updates / (last * frames):.3g}"),
        action_repeat=repeat,
        counts="frames" if description.plays else "learner steps",
    )


def _check_same_settings(exp_name: str, *runs: _Run) -> None:
    """Checks that two runs may be one experiment.

    Raises:
        ValueError: They have different settings.
    """
    (first, one), (second, other) = ((directory, _settings(description)) for directory, description in runs)
    for key in sorted(one.keys() & other.keys()):
        if one[key] != other[key]:
            raise ValueError(
                f"The runs of {exp_name} must have the same settings, got `{key}` {one[key]!r} in {first} "
                f"and {other[key]!r} in {second}. Collect them apart, each with a name: "
                f"minerva collect {shlex.quote(str(second))} --name NAME"
            )


def _settings(description: run_folder.RunDescription) -> Mapping[str, Any]:
    """Returns the settings that make a run another experiment."""
    return {
        "agent": description.agent,
        **description.hyperparameters,
        **description.data(),
        "metric": description.options.get("metric", options.RETURN),
        "stop_at": description.options.get("stop_at"),
    }


def _command(description: run_folder.RunDescription) -> str:
    if reason := next(iter(description.unknown.values()), ""):
        return f"Only from Python: {reason}"
    preset, changes = run_names.preset_of(description)
    words = ["minerva", "train", description.agent, "--env", description.environment]
    if description.environment_settings:
        words += ["--env-kwargs", *env_kwargs.write(description.environment_settings)]
    words += [] if preset is None else ["--preset", preset]
    made_with = {name: description.options[name] for name in OPTIONS if name in description.options}
    defaults = {field.name: field.default for field in dataclasses.fields(options.RunOptions)}
    changes = changes | {name: value for name, value in made_with.items() if value != defaults[name]}
    words += tasks.make_flags(changes)
    if "num_env_steps" in description.options:
        words += tasks.make_flags({description.steps_option: description.options[description.steps_option]})
    return f"{shlex.join(words)} --seed {{seed}}"
