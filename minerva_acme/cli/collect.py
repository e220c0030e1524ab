"""`minerva collect`."""

from rich.console import Console

from minerva_acme import results
from minerva_acme.cli import commands
from minerva_acme.experiments import run_results


def run(command: commands.Collect) -> int:
    """Writes the results of runs; returns the exit status.

    Raises:
        ValueError: there are no such runs, they are not evaluated yet, or do not fit what is there.
    """
    if command.episodes < 0:
        raise ValueError(f"`episodes` must be >= 0, got {command.episodes}.")
    console = Console(highlight=False, soft_wrap=True)
    collected = run_results.collect(
        run_results.find_runs(command.directories),
        name=command.name,
        num_episodes=command.episodes,
        import_code=command.import_code,
    )
    merged = []
    for experiment in collected:
        path = command.out / f"{results.check_name(experiment.exp_name)}.csv"
        old = results.read(path) if path.exists() else []
        merged.append(results.merge(old[0], experiment) if old else experiment)
    for experiment, new in zip(merged, collected, strict=True):  # all of them, or none
        files = " and ".join(map(str, results.write(command.out, experiment)))
        console.print(
            f"{experiment.exp_name}: {len(new.trainings)} trainings read, "
            f"{len(experiment.trainings)} now in {files}"
        )
    return 0
