"""What a run's folder says of the run: `run.json`."""

import contextlib
import dataclasses
import json
import os
import pathlib
from collections.abc import Iterator
from typing import Any

from minerva_acme import _version, builders, constraints
from minerva_acme.agents import registry

_FILE = "run.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunDescription:
    """What a run is; all but the options must be the same for it to be resumed."""

    agent: str
    environment: str
    seed: int
    hyperparameters: dict[str, Any]
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    """The `RunOptions` it was last started with; empty in the folder of an older version."""

    def __post_init__(self) -> None:
        constraints.check_fields(self)

    def write(self, directory: pathlib.Path) -> None:
        """Writes it, if what lies there is the same run or nothing.

        Raises:
            ValueError: the folder holds another run; the message names what differs.
        """
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OSError(
                f"There must be a folder for the run, but {directory} cannot be made: {error.strerror}. "
                "Choose another --directory, or see to the rights there."
            ) from error
        if (directory / _FILE).exists():
            self._check_same_as(read(directory), directory)
        content = {"version": _version.__version__, **dataclasses.asdict(self)}
        # Replaced as a whole: whoever reads it meanwhile finds one or the other.
        written = directory / f".{_FILE}.new"
        written.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        os.replace(written, directory / _FILE)

    def _check_same_as(self, found: "RunDescription", directory: pathlib.Path) -> None:
        asked, there = self._identity(), found._identity()
        differences = [
            f"{key} is {there.get(key)!r} there, {asked.get(key)!r} here"
            for key in sorted(asked | there)
            if asked.get(key) != there.get(key)
        ]
        if differences:
            raise ValueError(
                f"{directory} holds another run: {'; '.join(differences)}. "
                f"Choose another --directory, or resume it as it is: minerva resume {directory}"
            )

    def _identity(self) -> dict[str, Any]:
        """Returns what may not change, hyperparameters and all else, as JSON gives it back."""
        content = json.loads(json.dumps(dataclasses.asdict(self)))
        del content["options"]
        return {**content.pop("hyperparameters"), **content}

    def make_config(self) -> Any:
        """Makes the agent's config."""
        values = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in self.hyperparameters.items()
        }
        return registry.AGENTS[self.agent].config(**values)

    def make_builder(self) -> builders.AgentBuilder[Any]:
        """Makes the agent's builder."""
        return registry.AGENTS[self.agent].builder(self.make_config())


@contextlib.contextmanager
def extra(name: str) -> Iterator[None]:
    """Turns the ImportError of a package that a command alone needs into a ValueError with the way out."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ValueError(
            f"`minerva {name}` needs '{error.name}', which is not installed: "
            f"pip install 'minerva-acme[{name}]'"
        ) from error


def read(directory: pathlib.Path) -> RunDescription:
    """Reads the description of a run.

    Raises:
        ValueError: there is no run in that folder, or what lies there describes none.
    """
    path = directory / _FILE
    if not path.exists():
        raise ValueError(
            f"There is no run in {directory}: {_FILE} is missing. Give the folder of a trained run."
        )
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        content.pop("version", None)
        description = RunDescription(**content)
    except (AttributeError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} does not describe a run that this version knows: {error}. "
            "Give the folder of another run, or train anew."
        ) from error
    if description.agent not in registry.AGENTS:
        raise ValueError(
            f"{path} is a run of the agent '{description.agent}', which is not registered here; "
            f"there are {', '.join(registry.AGENTS)}."
        )
    return description
