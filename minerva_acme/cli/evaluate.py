"""`minerva eval`."""

import contextlib
import pathlib

from rich import console as rich_console

from minerva_acme import environments, experiments
from minerva_acme.cli import runs
from minerva_acme.experiments import checkpointing


def run(directory: pathlib.Path, *, episodes: int, seed: int, explore: bool) -> int:
    """Plays episodes with the newest checkpoint; returns the exit status."""
    console = rich_console.Console()
    if episodes < 1:
        raise ValueError(f"`episodes` must be >= 1, got {episodes}.")
    description = runs.read(directory)
    checkpoint = checkpointing.find(directory)
    environment = environments.make_training_environment(description.environment, seed=seed)
    with contextlib.closing(environment):
        result = experiments.evaluate_checkpoint(
            checkpoint, description.make_builder(), environment, episodes, seed=seed, explore=explore
        )
    for index, (episode_return, length) in enumerate(zip(result.returns, result.lengths, strict=True)):
        console.print(
            f"episode {index + 1:3d}  return {episode_return:10.2f}  length {length}",
            highlight=False,
            soft_wrap=True,
        )
    console.print(
        f"{description.agent} on {description.environment}, {int(checkpoint.name):,} environment steps: "
        f"return {result.mean:.2f} +- {result.std:.2f} over {episodes} episodes",
        highlight=False,
        soft_wrap=True,
    )
    return 0
