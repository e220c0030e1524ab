"""`minerva train`."""

import contextlib
import dataclasses
import os
import pathlib
from typing import Any

import torch
from rich import console as rich_console
from rich import table as rich_table

from minerva_acme import environments, experiments, specs
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
    if "OMP_NUM_THREADS" not in os.environ:
        # One core is left to the replay server's threads: torch shares its own badly.
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) - 1))
    console = rich_console.Console()
    if directory is None:
        directory = pathlib.Path("runs", environment_id.replace("/", "-"), f"{agent}-seed{options.seed}")
    description = runs.RunDescription(
        agent=agent,
        environment=environment_id,
        seed=options.seed,
        hyperparameters=dataclasses.asdict(hyperparameters),
    )
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
        **{field.name: getattr(options, field.name) for field in dataclasses.fields(options)},
    )
    with progress.ProgressDisplay(console) as display:
        result = experiments.run_experiment(config, on_progress=display)
    _show(console, result)
    return 0


def _show(console: rich_console.Console, result: experiments.ExperimentResult) -> None:
    table = rich_table.Table(title="Evaluation return, mean and standard deviation over the episodes")
    table.add_column("policy")
    table.add_column("return", justify="right")
    trained = f"after {result.env_steps:,} environment and {result.learner_steps:,} learner steps"
    for name, evaluation in (
        ("random actions", result.random),
        ("before training", result.before),
        (trained, result.after),
    ):
        table.add_row(name, f"{evaluation.mean:.1f} +- {evaluation.std:.1f}" if evaluation else "-")
    console.print(table)
    files = result.directory
    console.print(
        f"Files: {files}/ (run.json, *.csv, tensorboard/, checkpoints/)", highlight=False, soft_wrap=True
    )
    if result.interrupted_by:
        console.print(
            f"Stopped by {result.interrupted_by}; the same command resumes it.",
            highlight=False,
            soft_wrap=True,
        )
    console.print(f"Play it again: minerva eval {files}", highlight=False, soft_wrap=True)
