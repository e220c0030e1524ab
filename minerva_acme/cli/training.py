"""`minerva train` and `minerva resume`."""

import contextlib
import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

from rich import console as rich_console
from rich import table as rich_table

from minerva_acme import environments, experiments, specs, video
from minerva_acme.cli import progress, runs
from minerva_acme.experiments import checkpointing


def run(
    *,
    agent: str,
    hyperparameters: Any,
    environment_id: str,
    directory: pathlib.Path | None,
    options: experiments.RunOptions,
) -> int:
    """Trains or resumes, and shows what was learned; returns the exit status."""
    console = rich_console.Console()
    if directory is None:
        directory = pathlib.Path("runs", environment_id.replace("/", "-"), f"{agent}-seed{options.seed}")
    description = runs.RunDescription(
        agent=agent,
        environment=environment_id,
        seed=options.seed,
        hyperparameters=dataclasses.asdict(hyperparameters),
        options=dataclasses.asdict(options),
    )
    # Before anything else, since drawing depends on how MuJoCo is first imported.
    film_episode = video.make_filmer(environment_id) if options.evaluation_video else None
    # A wrong id or an unfit environment is told before a folder is made for it.
    builder = description.make_builder()
    make_environment = environments.make_training_environment
    with contextlib.closing(make_environment(environment_id, seed=0)) as environment:
        builder.check_spec(specs.make_environment_spec(environment))
    description.write(directory)
    console.print(
        f"{agent} on {environment_id}, {options.num_env_steps:,} steps, in {directory}",
        highlight=False,
        soft_wrap=True,
    )
    checkpoint = checkpointing.Checkpointer(directory / "checkpoints").latest()
    if checkpoint is not None:
        console.print(
            f"Going on at {int(checkpoint.name):,} steps; remove the folder to begin anew.", soft_wrap=True
        )
    config = experiments.ExperimentConfig(
        builder=builder,
        environment_factory=lambda seed: make_environment(environment_id, seed=seed),
        directory=directory,
        description=dataclasses.asdict(description),
        film_episode=film_episode,
        **{field.name: getattr(options, field.name) for field in dataclasses.fields(options)},
    )
    target_kl = getattr(hyperparameters, "target_kl", None)
    kl_bounds = {"policy/approx_kl": target_kl} if target_kl else {}
    with progress.ProgressDisplay(console, kl_bounds=kl_bounds) as display:
        result = experiments.run_experiment(config, on_progress=display)
    _show(console, result)
    return 0


def resume(
    directory: pathlib.Path,
    *,
    num_env_steps: int | None = None,
    device: str | None = None,
    log: Sequence[str] | None = None,
) -> int:
    """Goes on with a run from its folder alone; returns the exit status.

    Args:
        directory: the run's folder.
        num_env_steps: environment steps in all, where they are to be more than before.
        device: where to compute, where that is to be another one.
        log: where logs go, of "csv", "tensorboard" and "wandb", where that is to be elsewhere.

    Raises:
        ValueError: there is no run, or it has made all its steps.
    """
    description = runs.read(directory)
    changes = {"num_env_steps": num_env_steps, "device": device}
    values = {"evaluation_video": False, **description.options}
    values |= {name: v for name, v in changes.items() if v is not None}
    if log is not None:
        values |= {"tensorboard": "tensorboard" in log, "wandb": "wandb" in log}
        # Where there is no longer anything to show films, none are made.
        values["evaluation_video"] &= values["tensorboard"] or values["wandb"]
    if "num_env_steps" not in values:
        raise ValueError(
            f"{directory} was trained by a version that did not note how long to train. "
            f"Say it: minerva resume {directory} --num-env-steps ..."
        )
    known = {field.name for field in dataclasses.fields(experiments.RunOptions)}
    options = experiments.RunOptions(
        **{**{name: v for name, v in values.items() if name in known}, "seed": description.seed}
    )
    checkpoint = checkpointing.latest(directory / "checkpoints")
    made = int(checkpoint.name) if checkpoint is not None else 0
    if made >= options.num_env_steps:
        raise ValueError(
            f"`num_env_steps` must be above the {made:,} steps that {directory} has made, got "
            f"{options.num_env_steps:,}. To go on with it: minerva resume {directory} "
            f"--num-env-steps {2 * made}"
        )
    return run(
        agent=description.agent,
        hyperparameters=description.make_config(),
        environment_id=description.environment,
        directory=directory,
        options=options,
    )


def _show(console: rich_console.Console, result: experiments.ExperimentResult) -> None:
    table = rich_table.Table(title="Evaluation return, mean and standard deviation over the episodes")
    table.add_column("policy")
    table.add_column("return", justify="right")
    trained = f"after {result.env_steps:,} environment and {result.learner_steps:,} learner steps"
    rows = [
        ("random actions", result.random),
        ("before training", result.before),
        (trained, result.after),
    ]
    if result.best is not None and result.best[0] != result.env_steps:
        rows.append((f"best on the way, after {result.best[0]:,} environment steps", result.best[1]))
    for name, evaluation in rows:
        table.add_row(name, f"{evaluation.mean:.1f} +- {evaluation.std:.1f}" if evaluation else "-")
    console.print(table)
    files = result.directory
    parts = ["run.json", "*.csv", "checkpoints/"]
    parts += [f"{name}/" for name in ("tensorboard", "wandb") if (files / name).exists()]
    console.print(f"Files: {files}/ ({', '.join(parts)})", highlight=False, soft_wrap=True)
    if result.interrupted_by:
        console.print(
            f"Stopped by {result.interrupted_by} and saved. Go on: minerva resume {files}",
            highlight=False,
            soft_wrap=True,
        )
    console.print(f"Play it again: minerva eval {files}", highlight=False, soft_wrap=True)
