"""An experiment: trainings that differ in environment and seed, and what produced them.

It is two files: `<exp_name>.csv` with the rows, and beside it `<exp_name>.json`. Steps count frames: the
environment's own steps, which are the agent's decisions times the action repeat.
"""

import dataclasses
import functools
import importlib.resources
import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from minerva_acme.results import format_1, names
from minerva_acme.results import rows as rows_format
from minerva_acme.results.rows import Row

FORMAT = 2
"""The format that is written. Files of format 1 hold no number, and count decisions."""

_FOLDER = "data"

Training = tuple[str, int]
"""Environment and seed."""


class Context(NamedTuple):
    """What some trainings were made by and on. None: nobody wrote it down."""

    trainings: frozenset[Training]
    version: str | None  # of minerva-acme
    commit: str | None  # with -dirty where files had been changed
    packages: Mapping[str, str]  # the versions that were installed
    machine: str | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment:
    """Trainings that differ in environment and seed alone. Failed ones are kept.

    Runs that repeat actions differently often are different experiments, see `names.with_repeat`.
    """

    exp_name: str
    rows: tuple[Row, ...]
    commands: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """By environment, with {seed} where the seed goes."""
    contexts: tuple[Context, ...] = ()
    updates_per_frame: float | None = None
    """Learner steps for a frame, to be compared with that of published results."""
    action_repeat: int | None = None
    """Frames for which a decision of the agent lasts. None: unknown; the steps then count decisions, as they
    are."""
    notes: str = ""

    @property
    def trainings(self) -> list[Training]:
        """All that there are rows of, in order."""
        return list(dict.fromkeys((row.env_name, row.seed) for row in self.rows))

    @property
    def decisions(self) -> dict[str, int]:
        """How many decisions the longest training of each environment had made at its last row."""
        last: dict[str, int] = {}
        for row in self.rows:
            last[row.env_name] = max(last.get(row.env_name, 0), row.env_step)
        return {env_name: step // (self.action_repeat or 1) for env_name, step in sorted(last.items())}


def read(path: pathlib.Path) -> list[Experiment]:
    """Reads the experiments of a CSV file; what produced them, if a JSON file of its name is beside it.

    Experiments of format 1 become those of today: their steps are multiplied by the action repeats that stand
    in the environments' names, and an experiment with several repeats becomes several. Rows without a JSON
    file are taken for such where one of their environments is named with `repeat=`.

    Raises:
        ValueError: one of the files is not as it must be or of a newer format, or they are of different
            experiments.
    """
    beside = path.with_suffix(".json")
    return _make(
        rows_format.read_rows(path), path, beside.read_text(encoding="utf-8") if beside.exists() else None
    )


def write(directory: pathlib.Path, experiment: Experiment) -> list[pathlib.Path]:
    """Writes an experiment's two files; returns their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    stem = directory / names.check_name(experiment.exp_name)
    files = [stem.with_name(f"{stem.name}{suffix}") for suffix in (".csv", ".json")]
    content = {"format": FORMAT, **dataclasses.asdict(experiment), "decisions": experiment.decisions}
    del content["rows"]
    content["contexts"] = [
        {**context._asdict(), "trainings": _by_environment(context.trainings)}
        for context in experiment.contexts
    ]
    texts = rows_format.format_rows(experiment.rows), json.dumps(content, indent=1) + "\n"
    new = [file.with_name(f".{file.name}.new") for file in files]
    for path, text in zip(new, texts, strict=True):
        path.write_text(text, encoding="utf-8")
    # Replaced as a whole: an interrupted write leaves the old files.
    for path, file in zip(new, files, strict=True):
        path.replace(file)
    return files


@functools.cache
def load() -> Mapping[str, Experiment]:
    """Returns this library's own experiments by name, from the files that are installed with it."""
    folder = importlib.resources.files("minerva_acme.results") / _FOLDER
    found = {}
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".csv"):
            beside = folder / f"{file.name.removesuffix('.csv')}.json"
            rows = rows_format.parse_rows(file.read_text(encoding="utf-8"), file.name)
            for experiment in _make(rows, file.name, beside.read_text(encoding="utf-8")):
                found[experiment.exp_name] = experiment
    return MappingProxyType(found)


def migrate(directory: pathlib.Path) -> dict[pathlib.Path, list[pathlib.Path]]:
    """Writes a folder's experiments of older formats as those of today; what it has of them already stays.

    New files are written before old ones are removed, so that an interrupted call loses nothing.

    Returns:
        The new files of rows, by the old one.

    Raises:
        ValueError: A file cannot be read, as of `read`.
    """
    changed = {}
    for beside in sorted(directory.glob("*.json")):
        old = beside.with_suffix(".csv")
        if not old.exists() or not (found := _read_older(beside)):
            continue
        # What takes the place of the old file is last: until then all is in it.
        found.sort(key=lambda one: one.exp_name == old.stem)
        new = []
        for one in found:
            path = directory / f"{one.exp_name}.csv"
            there = read(path) if path != old and path.exists() else []
            new.append(write(directory, functools.reduce(merge, [one, *there]))[0])
        if old not in new:
            old.unlink()
            beside.unlink()
        changed[old] = new
    return changed


def merge(old: Experiment, new: Experiment) -> Experiment:
    """Adds trainings to an experiment; one with the environment and seed of an old one replaces it.

    Raises:
        ValueError: they are different experiments, or their agents act differently often.
    """
    for name in ("exp_name", "action_repeat"):
        one, other = getattr(old, name), getattr(new, name)
        if one != other:
            raise ValueError(
                f"Trainings of one experiment must agree in `{name}`, got {one} and {other} of "
                f"{new.exp_name}. Name one of them apart: --name"
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
        # A run that ended early has waited for its first learner step for most of its steps.
        updates_per_frame=max(filter(None, (old.updates_per_frame, new.updates_per_frame)), default=None),
        notes=" ".join(dict.fromkeys(filter(None, (old.notes, new.notes)))),
    )


def _read_older(beside: pathlib.Path) -> list[Experiment]:
    """Reads experiments of an older format; none where the file is of today's, or no experiment's."""
    try:
        content = json.loads(beside.read_text(encoding="utf-8"))
        is_older = "exp_name" in content and content.get("format", 1) < FORMAT
    except (AttributeError, TypeError, ValueError):
        return []
    return read(beside.with_suffix(".csv")) if is_older else []


def _make(rows: Sequence[Row], path: pathlib.Path | str, content: str | None) -> list[Experiment]:
    exp_names = list(dict.fromkeys(row.exp_name for row in rows))
    if content is None:
        found = []
        for name in exp_names:
            of_name = tuple(row for row in rows if row.exp_name == name)
            bare = {"exp_name": name, "contexts": []}
            is_old = format_1.is_of_format_1(of_name)
            for part in format_1.convert(bare, of_name) if is_old else [(bare, of_name)]:
                found.append(_make_one(*part))
        return found
    beside = pathlib.Path(path).with_suffix(".json")
    try:
        values = json.loads(content)
        version, exp_name = values.pop("format", 1), values["exp_name"]
        if version > FORMAT:
            raise _TooNewError(
                f"{beside} must be of format {FORMAT} or older, got {version}. A newer minerva-acme wrote "
                "it: pip install -U minerva-acme"
            )
        values.pop("decisions", None)  # follows from the rows
        parts = [(values, tuple(rows))] if version == FORMAT else format_1.convert(values, rows)
        found = [_make_one(*part) for part in parts]
    except _TooNewError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{beside} must say what produced the rows beside it, but does not: {error!r}."
        ) from error
    if exp_names != [exp_name]:
        raise ValueError(f"{path} must hold the rows of {exp_name} alone, got {', '.join(exp_names)}.")
    for one in found:
        unknown = set(one.trainings) - {
            training for context in one.contexts for training in context.trainings
        }
        if unknown:
            raise ValueError(
                f"{beside} must have every training in a context, got none of {sorted(unknown)}."
            )
    return found


def _make_one(values: Mapping[str, Any], rows: tuple[Row, ...]) -> Experiment:
    contexts = tuple(
        Context(
            **{
                **context,
                "trainings": frozenset(
                    (env_name, seed) for env_name, seeds in context["trainings"].items() for seed in seeds
                ),
            }
        )
        for context in values["contexts"]
    )
    return Experiment(**{**values, "rows": rows, "contexts": contexts})


class _TooNewError(ValueError):
    pass


def _by_environment(trainings: Iterable[Training]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for env_name, seed in sorted(trainings):
        found.setdefault(env_name, []).append(seed)
    return found
