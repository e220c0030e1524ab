"""Settings by agent and environment, as data (`tasks.toml`), beside the scores that they really reached.

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

from minerva_acme import results, task_settings
from minerva_acme.agents import registry

_FILE = "tasks.toml"
_USUAL_STEPS = (  # pattern of an id, steps, what these environments are
    (r"dm_control/", 1_000_000, "dm_control"),
    (r"(CartPole|Acrobot|MountainCar|MountainCarContinuous|Pendulum)(-v\d+)?$", 100_000, "classic control"),
    (r"(tabular/|FrozenLake|CliffWalking|Blackjack|Taxi)", 100_000, "small tables"),
    (r"ALE/|\w+NoFrameskip", 10_000_000, "Atari"),
    (r"", 1_000_000, "the rest"),
)


class Run(NamedTuple):
    """One training and how its last policy was judged."""

    seed: int
    score: float  # mean return of ten episodes, without exploration, from unseen initial states
    std: float  # of those ten returns


class Task(NamedTuple):
    """What one agent is trained with in one environment, and what came of it."""

    agent: str
    environment: str
    preset: str
    settings: Mapping[str, Any]  # fields of the agent's config that differ from the preset's
    num_env_steps: int
    runs: tuple[Run, ...]  # at least one

    @property
    def exp_name(self) -> str:
        """The experiment whose rows the runs are."""
        name = results.make_name(self.agent, self.preset, self.settings)
        return results.with_repeat(name, task_settings.split_repeat(self.environment).action_repeat)

    @property
    def mean(self) -> float:
        """Mean score over the runs."""
        return statistics.fmean(run.score for run in self.runs)

    @property
    def median(self) -> float:
        """Median score over the runs."""
        return statistics.median(run.score for run in self.runs)

    @property
    def flags(self) -> tuple[str, ...]:
        """The settings as words of the command line, such as ("--gae-lambda", "0.9")."""
        return tuple(make_flags(self.settings))

    def make_config(self) -> Any:
        """Makes the agent's config."""
        return dataclasses.replace(registry.find(self.agent).presets[self.preset], **self.settings)

    def command(self, seed: int) -> str:
        """Returns the shell command that trains with these settings, whatever becomes of this entry."""
        words = ["minerva", "train", self.agent, "--env", self.environment, "--preset", self.preset]
        words += [*self.flags, "--num-env-steps", str(self.num_env_steps), "--seed", str(seed)]
        return shlex.join(words)


def default_num_env_steps(agent: str, environment: str) -> tuple[int, str]:
    """Returns how many environment steps to train for where nobody says it, and why.

    Those of the agent's entry for this environment, if it has one; else the usual number of the suite.

    Args:
        agent: its name, or where its builder is.
        environment: its id; Gymnasium's with or without `gymnasium/`.
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
    """Returns all entries of the file, by agent and environment."""
    entries = parse(_text(), [row for experiment in results.load().values() for row in experiment.rows])
    agents = list(registry.AGENTS)
    return tuple(sorted(entries, key=lambda task: (agents.index(task.agent), task.environment.lower())))


def find(agent: str, environment: str) -> Task:
    """Returns the entry of an agent and an environment.

    Args:
        agent: its name, or where its builder is.
        environment: its id; Gymnasium's with or without `gymnasium/`.

    Raises:
        ValueError: there is none; the message has the environments that this agent has entries for, the
            nearest of them, and the presets that need none.
    """
    environment = environment.removeprefix("gymnasium/")
    by_environment = {task.environment: task for task in load() if task.agent == agent}
    if environment in by_environment:
        return by_environment[environment]
    parts = [f"{agent} has no task preset for '{environment}'; it has {', '.join(by_environment) or 'none'}."]
    # Without the prefix, which makes everything behind it look alike.
    by_short = {name.removeprefix("dm_control/").lower(): name for name in by_environment}
    near = difflib.get_close_matches(environment.removeprefix("dm_control/").lower(), by_short, n=1)
    parts += [f"Did you mean '{by_short[short]}'?" for short in near]
    presets = ", ".join(registry.find(agent).presets)
    raise ValueError(" ".join([*parts, f"For any environment there are the presets {presets}."]))


def parse(text: str, rows: Iterable[results.Row]) -> tuple[Task, ...]:
    """Reads entries.

    Args:
        text: TOML, an array of tables `task`; the head of `tasks.toml` says what is in one. The tests check
            the entries of that file.
        rows: the results, among them those of the entries.
    """
    values: dict[tuple[str, str, int, str], dict[int, float]] = {}  # of each metric, by seed
    for row in rows:
        values.setdefault((row.exp_name, row.env_name, row.env_step, row.metric), {})[row.seed] = row.value
    return tuple(_make_task(values, **table) for table in tomllib.loads(text)["task"])


def _text() -> str:
    return importlib.resources.files(__package__).joinpath(_FILE).read_text(encoding="utf-8")


@functools.cache
def _tables() -> tuple[Mapping[str, Any], ...]:
    """The entries without their runs, which take longer to read."""
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
