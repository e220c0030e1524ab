"""Settings by agent and environment, as data (`tasks.toml`), beside the scores that they really reached."""

import dataclasses
import difflib
import functools
import importlib.resources
import math
import shlex
import statistics
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from minerva_acme.agents import registry

_FILE = "tasks.toml"
_REQUIRED = {"agent": str, "environment": str, "preset": str, "num_env_steps": int, "runs": list}
_OPTIONAL = {"settings": dict}


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
        return tuple(word for name, value in self.settings.items() for word in _flag(name, value))

    def make_config(self) -> Any:
        """Makes the agent's config."""
        return dataclasses.replace(registry.AGENTS[self.agent].presets[self.preset], **self.settings)

    def command(self, seed: int) -> str:
        """Returns the shell command that trains with these settings, whatever becomes of this entry."""
        words = ["minerva", "train", self.agent, "--env", self.environment, "--preset", self.preset]
        words += [*self.flags, "--num-env-steps", str(self.num_env_steps), "--seed", str(seed)]
        return shlex.join(words)


@functools.cache
def load() -> tuple[Task, ...]:
    """Returns all entries of the file, by agent and environment."""
    entries = parse(importlib.resources.files(__package__).joinpath(_FILE).read_text(encoding="utf-8"))
    agents = list(registry.AGENTS)
    return tuple(sorted(entries, key=lambda task: (agents.index(task.agent), task.environment.lower())))


def find(agent: str, environment: str) -> Task:
    """Returns the entry of an agent and an environment.

    Args:
        agent: its name in `registry.AGENTS`.
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
    presets = ", ".join(registry.AGENTS[agent].presets)
    raise ValueError(" ".join([*parts, f"For any environment there are the presets {presets}."]))


def parse(text: str) -> tuple[Task, ...]:
    """Reads entries and checks them.

    Args:
        text: TOML, an array of tables `task`; the head of `tasks.toml` says what is in one.

    Raises:
        ValueError: an entry is wrong; the message names it by agent and environment.
    """
    content = tomllib.loads(text)
    tables = content.pop("task", [])
    if content:
        raise ValueError(f"Entries must be tables [[task]], got {', '.join(content)} beside them.")
    tasks: list[Task] = []
    for index, table in enumerate(tables):
        name = f"Task {index + 1} ({table.get('agent', '?')} on {table.get('environment', '?')})"
        try:
            task = _parse_task(table)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        if any((task.agent, task.environment) == (other.agent, other.environment) for other in tasks):
            raise ValueError(f"{name}: it is there twice. Put all runs into one entry.")
        tasks.append(task)
    return tuple(tasks)


def _parse_task(table: Mapping[str, Any]) -> Task:
    _check_keys(table, _REQUIRED, _OPTIONAL)
    entry = registry.AGENTS.get(table["agent"])
    if entry is None:
        raise ValueError(f"`agent` must be one of {', '.join(registry.AGENTS)}, got '{table['agent']}'.")
    if table["preset"] not in entry.presets:
        raise ValueError(f"`preset` must be one of {', '.join(entry.presets)}, got '{table['preset']}'.")
    fields = [field.name for field in dataclasses.fields(entry.config)]
    settings = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in table.get("settings", {}).items()
    }
    for name in settings:
        if name not in fields:
            near = difflib.get_close_matches(name, fields, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise ValueError(f"`settings` must be fields of {entry.config.__name__}, got '{name}'.{hint}")
    if table["num_env_steps"] < 1:
        raise ValueError(f"`num_env_steps` must be >= 1, got {table['num_env_steps']}.")
    task = Task(
        agent=table["agent"],
        environment=table["environment"],
        preset=table["preset"],
        settings=MappingProxyType(settings),
        num_env_steps=table["num_env_steps"],
        runs=_parse_runs(table["runs"]),
    )
    try:
        task.make_config()  # the config checks its values
    except TypeError as error:
        raise ValueError(f"`settings` must have values of their fields' types: {error}.") from error
    return task


def _parse_runs(tables: Sequence[Mapping[str, Any]]) -> tuple[Run, ...]:
    if not tables:
        raise ValueError("`runs` must hold at least one run. Train it, then note what it reached.")
    for table in tables:
        _check_keys(table, {"seed": int, "score": (int, float), "std": (int, float)}, {})
    runs = tuple(Run(table["seed"], float(table["score"]), float(table["std"])) for table in tables)
    for run in runs:
        if run.seed < 0 or not math.isfinite(run.score) or not 0.0 <= run.std < math.inf:
            raise ValueError(f"`runs` must have a seed >= 0, a finite score and a std >= 0, got {run}.")
    seeds = [run.seed for run in runs]
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"`runs` must have seeds of their own, got {seeds}.")
    return runs


def _check_keys(table: Mapping[str, Any], required: Mapping[str, Any], optional: Mapping[str, Any]) -> None:
    missing = [name for name in required if name not in table]
    unknown = [name for name in table if name not in required and name not in optional]
    if missing or unknown:
        found = " and ".join(
            f"{what} {', '.join(names)}" for what, names in (("no", missing), ("also", unknown)) if names
        )
        raise ValueError(f"The keys must be {', '.join((*required, *optional))}, got {found}.")
    for name, value in table.items():
        kind = {**required, **optional}[name]
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ValueError(f"`{name}` must not be a {type(value).__name__}, got {value!r}.")


def _flag(name: str, value: Any) -> Iterator[str]:
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        yield f"--{flag}" if value else f"--no-{flag}"
        return
    yield f"--{flag}"
    yield from map(str, value if isinstance(value, tuple) else (value,))
