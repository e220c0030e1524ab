"""Settings by agent and environment, as data (`tasks.toml`), with the scores that they reached.

The scores are rows of `minerva_acme.results`.
"""

import dataclasses
import difflib
import functools
import importlib.resources
import re
import shlex
import statistics
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from minerva_acme import results
from minerva_acme.agents import registry
from minerva_acme.environments import task_settings

_FILE = "tasks.toml"
_USUAL_STEPS = (  # pattern of an id, steps, name of these environments
    (r"dm_control/", 1_000_000, "dm_control"),
    (r"(CartPole|Acrobot|MountainCar|MountainCarContinuous|Pendulum)(-v\d+)?$", 100_000, "classic control"),
    (r"(tabular/|FrozenLake|CliffWalking|Blackjack|Taxi)", 100_000, "small tables"),
    (r"ALE/|\w+NoFrameskip", 10_000_000, "Atari"),
    (r"", 1_000_000, "the rest"),
)


class Run(NamedTuple):
    """One training run and the score of its last policy."""

    seed: int
    score: float  # the mean return of ten episodes, without exploration, from unseen initial states
    std: float  # the standard deviation of those ten returns


class Task(NamedTuple):
    """The settings of one agent in one environment, and the runs made with them."""

    agent: str
    environment: str
    preset: str
    settings: Mapping[str, Any]  # fields of the agent's config that differ from the preset's
    num_env_steps: int
    runs: tuple[Run, ...]  # at least one

    @property
    def exp_name(self) -> str:
        """The name of the experiment that the runs belong to."""
        name = results.make_name(self.agent, self.preset, self.settings)
        return results.with_repeat(name, task_settings.split_repeat(self.environment).action_repeat)

    @property
    def mean(self) -> float:
        """The mean score over the runs."""
        return statistics.fmean(run.score for run in self.runs)

    @property
    def median(self) -> float:
        """The median score over the runs."""
        return statistics.median(run.score for run in self.runs)

    @property
    def flags(self) -> tuple[str, ...]:
        """The settings as words of the command line, such as ("--gae-lambda", "0.9")."""
        return tuple(make_flags(self.settings))

    def make_config(self) -> Any:
        """Makes the agent's config."""
        return dataclasses.replace(registry.find(self.agent).presets[self.preset], **self.settings)

    def command(self, seed: int) -> str:
        """Returns a shell command that trains with these settings, even if this entry is changed later."""
        words = ["minerva", "train", self.agent, "--env", self.environment, "--preset", self.preset]
        words += [*self.flags, "--num-env-steps", str(self.num_env_steps), "--seed", str(seed)]
        return shlex.join(words)


def default_num_env_steps(agent: str, environment: str) -> tuple[int, str]:
    """Returns the default number of environment steps to train for, and the reason for it.

    This is the number of the agent's entry for this environment, if there is one, or else the suite's usual
    number.

    Args:
        agent: The agent's name, or the `module:name` of its builder.
        environment: The environment's id; for Gymnasium, with or without `gymnasium/`.
    """
    environment = environment.removeprefix("gymnasium/")
    for table in _tables():
        if (table["agent"], table["environment"]) == (agent, environment):
            return table["num_env_steps"], f"as in {agent}'s task preset"
    name = environment.partition(":")[2] or environment
    _, num_env_steps, suite = next(usual for usual in _USUAL_STEPS if re.match(usual[0], name))
    return num_env_steps, f"usual for {suite}"


@functools.cache
def load() -> tuple[Task, ...]:
    """Returns all entries of the file, sorted by agent and environment."""
    entries = parse(_text(), [row for experiment in results.load().values() for row in experiment.rows])
    agents = list(registry.AGENTS)
    return tuple(sorted(entries, key=lambda task: (agents.index(task.agent), task.environment.lower())))


def find(agent: str, environment: str) -> Task:
    """Returns the entry of an agent and an environment.

    Args:
        agent: The agent's name, or the `module:name` of its builder.
        environment: The environment's id; for Gymnasium, with or without `gymnasium/`.

    Raises:
        ValueError: There is no such entry. The message lists the environments that have entries for this
            agent, the nearest of them, and the presets that need no entry.
    """
    environment = environment.removeprefix("gymnasium/")
    by_environment = {task.environment: task for task in load() if task.agent == agent}
    if environment in by_environment:
        return by_environment[environment]
    parts = [f"{agent} has no task preset for '{environment}'; it has {', '.join(by_environment) or 'none'}."]
    # The prefix is removed, since names that share it would all look similar.
    by_short = {name.removeprefix("dm_control/").lower(): name for name in by_environment}
    near = difflib.get_close_matches(environment.removeprefix("dm_control/").lower(), by_short, n=1)
    parts += [f"Did you mean '{by_short[short]}'?" for short in near]
    presets = ", ".join(registry.find(agent).presets)
    raise ValueError(" ".join([*parts, f"For any environment there are the presets {presets}."]))


def parse(text: str, rows: Iterable[results.Row]) -> tuple[Task, ...]:
    """Parses entries.

    Args:
        text: TOML, an array of tables `task`; the head of `tasks.toml` describes them. The tests check the
            entries of that file.
        rows: The rows of the results, including the ones that belong to the entries.
    """
    values: dict[tuple[str, str, int, str], dict[int, float]] = {}  # by seed, for each metric
    for row in rows:
        values.setdefault((row.exp_name, row.env_name, row.env_step, row.metric), {})[row.seed] = row.value
    return tuple(_make_task(values, **table) for table in tomllib.loads(text)["task"])


def _text() -> str:
    return importlib.resources.files(__package__).joinpath(_FILE).read_text(encoding="utf-8")


@functools.cache
def _tables() -> tuple[Mapping[str, Any], ...]:
    """Returns the entries without their runs, which take longer to read."""
    return tuple(tomllib.loads(_text())["task"])


def _make_task(
    values: Mapping[tuple[str, str, int, str], Mapping[int, float]],
    *,
    agent: str,
    environment: str,
    preset: str,
    num_env_steps: int,
    settings: Mapping[str, Any] = MappingProxyType({}),
) -> Task:
    settings = {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}
    task = Task(agent, environment, preset, MappingProxyType(settings), num_env_steps, runs=())
    env_name, repeat = task_settings.split_repeat(environment)
    place = task.exp_name, env_name, num_env_steps * (repeat or 1)
    scores, stds = (values.get((*place, metric), {}) for metric in ("final_return", "final_return_std"))
    return task._replace(runs=tuple(Run(seed, score, stds[seed]) for seed, score in sorted(scores.items())))


def make_flags(settings: Mapping[str, Any]) -> Iterator[str]:
    """Yields settings as words of the command line, such as "--gae-lambda", "0.9"."""
    for name, value in settings.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            yield f"--{flag}" if value else f"--no-{flag}"
        else:
            yield f"--{flag}"
            yield from map(str, value if isinstance(value, tuple | list) else (value,))
