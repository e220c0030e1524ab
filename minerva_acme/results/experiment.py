"""An experiment: runs that differ only in environment and seed, with their provenance.

It is stored in two files in the same folder: the rows in `<exp_name>.csv`, the rest in `<exp_name>.json`.
"""

import dataclasses
import functools
import importlib.resources
import json
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from minerva_acme.results import rows as rows_format
from minerva_acme.results.rows import Row

_NAME = re.compile(r"[A-Za-z0-9][\w.+=-]{0,120}")
_FOLDER = "data"

Training = tuple[str, int]
"""A run: its environment and seed."""


class Context(NamedTuple):
    """The software and machine of some runs. None: not recorded."""

    trainings: frozenset[Training]
    version: str | None  # of minerva-acme
    commit: str | None  # ends in -dirty if files had been changed
    packages: Mapping[str, str]  # installed versions by name
    machine: str | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment:
    """Runs that differ only in environment and seed. Failed runs are kept."""

    exp_name: str
    rows: tuple[Row, ...]
    commands: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """The commands by environment, with {seed} as a placeholder for the seed."""
    contexts: tuple[Context, ...] = ()
    updates_per_step: float | None = None
    """Learner steps per environment step."""
    action_repeat: int | None = None
    """The number of environment steps for which an action of the agent is repeated."""
    notes: str = ""

    @property
    def trainings(self) -> list[Training]:
        """All runs that have rows, in order."""
        return list(dict.fromkeys((row.env_name, row.seed) for row in self.rows))


def make_name(agent: str, preset: str, changes: Mapping[str, Any]) -> str:
    """Returns the name of an experiment, such as mpo_control+critic_target=one_step.

    Args:
        agent: The agent's name.
        preset: The name of the agent's preset.
        changes: The settings that differ from the preset.
    """
    parts = [f"{name}={_plain(value)}" for name, value in sorted(changes.items())]
    return "+".join([f"{agent}_{preset}", *parts])


def check_name(exp_name: str) -> str:
    """Returns the name if it can be the name of a file.

    Raises:
        ValueError: The name is too long, or contains other characters.
    """
    if not _NAME.fullmatch(exp_name):
        raise ValueError(
            "The name of an experiment must be at most 121 letters, digits and _ . + = -, beginning with a "
            f"letter or digit, got '{exp_name}'. Set it with --name"
        )
    return exp_name


def read(path: pathlib.Path) -> list[Experiment]:
    """Reads the experiments in a CSV file, with their provenance if the folder has a JSON file of that name.

    Raises:
        ValueError: One of the files is malformed, or they belong to different experiments.
    """
    beside = path.with_suffix(".json")
    return _make(
        rows_format.read_rows(path), path, beside.read_text(encoding="utf-8") if beside.exists() else None
    )


def write(directory: pathlib.Path, experiment: Experiment) -> list[pathlib.Path]:
    """Writes an experiment's two files; returns their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    stem = directory / check_name(experiment.exp_name)
    files = [stem.with_name(f"{stem.name}{suffix}") for suffix in (".csv", ".json")]
    content = dataclasses.asdict(experiment)
    del content["rows"]
    content["contexts"] = [
        {**context._asdict(), "trainings": _by_environment(context.trainings)}
        for context in experiment.contexts
    ]
    for file, text in zip(
        files, (rows_format.format_rows(experiment.rows), json.dumps(content, indent=1) + "\n"), strict=True
    ):
        # Files are replaced as a whole: an interrupted write keeps the old file.
        new = file.with_name(f".{file.name}.new")
        new.write_text(text, encoding="utf-8")
        new.replace(file)
    return files


@functools.cache
def load() -> Mapping[str, Experiment]:
    """Returns the experiments that are installed with this library, by name."""
    folder = importlib.resources.files("minerva_acme.results") / _FOLDER
    found = {}
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".csv"):
            beside = folder / f"{file.name.removesuffix('.csv')}.json"
            rows = rows_format.parse_rows(file.read_text(encoding="utf-8"), file.name)
            for experiment in _make(rows, file.name, beside.read_text(encoding="utf-8")):
                found[experiment.exp_name] = experiment
    return MappingProxyType(found)


def merge(old: Experiment, new: Experiment) -> Experiment:
    """Adds runs to an experiment; a new run replaces an old one with the same environment and seed.

    Raises:
        ValueError: The experiments have different names or action repeats.
    """
    for name in ("exp_name", "action_repeat"):
        one, other = getattr(old, name), getattr(new, name)
        if one != other:
            raise ValueError(
                f"Runs of one experiment must have the same `{name}`, got {one} and {other} for "
                f"{new.exp_name}. Give one of them another name: --name"
            )
    replaced = set(new.trainings)
    kept = [row for row in old.rows if (row.env_name, row.seed) not in replaced]
    trainings: dict[str, tuple[Context, set[Training]]] = {}
    for context in (
        *(c._replace(trainings=c.trainings - replaced) for c in old.contexts),
        *new.contexts,
    ):
        key = json.dumps([*context[1:]], sort_keys=True)
        trainings.setdefault(key, (context, set()))[1].update(context.trainings)
    return dataclasses.replace(
        old,
        rows=(*kept, *new.rows),
        commands={**old.commands, **new.commands},
        contexts=tuple(c._replace(trainings=frozenset(of)) for c, of in trainings.values() if of),
        # The ratio of a run that ended early is too low: it made most of its steps before learning began.
        updates_per_step=max(filter(None, (old.updates_per_step, new.updates_per_step)), default=None),
        notes=" ".join(dict.fromkeys(filter(None, (old.notes, new.notes)))),
    )


def _make(rows: Sequence[Row], path: pathlib.Path | str, content: str | None) -> list[Experiment]:
    names = list(dict.fromkeys(row.exp_name for row in rows))
    if content is None:
        return [
            Experiment(exp_name=name, rows=tuple(row for row in rows if row.exp_name == name))
            for name in names
        ]
    beside = pathlib.Path(path).with_suffix(".json")
    try:
        values = json.loads(content)
        contexts = tuple(
            Context(
                **{
                    **context,
                    "trainings": frozenset(
                        (env_name, seed) for env_name, seeds in context["trainings"].items() for seed in seeds
                    ),
                }
            )
            for context in values.pop("contexts")
        )
        experiment = Experiment(**values, rows=tuple(rows), contexts=contexts)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{beside} must say what produced the rows of its CSV file, but is malformed: {error!r}."
        ) from error
    if names != [experiment.exp_name]:
        raise ValueError(f"{path} must only have rows of {experiment.exp_name}, got {', '.join(names)}.")
    unknown = set(experiment.trainings) - {one for context in contexts for one in context.trainings}
    if unknown:
        raise ValueError(f"{beside} must have a context for every run, got none for {sorted(unknown)}.")
    return [experiment]


def _by_environment(trainings: Iterable[Training]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for env_name, seed in sorted(trainings):
        found.setdefault(env_name, []).append(seed)
    return found


def _plain(value: Any) -> str:
    if isinstance(value, tuple | list):
        return "-".join(map(_plain, value))
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
