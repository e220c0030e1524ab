"""`minerva train` and `minerva resume`."""

import contextlib
import dataclasses
import math
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Column, Table

from minerva_acme import distributed, experiments, video
from minerva_acme.agents import registry
from minerva_acme.cli import commands, dry_run
from minerva_acme.cli.output import Console
from minerva_acme.environments import task_settings
from minerva_acme.experiments import stopping
from minerva_acme.runs import checkpointing, env_kwargs, run_folder, run_lock, run_logs, run_names
from minerva_acme.runs import options as run_options


def train(command: commands.Train) -> int:
    """Trains or resumes, and shows the results; returns the exit status."""
    if command.dry_run:
        dry_run.run(_plan(command))
    else:
        start(command)
    return 0


def start(command: commands.Train) -> experiments.ExperimentResult:
    """Trains or resumes, shows the results, and returns them."""
    return _run(_plan(command))


def _plan(command: commands.Train) -> dry_run.Plan:
    description = describe(command)
    presets = registry.find(command.agent).presets
    directory = command.directory or run_names.default_directory(description, presets)
    if (directory / run_folder.FILE).exists():  # before anything is said of its steps
        description.check_same_as(run_folder.read(directory), directory)
    checkpoint = checkpointing.find_to_resume(directory)
    flag = "--num-env-steps" if command.run.num_env_steps else "--num-learner-steps"
    why = (
        f" by default ({command.steps_by_default}; {flag} sets another number)"
        if command.steps_by_default
        else ""
    )
    return dry_run.Plan(description, directory, checkpoint, why=why, processes=_processes(command))


def _processes(command: commands.Train) -> dict[str, Any] | None:
    """Returns the extra arguments of a distributed run, or None if the run is not distributed.

    Raises:
        ValueError: A flag is missing, or given without `--distributed`.
    """
    names = ("num_actors", "num_learners", "address")
    given = {name: getattr(command, name) for name in names}
    if command.distributed is None:
        if left_over := [name for name, value in given.items() if value is not None]:
            raise ValueError(f"`{left_over[0]}` is only for distributed runs. Add --distributed ray.")
        return None
    if command.num_actors is None:
        raise ValueError("`num_actors` must be given for a distributed run: --num-actors 2")
    if command.num_learners is None:
        del given["num_learners"]
    return {"engine": command.distributed, **given}


def describe(command: commands.Train) -> run_folder.RunDescription:
    """Describes the run that a command asks for.

    Raises:
        ValueError: The run learns from recorded episodes, and none are given.
    """
    run = command.run
    # An own builder may have a dataset of its own.
    is_ours = ":" not in command.agent and not registry.find(command.agent).source
    lacks_data = run.lacks_data(command.hyperparameters)
    if lacks_data or (is_ours and not run.num_env_steps and run.dataset is None):
        why = (
            f"{command.agent} with these settings learns from recorded episodes, not from its own play"
            if lacks_data
            else "A run that makes no environment steps learns from recorded episodes"
        )
        raise ValueError(
            f"{why}, but `dataset` is not set. For example: --dataset data/NAME --num-learner-steps 20000. "
            "To record episodes: minerva train AGENT --env ENV --record data/NAME"
        )
    options = dataclasses.replace(
        command.run, tensorboard="tensorboard" in command.log, wandb="wandb" in command.log
    )
    kind = type(command.hyperparameters)
    return run_folder.RunDescription(
        agent=command.agent,
        environment=command.env,
        environment_settings=env_kwargs.read(command.env_kwargs),
        seed=options.seed,
        hyperparameters=dataclasses.asdict(command.hyperparameters),
        options=dataclasses.asdict(options),
        config=f"{kind.__module__}:{kind.__qualname__}" if ":" in command.agent else "",
    )


def resume(command: commands.Resume) -> int:
    """Resumes a run from its folder alone; returns the exit status.

    Raises:
        ValueError: There is no run, it has made all its steps, it has logged steps without any checkpoint, or
            it needs Python to be resumed.
    """
    directory = command.directory
    description = run_folder.read(directory)
    for name in run_folder.MADE_IN_PYTHON:
        if reason := description.unknown.get(name):
            raise ValueError(f"{directory} can be resumed only from Python: {reason}")
    planned = description.options.get(description.steps_option) or 0
    values = {"evaluation_video": False, **description.options, "seed": description.seed}
    values.pop("max_unpacked_gigabytes", None)  # which the file cannot allow itself
    known = {field.name for field in dataclasses.fields(experiments.RunOptions)}
    for name, value in vars(command).items():
        if name in known and value is not None:
            is_none = value == math.inf or (name == "record" and value == "none")
            values[name] = None if is_none else value
    for name in ("dataset", "demonstrations"):
        if (path := values.get(name)) and not os.path.exists(path):
            raise ValueError(
                f"{path}, the `{name}` of {directory}, must be there to resume the run, but nothing is. "
                "If it was moved: " + description.command("resume", directory, f"--{name}", "...")
            )
    if command.log is not None:
        values |= {"tensorboard": "tensorboard" in command.log, "wandb": "wandb" in command.log}
        # Videos are recorded only if a logger shows them.
        values["evaluation_video"] &= values["tensorboard"] or values["wandb"]
    if "num_env_steps" not in values:
        raise ValueError(
            f"{directory} was trained by a version that did not store how long to train. To set it: "
            + description.command("resume", directory, "--num-env-steps", "...")
        )
    options = experiments.RunOptions(**{name: value for name, value in values.items() if name in known})
    checkpoint = checkpointing.find_to_resume(directory, command.checkpoint)
    environment = description.environment
    if options.dataset and environment.startswith(task_settings.RECORDED):  # the data may have moved
        environment = task_settings.recorded(options.dataset)
    description = dataclasses.replace(
        description, environment=environment, options=dataclasses.asdict(options)
    )
    if checkpoint is None and (logged := run_logs.last_step(directory)):
        raise ValueError(
            f"{directory} must have a checkpoint to be resumed, but has none, and logs until step "
            f"{logged:,.0f}: it was stopped before its first one, or `checkpoints` was removed. Put that "
            "folder back, or train from the beginning in another one."
        )
    if (
        checkpoint
        and stopping.is_complete(checkpoint, description.options)
        and is_recorded(description.options)
    ):
        made, goal = checkpointing.env_steps(checkpoint), options.stop_at
        if made >= options.num_steps:
            name = description.steps_option
            longer = [] if planned > made else _longer(description, made)
            raise ValueError(
                f"`{name}` must be greater than the {made:,} steps that {directory} has made, got "
                f"{options.num_steps:,}. To train for longer: "
                + description.command("resume", directory, *longer)
            )
        reached = stopping.reached(checkpoint, goal)
        raise ValueError(
            f"`stop_at` must be above the {reached} that {directory} has reached after "
            f"{made:,} steps, got {goal:g}. To train until the last step: "
            + description.command("resume", directory, "--stop-at", "inf")
        )
    _run(dry_run.Plan(description, directory, checkpoint, command.import_code))
    return 0


def is_recorded(options: Mapping[str, Any]) -> bool:
    """Returns whether the episodes that a run records are written, if it records any.

    A process that ends before that leaves them to the same command.
    """
    path = options.get("record")
    return path is None or os.path.lexists(path)


def _run(plan: dry_run.Plan) -> experiments.ExperimentResult:
    """Trains, and shows progress and results."""
    console = Console()
    description, directory, checkpoint, import_code, why, processes = plan
    options = description.options
    # Before anything else, since drawing depends on how MuJoCo is first imported.
    make_environment = description.make_environment_factory(import_code=import_code)
    film_episode: video.Filmer | None = None
    if options["evaluation_video"] and description.environment_factory:
        film_episode = video.Filmer(make_environment)
    elif options["evaluation_video"]:
        film_episode = video.make_filmer(description.environment, **description.training_settings)
    num_steps = options[description.steps_option]
    console.print(f"{description.agent} on {description.task}, {num_steps:,} steps{why}, in {directory}")
    if checkpoint:
        _tell_of_checkpoint(console, plan)
    builder = description.make_builder(import_code=import_code)
    in_processes = builder.for_actors(processes["num_actors"]) if processes else builder
    if in_processes.learner_step:
        console.print(f"A learner step is {in_processes.learner_step}.")
    config = experiments.ExperimentConfig(
        builder=builder,
        environment_factory=make_environment,
        directory=directory,
        resume_from=checkpoint or "latest",
        film_episode=film_episode,
        **options,
    )
    minutes = options.get("stop_after_minutes")
    seconds = math.inf if minutes is None else 60.0 * minutes
    display = experiments.ProgressDisplay(console, seconds=seconds)
    if processes is None:
        result = experiments.run_experiment(config, progress=display)
    else:
        result = distributed.run_distributed_experiment(config, progress=display, **processes)
    with saved(directory):
        to_resume = "the same command" if processes else description.command("resume", directory)
        _show(console, result, description, to_resume)
    return result


@contextlib.contextmanager
def saved(directory: pathlib.Path) -> Iterator[None]:
    """Adds to a KeyboardInterrupt after training that the run is saved.

    Raises:
        KeyboardInterrupt: The one raised in the block, with a message that says so.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped after the run was saved in {directory}") from None


def _longer(description: run_folder.RunDescription, made: int) -> list[object]:
    """Returns the flags that let a run make twice the steps; its recording then needs another name."""
    flag = f"--{description.steps_option.replace('_', '-')}"
    return [flag, 2 * made, *(["--record", "..."] if description.options.get("record") else [])]


def _tell_of_checkpoint(console: Console, plan: dry_run.Plan) -> None:
    description, directory, checkpoint, *_ = plan
    assert checkpoint is not None
    made, options = checkpointing.env_steps(checkpoint), description.options
    over = "To start over, remove the folder or choose another --directory or --seed."
    if not stopping.is_complete(checkpoint, options):
        if not run_lock.is_held(directory):  # otherwise this process is refused
            console.print(f"Resuming at {made:,} steps; to start over, remove the folder.")
    elif made < options[description.steps_option]:
        reached = stopping.reached(checkpoint, options["stop_at"])
        further = description.command("resume", directory, "--stop-at", "inf")
        console.print(
            f"This run has reached the {reached} after {made:,} steps. To train until the last "
            f"step: {further}. {over}"
        )
    else:
        longer = description.command("resume", directory, *_longer(description, made))
        console.print(f"This run has made all its {made:,} steps. To train for longer: {longer}. {over}")


def _show(
    console: Console,
    result: experiments.ExperimentResult,
    description: run_folder.RunDescription,
    to_resume: str,
) -> None:
    title = "Evaluation return, mean and standard deviation over the episodes"
    metric = description.options.get("metric", run_options.RETURN)
    others = [] if metric == run_options.RETURN else [metric]
    columns = [Column(name, justify="right", overflow="fold") for name in ("return", *others)]
    table = Table("policy", *columns, title=title)
    trained = f"after {result.env_steps:,} environment and {result.learner_steps:,} learner steps"
    rows = [("random actions", result.random), ("before training", result.before), (trained, result.after)]
    has_better = result.best is not None and result.best[1] != result.after
    if result.best is not None and has_better:
        rows.append((f"best checkpoint, after {result.best[0]:,} steps", result.best[1]))
    for name, evaluation in rows:
        returns = f"{evaluation.mean:.1f} ± {evaluation.std:.1f}" if evaluation else "-"
        table.add_row(
            name, returns, *(f"{evaluation.score(metric):.4g}" if evaluation else "-" for _ in others)
        )
    if description.options.get("evaluation_episodes", 1):
        console.print(table, soft_wrap=False)
    files = result.directory
    folders = [f"{name}/" for name in ("tensorboard", "wandb") if (files / name).exists()]
    console.print(f"Files: {files}/ ({', '.join(['run.json', '*.csv', 'checkpoints/', *folders])})")
    for node in result.given_up:
        console.print(f"Given up during the run: {node}")
    if result.interrupted_by:
        console.print(f"Stopped by {result.interrupted_by} and saved. To resume: {to_resume}")
    elif result.stopped_by:
        console.print(f"Stopped early, evaluated and saved: {result.stopped_by}.")
    unplayed = ["--env", "..."] if description.environment.startswith(task_settings.RECORDED) else []
    console.print(
        f"To evaluate it{' again' * (not unplayed)}: {description.command('eval', files, *unplayed)}"
    )
    if has_better:
        to_evaluate = description.command("eval", files, "--checkpoint", "best")
        console.print(f"To evaluate the best: {to_evaluate}")
