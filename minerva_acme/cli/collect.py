"""`minerva collect`."""

import pathlib
from collections.abc import Sequence

from minerva_acme import results
from minerva_acme.cli import commands
from minerva_acme.cli.output import Console
from minerva_acme.runs import run_results


def run(command: commands.Collect) -> int:
    """Writes the results of runs; returns the exit status.

    Raises:
        ValueError: There are no such runs, they have no evaluations yet, or they do not match the results
            that are already there.
    """
    if command.episodes < 0:
        raise ValueError(f"`episodes` must be >= 0, got {command.episodes}.")
    console = Console()
    collected = run_results.collect(
        run_results.find_runs(command.directories),
        name=command.name,
        num_episodes=command.episodes,
        import_code=command.import_code,
    )
    add(command.output, collected, console)
    return 0


def add(out: pathlib.Path, collected: Sequence[results.Experiment], console: Console) -> list[pathlib.Path]:
    """Adds experiments to the ones in a folder; returns the paths of their rows.

    Raises:
        ValueError: They do not match the results that are already there.
    """
    for experiment in collected:
        results.check_name(experiment.exp_name)
    merged = []
    for experiment in collected:
        path = out / f"{experiment.exp_name}.csv"
        old = results.read(path) if path.exists() else []
        merged.append(results.merge(old[0], experiment) if old else experiment)
    written = []
    for experiment, new in zip(merged, collected, strict=True):  # only after all could be merged
        files = results.write(out, experiment)
        written.append(files[0])
        console.print(
            f"{experiment.exp_name}: {len(new.trainings)} runs read, "
            f"{len(experiment.trainings)} now in {' and '.join(map(str, files))}"
        )
    return written
