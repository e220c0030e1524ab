"""`minerva dataset`."""

import contextlib

from rich.progress import Progress

from minerva_acme import datasets, environments, runs, specs
from minerva_acme.cli import choices, commands, environment_choice
from minerva_acme.cli.output import Console
from minerva_acme.runs import policies

_EPISODES_A_LINE = 100


def run(command: commands.Dataset) -> int:
    """Plays and records episodes; returns the exit status.

    Raises:
        ValueError: There is no such policy, `output` exists, or it cannot hold the environment's episodes.
    """
    console = Console()
    found = policies.find(command.directory, command.checkpoint)
    builder, seed = found.description.make_builder(import_code=command.import_code), command.seed
    description, make_environment = environment_choice.choose(found.description, command)
    settings = {
        **description.origin(),
        "env_steps" if found.description.plays else "learner_steps": found.env_steps,
        "policy": "greedy" if command.greedy else "exploring",
        "episodes_seed": seed,
    }
    progress = Progress(console=console, disable=not console.is_terminal)
    task = progress.add_task("episodes", total=command.episodes)

    def report(num_episodes: int, num_steps: int) -> None:
        progress.update(task, completed=num_episodes)
        if num_episodes == command.episodes or (
            not console.is_terminal and num_episodes % _EPISODES_A_LINE == 0
        ):
            console.print(f"{num_episodes:,} of {command.episodes:,} episodes, {num_steps:,} steps")

    with contextlib.closing(make_environment(seed)) as environment, choices.needed("dataset", "datasets"):
        spec = specs.make_environment_spec(environment)
        policy = runs.load_policy(found.path, builder, spec, seed=seed, explore=not command.greedy)
        with datasets.Writer(command.output, spec, settings=settings, progress=report) as writer, progress:
            actor = builder.make_actor(policy, adder=datasets.RecordingAdder(writer.write))
            loop = environments.EnvironmentLoop(environment=environment, actor=actor)
            loop.run(num_episodes=command.episodes)
    played = f"{description.agent} on {description.task}, {found.env_steps:,} steps"
    console.print(f"{played}, in {command.output}")
    return 0
