"""What a run's folder says of the run: `run.json`."""

import dataclasses
import json
import pathlib
from typing import Any

from minerva_acme import _version, builders
from minerva_acme.agents import registry

_FILE = "run.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunDescription:
    """What must be the same for a run to be resumed."""

    agent: str
    environment: str
    seed: int
    hyperparameters: dict[str, Any]

    def write(self, directory: pathlib.Path) -> None:
        """Writes it, or checks that what lies there is the same.

        Raises:
            ValueError: the folder holds another run; the message names what differs.
        """
        directory.mkdir(parents=True, exist_ok=True)
        if (directory / _FILE).exists():
            self._check_same_as(read(directory), directory)
            return
        content = {"version": _version.__version__, **dataclasses.asdict(self)}
        (directory / _FILE).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")

    def _check_same_as(self, found: "RunDescription", directory: pathlib.Path) -> None:
        asked, there = _flat(self), _flat(found)
        differences = [
            f"{key} is {there.get(key)!r} there, {asked.get(key)!r} here"
            for key in sorted(asked.keys() | there.keys())
            if asked.get(key) != there.get(key)
        ]
        if differences:
            raise ValueError(
                f"{directory} holds another run: {'; '.join(differences)}. "
                "Choose another --directory, or the same settings to resume it."
            )

    def make_builder(self) -> builders.AgentBuilder[Any]:
        """Makes the agent's builder."""
        entry = registry.AGENTS[self.agent]
        values = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in self.hyperparameters.items()
        }
        return entry.builder(entry.config(**values))


def read(directory: pathlib.Path) -> RunDescription:
    """Reads the description of a run.

    Raises:
        ValueError: there is no run in that folder.
    """
    path = directory / _FILE
    if not path.exists():
        raise ValueError(
            f"There is no run in {directory}: {_FILE} is missing. Give the folder of a trained run."
        )
    content = json.loads(path.read_text(encoding="utf-8"))
    content.pop("version", None)
    return RunDescription(**content)


def _flat(description: RunDescription) -> dict[str, Any]:
    content = json.loads(json.dumps(dataclasses.asdict(description)))
    return {**content.pop("hyperparameters"), **content}
