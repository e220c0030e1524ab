"""`minerva eval`."""

import contextlib
import statistics

from minerva_acme import runs
from minerva_acme.cli import commands, environment_choice, output
from minerva_acme.cli.output import Console
from minerva_acme.names import readable
from minerva_acme.runs import options, policies


def run(command: commands.Eval) -> int:
    """Plays episodes with a checkpoint; returns the exit status."""
    console = Console()
    with output.json_alone() if command.json else contextlib.nullcontext():
        found, result = _evaluate(command)
    description = found.description
    measured = {
        name: (statistics.fmean(each), statistics.pstdev(each)) for name, each in result.measured.items()
    }
    if command.json:
        output.show_json(
            {
                "agent": description.agent,
                "environment": description.environment,
                "env_kwargs": description.environment_settings,
                "checkpoint": str(found.path),
                "env_steps": found.env_steps if description.plays else 0,
                **({} if description.plays else {"learner_steps": found.env_steps}),
                "seed": command.seed,
                "explore": command.explore,
                "returns": result.returns,
                "lengths": result.lengths,
                "mean": result.mean,
                "std": result.std,
                "metrics": {
                    name: {"mean": mean, "std": std, "episodes": result.measured[name]}
                    for name, (mean, std) in measured.items()
                },
            }
        )
        return 0
    for index, (episode_return, length) in enumerate(zip(result.returns, result.lengths, strict=True)):
        console.print(f"episode {index + 1:3d}  return {episode_return:10.2f}  length {length}")
    console.print(
        f"{description.agent} on {description.base_task.env_name}, {found.env_steps:,} "
        f"{description.steps_name}: "
        f"return {result.mean:.2f} ± {result.std:.2f} over {readable.count(command.episodes, 'episode')}"
    )
    for name, (mean, std) in measured.items():
        console.print(f"{name} {mean:.4g} ± {std:.4g}")
    return 0


def _evaluate(command: commands.Eval) -> tuple[policies.Found, runs.Evaluation]:
    found = policies.find(command.directory, command.checkpoint)
    builder, seed = found.description.make_builder(import_code=command.import_code), command.seed
    description, make_environment = environment_choice.choose(found.description, command)
    with contextlib.closing(make_environment(seed)) as environment:
        result = runs.evaluate_checkpoint(
            found.path,
            builder,
            environment,
            command.episodes,
            seed=seed,
            explore=command.explore,
            metric=found.description.options.get("metric", options.RETURN),
        )
    return found._replace(description=description), result
