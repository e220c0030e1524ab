"""`minerva train --config FILE`: settings from TOML, or from the run.json of another run."""

import dataclasses
import json
import pathlib
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from minerva_acme.cli import flags

_RUN = "run.json"
_TABLES = ("hyperparameters", "options")  # whose keys are flags too, as in run.json
_OF_RUNS = ("format", "version", "config", "environment_specs")  # what a run's file says beside its settings
_ONLY_IN_PYTHON = ("environment_factory", "environment_settings", "unknown")
_RUNS_CODE = "names code, which would be run: {}. If you trust the file, say it yourself: {}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfigFile:
    """The settings of a file."""

    path: pathlib.Path
    agent: str
    """The agent; "" if the file names none."""
    settings: Mapping[str, Any]
    """Values by the names of flags, with underscores."""
    is_run: bool
    """Whether they are those of a run, and so all there are."""

    def choose_agent(self, typed: str) -> str:
        """Returns the file's agent.

        Args:
            typed: the agent of the command line; "": there is none.

        Raises:
            ValueError: that is another one, or the file's would be code to import.
        """
        if typed and typed != self.agent:
            raise ValueError(
                f"The agent must be the one of {self.path}, {self.agent}, got {typed}. Leave it out, or take "
                "another file."
            )
        if not typed and ":" in self.agent:
            way_out = f"{flags.AGENT} {self.agent} --config {self.path}"
            raise ValueError(f"{self.path} {_RUNS_CODE.format(self.agent, way_out)}")
        return self.agent

    def settle(self, hints: Mapping[str, Any], command: str) -> list[str]:
        """Returns the settings as settled words of the command line.

        Args:
            hints: The command's flags and the types of their values.
            command: The command, for messages.

        Raises:
            ValueError: A key is no flag, or its value cannot be one; the message has the similar ones.
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
        # 1e5 is a float in TOML, also where a whole number is meant.
        return f"{value:.0f}" if isinstance(value, float) and value.is_integer() else str(value)
    raise ValueError(
        f"`{key}` must be a number, a text, true, false, or a list of such, got {value!r}. Write each flag "
        f"as a key; tables may be named {' and '.join(_TABLES)}."
    )


def read(path: pathlib.Path) -> ConfigFile:
    """Reads a file.

    Args:
        path: of TOML or JSON, or a run's folder.

    Raises:
        ValueError: it is neither, cannot be read, or is of a run that no command can repeat.
    """
    path = path / _RUN if path.is_dir() else path
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ValueError(
            f"`config` must be a file in TOML, or a run's {_RUN}, got {path}: {reason}."
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
        else:
            yield key, value


def _of_run(settings: dict[str, Any], path: pathlib.Path) -> dict[str, Any]:
    if found := [name for name in _ONLY_IN_PYTHON if settings.get(name)]:
        raise ValueError(
            f"{path} must be of a run that a command can repeat, but it has {found[0]}, which only Python "
            "gives again: call `run_experiment`, or continue that run by minerva resume."
        )
    left = {name: value for name, value in settings.items() if name not in (*_OF_RUNS, *_ONLY_IN_PYTHON)}
    others = [name for name in ("tensorboard", "wandb") if left.pop(name, False)]
    return {**left, "log": ["csv", *others]}
