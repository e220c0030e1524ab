"""`minerva train --dry-run`: the settings of a run, and what it will need. It makes no folder."""

import dataclasses
import datetime
import pathlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from rich.table import Column, Table

from minerva_acme import constraints, datasets, experiments
from minerva_acme.cli.output import Console
from minerva_acme.experiments import beginning, evaluator, signals
from minerva_acme.machine import memory
from minerva_acme.replay import backends, sizes
from minerva_acme.runs import checkpointing, run_folder

_SECONDS = 10.0  # of training, to measure its speed
_MAX_SECONDS = 30.0  # the same if learning has not begun by then
_STORED_BYTES = 12  # per weight in a checkpoint: its value and Adam's two moments
_FROZEN_BYTES = 4  # per weight that is not trained, as of target networks


class Plan(NamedTuple):
    """A run that `minerva train` is asked for."""

    description: run_folder.RunDescription
    directory: pathlib.Path
    checkpoint: pathlib.Path | None  # that it resumes from
    import_code: bool = True  # that the description names, as a command line does
    why: str = ""  # where the number of steps comes from
    processes: dict[str, Any] | None = None  # the extra arguments of a distributed run


def run(plan: Plan) -> None:
    """Shows the run that `minerva train` would start.

    Raises:
        ValueError: The agent cannot be trained in the environment with these settings.
        ReplayError: The replay store cannot sample as the agent requires.
    """
    console = Console()
    description, directory, checkpoint, import_code, why, processes = plan
    make_environment = description.make_environment_factory(import_code=import_code)
    builder = description.make_builder(import_code=import_code)
    options = {**description.options, "evaluation_video": False}
    config = experiments.ExperimentConfig(
        builder=builder, environment_factory=make_environment, directory=directory, **options
    )
    spec = description.make_specs(import_code=import_code)
    # Recorded episodes are kept in memory, and not in checkpoints.
    backend: backends.Backend = "reverb" if processes else "memory" if config.dataset else config.replay
    beginning.check_agent(builder, spec, backend, config.dataset, num_env_steps=config.num_env_steps)
    if config.dataset:
        recorded = datasets.read(config.dataset)
        inserted: float = recorded.num_steps + recorded.num_episodes
    else:
        inserted = builder.max_inserted(config.num_env_steps)
    if processes and processes.get("num_learners", 1) != 1:
        builder.for_actors(processes["num_actors"]).for_learners(processes["num_learners"])  # raises
    tables = builder.make_replay_tables(spec)
    resolved = {"device": config.torch_device, "replay": backends.choose(tables, backend)}
    settings = {**description.hyperparameters, **description.options, **resolved}
    console.print(f"{description.agent} on {description.task}, {config.num_steps:,} steps{why}")
    made = checkpointing.env_steps(checkpoint) if checkpoint else 0
    console.print(f"Folder: {directory}, {f'resumed at {made:,} steps' if made else 'new'}")
    table = Table("setting", Column("value", overflow="fold"))
    for name, value in settings.items():
        table.add_row(name, str(value))
    console.print(table, soft_wrap=False)
    if builder.learner_step:
        console.print(f"A learner step is {builder.learner_step}.")

    networks = builder.make_networks(spec, torch.Generator().manual_seed(config.seed))
    weights = {id(weight): weight for module in _modules(networks) for weight in module.parameters()}
    trained = sum(weight.numel() for weight in weights.values() if weight.requires_grad)
    frozen = sum(weight.numel() for weight in weights.values()) - trained
    console.print(
        f"Memory: {backends.describe_size(tables, backend, most_items=inserted)}."
        if tables and inserted >= 1
        else "Memory: nothing is written to replay in so few steps."
        if tables
        else "Memory: no replay."
    )
    weight_bytes = constraints.WEIGHT_BYTES * trained + _FROZEN_BYTES * frozen
    console.print(
        f"Networks: {trained:,} trained weights and {frozen:,} others take "
        f"{memory.describe(weight_bytes)}, without activations "
        "and target networks that the learner makes."
    )
    light = _STORED_BYTES * trained + _FROZEN_BYTES * frozen
    holds_replay = config.checkpoint_replay and not config.dataset
    full = light + (sizes.full_size(tables, 0, most_items=inserted).most if holds_replay else 0)
    # While the newest is written, the oldest is still there.
    disk = (config.checkpoint_keep + 1) * full + config.checkpoint_best * light
    free = shutil.disk_usage(next(path for path in directory.absolute().parents if path.exists())).free
    console.print(
        f"Disk: checkpoints take at most {memory.describe(disk)}, with "
        f"{memory.describe(full)} each; {memory.describe(free)} are free."
    )
    if processes:
        console.print("Time: not estimated for several processes.")
        return
    console.print(f"Measuring the speed, for at most {_MAX_SECONDS:.0f} seconds of training ...")
    console.print(f"Time: {_measure(config).describe(config, made)}")


class _Clock:
    """A callback that measures a run from its beginning, and ends it when that is enough."""

    def __init__(self) -> None:
        self._began_at = time.monotonic()
        self._trained_from: tuple[float, int] | None = None  # seconds, steps
        self._learned: list[tuple[float, int]] = []  # after each learner step: seconds, steps
        self._learner_steps = 0

    def __call__(self, progress: experiments.Progress) -> None:
        """Notes the time.

        Raises:
            StopRun: Enough was seen.
        """
        if progress.phase != "train":
            return
        now = time.monotonic()
        if self._trained_from is None:
            self._trained_from = now, progress.steps
        if progress.learner_steps > self._learner_steps:
            self._learner_steps = progress.learner_steps
            self._learned.append((now, progress.steps))
        seconds = now - self._trained_from[0]
        if seconds >= (_SECONDS if len(self._learned) > 1 else _MAX_SECONDS):
            raise experiments.StopRun("the speed is measured")

    def describe(self, config: experiments.ExperimentConfig, made: int) -> str:
        """Returns an estimate of the time that a run takes, with how it was made.

        Args:
            config: The run's config.
            made: The steps that it has made already.
        """
        if self._trained_from is None or not self._learned:
            return (
                "unknown: no learner step was made while the speed was measured, since the replay needs more "
                "items first, or a rollout more steps."
            )
        first = self._learned[0] if len(self._learned) > 1 else self._trained_from
        per_step = (self._learned[-1][0] - first[0]) / max(1, self._learned[-1][1] - first[1])
        left = config.num_steps - made
        num_evaluations = evaluator.count_evaluations(config, made)
        # Random actions and the untrained policy played one episode each before the first step.
        per_episode = (self._trained_from[0] - self._began_at) / 2
        training = per_step * left
        evaluating = per_episode * num_evaluations * config.evaluation_episodes
        times = [datetime.timedelta(seconds=round(part)) for part in (training + evaluating, evaluating)]
        return (
            f"about {times[0]}, of which {times[1]} for {num_evaluations} evaluations. This assumes the "
            f"speed measured here just now, {1 / max(per_step, 1e-9):,.0f} steps per second with learning, "
            "and episodes as long as those of untrained policies."
        )


def _measure(config: experiments.ExperimentConfig) -> _Clock:
    """Trains for a few seconds in a temporary folder; KeyboardInterrupt if a signal stops it."""
    with (
        tempfile.TemporaryDirectory(prefix="minerva-dry-run-") as directory,
        signals.keeping_nothing(),
    ):
        clock = _Clock()
        result = experiments.run_experiment(
            dataclasses.replace(
                config,
                directory=directory,
                evaluation_period=0,
                evaluation_episodes=min(1, config.evaluation_episodes),
                evaluation_environments=1,
                checkpoint_period=0,
                checkpoint_replay=False,
                checkpoint_best=False,
                record=None,
                stop_at=None,
                stop_after_minutes=None,
                tensorboard=False,
                wandb=False,
            ),
            clock,
            progress=None,
        )
    if result.interrupted_by:
        raise KeyboardInterrupt
    return clock


def _modules(networks: Any) -> Iterator[torch.nn.Module]:
    """Yields the modules in what `make_networks` returned."""
    if isinstance(networks, torch.nn.Module):
        yield networks
    elif dataclasses.is_dataclass(networks):
        for field in dataclasses.fields(networks):
            yield from _modules(getattr(networks, field.name))
    elif isinstance(networks, tuple | list):
        for part in networks:
            yield from _modules(part)
    elif isinstance(networks, dict):
        yield from _modules(list(networks.values()))
