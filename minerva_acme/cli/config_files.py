"""`minerva train --config FILE`: settings from TOML, or from the run.json of another run."""

import dataclasses
import json
import pathlib
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from minerva_acme.cli import flags
from minerva_acme.runs import env_kwargs

_RUN = "run.json"
_TABLES = ("hyperparameters", "options")  # tables whose keys are flags too, as in run.json
_OF_RUNS = ("format", "version", "config", "environment_specs")  # keys of run.json that are not settings
_ENV = ("env", "environment")
_ENV_KWARGS = ("env_kwargs", "env-kwargs", "environment_settings")  # a table; the last is in run.json
_ONLY_IN_PYTHON = ("environment_factory", "unknown")
_RUNS_CODE = "names code, which would be run: {}. If you trust the file, name it on the command line: {}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfigFile:
    """The settings of a file."""

    path: pathlib.Path
    agent: str
    """The agent, or "" if the file names none."""
    settings: Mapping[str, Any]
    """The values by flag name, with underscores."""
    is_run: bool
    """Whether the file is the run.json of a run, which has all settings."""

    def choose_agent(self, typed: str) -> str:
        """Returns the file's agent.

        Args:
            typed: The agent on the command line, or "" if there is none.

        Raises:
            ValueError: The two agents differ, or the file's agent would be imported code.
        """
        if typed and typed != self.agent:
            raise ValueError(
                f"The agent must be {self.agent}, as in {self.path}, got {typed}. Leave it out, or use "
                "another file."
            )
        if not typed and ":" in self.agent:
            way_out = f"{flags.AGENT} {self.agent} --config {self.path}"
            raise ValueError(f"{self.path} {_RUNS_CODE.format(self.agent, way_out)}")
        return self.agent

    def check_environment(self, typed: str | None, command: str) -> None:
        """Checks that code which makes the environment is named on the command line.

        Args:
            typed: The environment on the command line, if there is one.
            command: The command, for the message.

        Raises:
            ValueError: Only the file names it.
        """
        for name in _ENV:
            environment = str(self.settings.get(name, ""))
            if typed is None and ":" in environment:
                way_out = f"{command} --config {shlex.quote(str(self.path))} --env {environment}"
                raise ValueError(f"{self.path} {_RUNS_CODE.format(environment, way_out)}")

    def settle(self, hints: Mapping[str, Any], command: str) -> list[str]:
        """Returns the settings as normalised words of the command line.

        Args:
            hints: The command's flags and the types of their values.
            command: The command, for messages.

        Raises:
            ValueError: A key is not a flag, or its value is invalid; the message suggests similar names.
        """
        words: list[str] = []
        try:
            for key, value in self.settings.items():
                if isinstance(value, bool):
                    words.append(f"--{key}" if value else f"--no-{key}")
                else:
                    values = value if isinstance(value, list) else [value]
                    words += [f"--{key}", *(_word(key, part) for part in values)]
            return flags.settle(words, hints, command)[1]
        except ValueError as error:
            raise ValueError(f"In {self.path}: {error}") from None


def _word(key: str, value: Any) -> str:
    if value is None or (isinstance(value, int | float | str) and not isinstance(value, bool)):
        # 1e5 is a float in TOML, even where an integer is meant.
        return f"{value:.0f}" if isinstance(value, float) and value.is_integer() else str(value)
    raise ValueError(
        f"`{key}` must be a number, a string, true, false, or a list of these, got {value!r}. Write each "
        f"flag as a key; the only tables are {' and '.join(_TABLES)}."
    )


def read(path: pathlib.Path) -> ConfigFile:
    """Reads a file.

    Args:
        path: A TOML or JSON file, or a run's folder.

    Raises:
        ValueError: The file is neither, cannot be read, or describes a run that no command can repeat.
    """
    path = path / _RUN if path.is_dir() else path
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ValueError(
            f"`config` must be a TOML file or the {_RUN} of a run, got {path}: {reason}."
        ) from error
    if not isinstance(content, dict):
        raise ValueError(f"`config` must hold settings by name, got {path} with {content!r}.")
    is_run = path.suffix == ".json"
    settings = dict(_flatten(content))
    if is_run:
        settings = _of_run(settings, path)
    return ConfigFile(path=path, agent=str(settings.pop("agent", "")), settings=settings, is_run=is_run)


def _flatten(content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        if key in _TABLES and isinstance(value, dict):
            yield from value.items()
        elif key in _ENV_KWARGS and isinstance(value, dict):
            if value:
                yield "env_kwargs", env_kwargs.write(value)
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
