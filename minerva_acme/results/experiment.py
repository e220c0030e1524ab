"""An experiment: runs that differ only in environment and seed, with their provenance.

It is stored in two files in the same folder: the rows in `<exp_name>.csv`, the rest in `<exp_name>.json`.
Steps count frames: the environment's own steps, which are the agent's decisions times the action repeat.
"""

import dataclasses
import functools
import importlib.resources
import json
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from minerva_acme.machine import reading, writing
from minerva_acme.results import names
from minerva_acme.results import rows as rows_format
from minerva_acme.results.rows import Row

FORMAT = 2
"""The format of the JSON file."""

_FOLDER = "data"
# A list or an object of plain values, in indented JSON. One whose texts have a bracket is not found.
_LEAF = re.compile(r"[\[{]\n[^\[\]{}]*\n *[\]}]")

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
    """Runs that differ only in environment and seed. Failed runs are kept.

    Runs with different action repeats are different experiments, see `names.with_repeat`.
    """

    exp_name: str
    rows: tuple[Row, ...]
    commands: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """The commands by environment, with {seed} as a placeholder for the seed."""
    contexts: tuple[Context, ...] = ()
    updates_per_frame: float | None = None
    """Learner steps per frame, to be compared with that of published results."""
    action_repeat: int | None = None
    """The number of frames for which a decision of the agent lasts. If it is None, it is unknown, and steps
    count decisions unchanged."""
    notes: str = ""
    counts: Literal["frames", "learner steps"] = "frames"
    """The unit of `env_step`: learner steps if the runs make no environment steps."""

    @property
    def trainings(self) -> list[Training]:
        """All runs that have rows, in order."""
        return list(dict.fromkeys((row.env_name, row.seed) for row in self.rows))

    @property
    def decisions(self) -> dict[str, int]:
        """The number of decisions of the longest run in each environment, up to its last row."""
        last: dict[str, int] = {}
        for row in self.rows:
            last[row.env_name] = max(last.get(row.env_name, 0), row.env_step)
        return {env_name: step // (self.action_repeat or 1) for env_name, step in sorted(last.items())}


def read(path: pathlib.Path) -> list[Experiment]:
    """Reads the experiments in a CSV file, with their provenance if the folder has a JSON file of that name.

    Raises:
        ValueError: One of the files is malformed or of another format, or they belong to different
            experiments.
    """
    beside = path.with_suffix(".json")
    content = None
    if beside.exists():
        with reading.open_file(beside) as file:
            content = file.read()
    return _make(rows_format.read_rows(path), path, content)


def write(directory: pathlib.Path, experiment: Experiment, name: str | None = None) -> list[pathlib.Path]:
    """Writes an experiment's two files.

    Runs without a context get one in which nothing is recorded.

    Args:
        directory: The folder, which is made if it is missing.
        experiment: The experiment.
        name: The name of the files without their suffix, or None for that of the experiment.

    Returns:
        The paths of the files, first that of the rows.

    Raises:
        ValueError: The name cannot be the name of a file.
    """
    directory.mkdir(parents=True, exist_ok=True)
    stem = directory / names.check_name(experiment.exp_name if name is None else name)
    files = [stem.with_name(f"{stem.name}{suffix}") for suffix in (".csv", ".json")]
    content = {"format": FORMAT, **dataclasses.asdict(experiment), "decisions": experiment.decisions}
    del content["rows"]
    if experiment.counts == "frames":
        del content["counts"]
    missing = frozenset(experiment.trainings).difference(*(one.trainings for one in experiment.contexts))
    unknown = [Context(missing, None, None, {}, None)] if missing else []
    content["contexts"] = [
        {**context._asdict(), "trainings": _by_environment(context.trainings)}
        for context in (*experiment.contexts, *unknown)
    ]
    provenance = _LEAF.sub(
        lambda leaf: json.dumps(reading.json_text(leaf[0], infinite=True)), json.dumps(content, indent=1)
    )
    texts = rows_format.format_rows(experiment.rows), f"{provenance}\n"
    # The rows are last: a description of more runs than there are rows of can be read, the reverse cannot.
    for file, text in reversed([*zip(files, texts, strict=True)]):
        writing.replace(file, [text.encode()])
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
        ValueError: The experiments have different names or action repeats, or count other steps.
    """
    for name in ("exp_name", "action_repeat", "counts"):
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
        updates_per_frame=max(filter(None, (old.updates_per_frame, new.updates_per_frame)), default=None),
        notes=" ".join(dict.fromkeys(filter(None, (old.notes, new.notes)))),
    )


def select(experiment: Experiment, environments: Iterable[str]) -> Experiment:
    """Returns an experiment with the runs in some environments only.

    Raises:
        ValueError: It has no run in any of them.
    """
    chosen = set(environments)
    rows = tuple(row for row in experiment.rows if row.env_name in chosen)
    if not rows:
        known = sorted({env_name for env_name, _ in experiment.trainings})
        raise ValueError(
            f"{experiment.exp_name} must have a run in one of {', '.join(sorted(chosen))}, got runs in "
            f"{', '.join(known)}."
        )
    trainings = [
        context._replace(trainings=frozenset(one for one in context.trainings if one[0] in chosen))
        for context in experiment.contexts
    ]
    return dataclasses.replace(
        experiment,
        rows=rows,
        commands={env_name: line for env_name, line in experiment.commands.items() if env_name in chosen},
        contexts=tuple(context for context in trainings if context.trainings),
    )


def _make(rows: Sequence[Row], path: pathlib.Path | str, content: str | bytes | None) -> list[Experiment]:
    exp_names = list(dict.fromkeys(row.exp_name for row in rows))
    if content is None:
        return [
            Experiment(exp_name=name, rows=tuple(row for row in rows if row.exp_name == name))
            for name in exp_names
        ]
    beside = pathlib.Path(path).with_suffix(".json")
    try:
        values = reading.json_text(content, infinite=True)
        version = values.pop("format", 1)
        if version > FORMAT or version < FORMAT:
            newer = "A newer minerva-acme wrote it: pip install -U minerva-acme"
            older = "Its steps count decisions, not frames: collect its runs again, with minerva collect."
            raise _OtherFormatError(
                f"{beside} must be of format {FORMAT}, got {version}. {newer if version > FORMAT else older}"
            )
        values.pop("decisions", None)  # follows from the rows
        contexts = tuple(map(_make_context, values.pop("contexts")))
        fields = reading.fit_fields(Experiment, values)
        made = Experiment(**fields, rows=tuple(rows), contexts=contexts)
    except _OtherFormatError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{beside} must say what produced the rows of its CSV file, but is malformed: "
            f"{reading.why(error)}."
        ) from error
    if exp_names != [made.exp_name]:
        raise ValueError(f"{path} must only have rows of {made.exp_name}, got {', '.join(exp_names)}.")
    if unknown := set(made.trainings).difference(*(context.trainings for context in contexts)):
        raise ValueError(f"{beside} must have a context for every run, got none for {sorted(unknown)}.")
    return [made]


def _make_context(values: Mapping[str, Any]) -> Context:
    others = {name: value for name, value in values.items() if name != "trainings"}
    trainings = reading.fit("trainings", values["trainings"], dict[str, tuple[int, ...]])
    return Context(
        frozenset((env_name, seed) for env_name, seeds in trainings.items() for seed in seeds),
        **reading.fit_fields(Context, others),
    )


class _OtherFormatError(ValueError):
    pass


def _by_environment(trainings: Iterable[Training]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for env_name, seed in sorted(trainings):
        found.setdefault(env_name, []).append(seed)
    return found
