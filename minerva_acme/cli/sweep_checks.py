"""Checks of a sweep's runs before the first one starts: their environments, agents, settings and data."""

from collections.abc import Iterable
from typing import Any

from minerva_acme import builders, constraints, datasets, experiments, specs
from minerva_acme.cli import sweep_plan, training
from minerva_acme.datasets import demonstrations
from minerva_acme.experiments import beginning
from minerva_acme.replay import base as replay
from minerva_acme.runs import checkpointing, run_folder


def check(runs: Iterable[sweep_plan.PlannedRun]) -> None:
    """Checks that each run's agent can be trained in its environment, with its settings and from its data.

    It makes each environment once, and no folder. Of recorded episodes it reads the specs, and of a run to
    start from it checks that there is a checkpoint.

    Raises:
        ValueError: Some of them cannot be trained; the message lists all of these.
    """
    of_environment: dict[str, specs.EnvironmentSpec | str] = {}
    seen: set[object] = set()
    problems: list[str] = []
    recorded: set[constraints.Path] = set()
    for run in runs:
        train = run.train
        if (record := train.run.record) is not None:
            if record in recorded:
                raise ValueError(
                    f"`record` must be another folder for each run of a sweep, got {record} for several. "
                    "Record with `minerva train`, or play episodes afterwards with `minerva dataset`."
                )
            recorded.add(record)
        options = train.run
        data = options.dataset, options.demonstrations, options.from_run
        if (key := (train.env, train.hyperparameters, options.replay, *data)) in seen:
            continue
        seen.add(key)
        description = training.describe(train)
        if train.env not in of_environment:
            of_environment[train.env] = found = _find_spec(description)
            if isinstance(found, str):
                problems.append(f"{train.env}: {found}")
        spec = of_environment[train.env]
        if isinstance(spec, str):
            continue
        try:
            builder = description.make_builder(import_code=True)
            beginning.check_agent(
                builder, spec, options.replay, options.dataset, num_env_steps=options.num_env_steps
            )
            _check_data(options, builder, spec)
        except (ValueError, replay.ReplayError, checkpointing.DamagedCheckpoint) as error:
            problems.append(f"{run.title}: {error}")
    if problems:
        raise ValueError("\n".join(["Nothing is trained, since some runs are not possible.", *problems]))


def _check_data(
    options: experiments.RunOptions, builder: builders.AgentBuilder[Any], spec: specs.EnvironmentSpec
) -> None:
    """Checks what a run learns and starts from.

    Raises:
        ValueError: Recorded episodes or a run are missing, or do not fit.
        DamagedCheckpoint: The run to start from has no undamaged checkpoint.
    """
    for path in (options.dataset, options.demonstrations):
        if path is not None:
            datasets.check_spec(datasets.read(path).spec, spec)
            demonstrations.check_tables(builder.make_replay_tables(spec))
    if options.from_run is not None:
        checkpointing.find(options.from_run)


def _find_spec(description: run_folder.RunDescription) -> specs.EnvironmentSpec | str:
    """Returns the environment's spec, or why there is none."""
    try:
        return description.make_specs(import_code=True)
    except Exception as error:  # whatever the environment raises
        return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
