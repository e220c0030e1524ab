"""`minerva eval`."""

import contextlib

from rich.console import Console

from minerva_acme import runs
from minerva_acme.cli import commands, json_output
from minerva_acme.runs import policies


def run(command: commands.Eval) -> int:
    """Plays episodes with a checkpoint; returns the exit status."""
    console = Console(highlight=False, soft_wrap=True)
    with json_output.alone() if command.json else contextlib.nullcontext():
        found, result = _evaluate(command)
    description = found.description
    if command.json:
        json_output.show(
            {
                "agent": description.agent,
                "environment": description.environment,
                "checkpoint": str(found.path),
                "env_steps": found.env_steps,
                "seed": command.seed,
                "explore": command.explore,
                "returns": result.returns,
                "lengths": result.lengths,
                "mean": result.mean,
                "std": result.std,
            }
        )
        return 0
    for index, (episode_return, length) in enumerate(zip(result.returns, result.lengths, strict=True)):
        console.print(f"episode {index + 1:3d}  return {episode_return:10.2f}  length {length}")
    console.print(
        f"{description.agent} on {description.environment}, {found.env_steps:,} environment steps: "
        f"return {result.mean:.2f} +- {result.std:.2f} over {command.episodes} episodes"
    )
    return 0


def _evaluate(command: commands.Eval) -> tuple[policies.Found, runs.Evaluation]:
    if command.episodes < 1:
        raise ValueError(f"`episodes` must be >= 1, got {command.episodes}.")
    found = policies.find(command.directory, command.checkpoint)
    description = found.description
    builder, seed = description.make_builder(import_code=command.import_code), command.seed
    environment = description.make_environment_factory(import_code=command.import_code)(seed)
    with contextlib.closing(environment):
        result = runs.evaluate_checkpoint(
            found.path, builder, environment, command.episodes, seed=seed, explore=command.explore
        )
    return found, result
