"""`minerva train --config FILE`: settings from TOML, or from the run.json of another run.

A value of a file goes to the field of its name if it is of that field's type. It never becomes a word of the
command line, which might be read as another flag, and what runs code must be typed.
"""

import dataclasses
import pathlib
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from minerva_acme.agents import registry
from minerva_acme.cli import choices, flags
from minerva_acme.machine import reading
from minerva_acme.runs import env_kwargs, options

_RUN = "run.json"
_TABLES = ("hyperparameters", "options")  # tables whose keys are flags too, as in run.json
_OF_RUNS = ("format", "version", "config", "environment_specs")  # keys of run.json that are not settings
_ENV_KWARGS = ("env_kwargs", "env-kwargs", "environment_settings")  # a table; the last is in run.json
_ONLY_IN_PYTHON = ("environment_factory", "unknown")
_MAY_RUN_CODE = ("env", "address")  # a module's attribute, or a machine whose answers are unpickled
_ONLY_TYPED = ("max_unpacked_gigabytes",)  # what protects from files
_NOT_OF_FILES = ("--config",)
_RUNS_CODE = "names code, which would be run: {}. If you trust the file, name it on the command line: {}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfigFile:
    """The settings of a file."""

    path: pathlib.Path
    agent: str
    """The agent, or "" if the file names none."""
    settings: Mapping[str, Any]
    """The values by flag name, with underscores, as they are in the file."""

    def choose_agent(self, typed: str) -> str:
        """Returns the file's agent.

        Args:
            typed: The agent on the command line, or "" if there is none.

        Raises:
            ValueError: The two agents differ, or the file's agent is none of those that have a name.
        """
        if typed and typed != self.agent:
            raise ValueError(
                f"The agent must be {self.agent}, as in {self.path}, got {typed}. Leave it out, or use "
                "another file."
            )
        if not typed and ":" in self.agent:
            way_out = f"{flags.AGENT} {shlex.quote(self.agent)} --config {shlex.quote(str(self.path))}"
            raise ValueError(f"{self.path} {_RUNS_CODE.format(self.agent, way_out)}")
        return typed or choices.choose("agent", self.agent, registry.entries())

    def values(self, hints: Mapping[str, Any], typed: Iterable[str], command: str) -> dict[str, Any]:
        """Returns the settings by the names of the command's fields, with values of their types.

        Args:
            hints: The command's flags and the types of their values.
            typed: The flags on the command line.
            command: The command, for messages.

        Raises:
            ValueError: A key is not a flag, its value is invalid, or it must be typed and is not; the message
                suggests similar names.
        """
        known = {
            flag: hint
            for flag, hint in hints.items()
            if not flag.startswith("--no-") and flag not in _NOT_OF_FILES
        }
        found: dict[str, Any] = {}
        try:
            for key, value in self.settings.items():
                if isinstance(value, dict):
                    raise ValueError(
                        f"`{key}` must be a number, a string, true, false, or a list of these, got "
                        f"{value!r}. "
                        f"Write each flag as a key; the only tables are {', '.join(_TABLES)} and env_kwargs."
                    )
                flag = flags.find(f"--{key.replace('_', '-')}", known, command)
                name = flag.removeprefix("--").replace("-", "_")
                found[name] = reading.fit(key, value, known[flag])
        except ValueError as error:
            raise ValueError(f"In {self.path}: {error}") from None
        for name in _MAY_RUN_CODE:
            if f"--{name}" not in typed and ":" in (text := str(found.get(name, ""))):
                way_out = f"{command} --config {shlex.quote(str(self.path))} --{name} {shlex.quote(text)}"
                raise ValueError(f"{self.path} {_RUNS_CODE.format(text, way_out)}")
        for name in _ONLY_TYPED:
            flag, usual = f"--{name.replace('_', '-')}", getattr(options.RunOptions, name)
            if flag not in typed and found.get(name, usual) > usual:
                raise ValueError(
                    f"`{name}` must be typed to be above {usual:g}, since it protects from files, "
                    f"got {found[name]:g} in {self.path}. Add {flag} {found[name]:g}"
                )
        return found


def read(path: pathlib.Path) -> ConfigFile:
    """Reads a file.

    Args:
        path: A TOML or JSON file, or a run's folder.

    Raises:
        ValueError: The file is neither, cannot be read, or describes a run that no command can repeat.
    """
    path = path / _RUN if path.is_dir() else path
    is_run = path.suffix == ".json"
    try:
        content = reading.json_file(path, infinite=True, nan=True) if is_run else reading.toml_file(path)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"`config` must be a TOML file or the {_RUN} of a run, got {path}: {reading.why(error)}."
        ) from error
    if not isinstance(content, dict):
        raise ValueError(f"`config` must hold settings by name, got {path} with {content!r}.")
    settings = dict(_flatten(content, path))
    if is_run:
        settings = {options.RENAMED.get(key, key): value for key, value in _of_run(settings, path).items()}
    agent = settings.pop("agent", "")
    if not isinstance(agent, str):
        raise ValueError(f"In {path}: `agent` must be a name, got {agent!r}.")
    return ConfigFile(path=path, agent=agent, settings=settings)


def _flatten(content: Mapping[str, Any], path: pathlib.Path) -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        if key in _TABLES and isinstance(value, dict):
            yield from value.items()
        elif key in _ENV_KWARGS and isinstance(value, dict):
            words = env_kwargs.write(value)
            if env_kwargs.read(words) != env_kwargs.with_tuples(value):
                raise ValueError(
                    f"In {path}: `{key}` must hold arguments by name, of plain values, got {value!r}."
                )
            yield "env_kwargs", words
        else:
            yield key, value


def _of_run(settings: dict[str, Any], path: pathlib.Path) -> dict[str, Any]:
    if found := [name for name in _ONLY_IN_PYTHON if settings.get(name)]:
        raise ValueError(
            f"{path} must describe a run that a command can repeat, but it has {found[0]}, which can only be "
            "set from Python: call `run_experiment`, or continue that run with minerva resume."
        )
    left = {name: value for name, value in settings.items() if name not in (*_OF_RUNS, *_ONLY_IN_PYTHON)}
    others = [name for name in ("tensorboard", "wandb") if left.pop(name, False)]
    return {**left, "log": ["csv", *others]}
