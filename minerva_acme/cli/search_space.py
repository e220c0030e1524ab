"""The settings that `minerva sweep --optuna` searches, and the runs of a trial, as plain values."""

import contextlib
import dataclasses
import math
import pathlib
import re
import shlex
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from minerva_acme import constraints
from minerva_acme.agents import registry
from minerva_acme.cli import choices, commands, flags, sweep_plan
from minerva_acme.runs import env_kwargs, run_names

Params: TypeAlias = Mapping[str, int | float | str]
"""The values of a trial by field: a number, or one of a dimension's choices."""

_RANGE = re.compile(r"([^=]+)(?:=(.+?)\.\.(.+?)(:log)?)?")
_PRESET = "--preset"


class Dimension(NamedTuple):
    """The values that a search tries for one field."""

    range: constraints.Range | None  # None: one of the choices
    is_whole: bool = False  # whether the numbers of the range are whole
    # By their text, the words of the command line as they were typed, which include the flag.
    choices: Mapping[str, tuple[str, ...]] = MappingProxyType({})

    def __str__(self) -> str:
        """Returns the values for display."""
        return " | ".join(self.choices) if self.range is None else str(self.range)

    def ends(self) -> tuple[int | float | str, ...]:
        """Returns both ends of the range, or all choices."""
        if self.range is None:
            return tuple(self.choices)
        return tuple(int(end) if self.is_whole else float(end) for end in self.range[:2])

    def holds(self, value: Any) -> bool:
        """Returns whether a value is one of the range, or one of the choices."""
        if self.range is None:
            return isinstance(value, str) and value in self.choices
        is_number = isinstance(value, int if self.is_whole else float) and not isinstance(value, bool)
        return is_number and self.range.low <= value <= self.range.high


class Space(NamedTuple):
    """What a search varies, and what it leaves as it is."""

    dimensions: Mapping[str, Dimension]  # by field
    fixed: commands.Settings  # flags with one value

    def extremes(self) -> Iterator[Params]:
        """Yields settings that together have every choice and both ends of every range."""
        ends = {name: dimension.ends() for name, dimension in self.dimensions.items()}
        for index in range(max(map(len, ends.values()))):
            yield {name: values[index % len(values)] for name, values in ends.items()}

    def check(self, params: Any) -> Params:
        """Returns the values of a trial, which were read from a file, if this search may have chosen them.

        Raises:
            ValueError: It may not: a setting is missing or unknown, or a value is none of those to try.
        """
        if not isinstance(params, dict) or params.keys() != self.dimensions.keys():
            raise ValueError(f"a trial must have values of {', '.join(self.dimensions)}, got {params!r}")
        for name, value in params.items():
            if not (dimension := self.dimensions[name]).holds(value):
                raise ValueError(f"`{name}` of a trial must be one of {dimension}, got {value!r}")
        return params


def directory_of(sweep: commands.Sweep) -> pathlib.Path:
    """Returns the folder of a search. By default its name has the agent and the environment."""
    environment = run_names.environment_name(sweep.env[0], env_kwargs.read(sweep.env_kwargs))
    name = f"{sweep.agent.rpartition(':')[2]}-{environment}-optuna"
    return sweep.directory or pathlib.Path("runs", "sweeps", name)


def make_space(sweep: commands.Sweep) -> Space:
    """Returns what a search varies.

    It varies the fields that `--search` names. By default these are all fields of the agent's config that
    declare a range (`constraints.Range`). A flag with one value is not varied, and one with several values is
    a choice among them.

    Raises:
        ValueError: A range or flag is invalid, or there is nothing to search.
    """
    hints = dict(flags.of(registry.find(sweep.agent).config))
    declared = {flag: found for flag, hint in hints.items() if (found := constraints.search_range(hint))}
    dimensions: dict[str, Dimension] = {}
    for text in sweep.search or [flag for flag in declared if flag not in dict(sweep.settings)]:
        flag, given = _read(text, hints)
        if flag in dict(sweep.settings):
            raise ValueError(
                f"`{flag}` must be given either as a flag or in --search, got both. Leave one of them out."
            )
        dimensions[_field(flag)] = _dimension(flag, given or declared.get(flag), hints)
    fixed = tuple((flag, values) for flag, values in sweep.settings if len(values) == 1)
    for flag, values in sweep.settings:
        if len(values) > 1 and flag in (_PRESET, *hints):
            dimensions[_field(flag)] = Dimension(None, choices={shlex.join(words): words for words in values})
        elif len(values) > 1:
            raise ValueError(
                f"`{flag}` must have one value with --optuna, which only varies the agent's settings, got "
                f"{len(values)}."
            )
    if not dimensions:
        raise ValueError(
            f"There is nothing to search: no field of {sweep.agent}'s config declares a range that is not "
            "given as a flag. Name one: --search learning-rate=1e-5..1e-3:log"
        )
    return Space(dict(sorted(dimensions.items())), fixed)


def plan_trial(
    sweep: commands.Sweep, space: Space, number: int, params: Params
) -> tuple[sweep_plan.PlannedRun, ...]:
    """Returns the runs of a trial, one for each seed: a sweep over seeds, in a folder of its own.

    Raises:
        ValueError: These values together are invalid.
    """
    chosen = tuple(
        (
            _flag(name),
            (
                space.dimensions[name].choices[value]
                if isinstance(value, str)
                else (_flag(name), repr(value)),
            ),
        )
        for name, value in params.items()
    )
    trial = dataclasses.replace(
        sweep, settings=(*space.fixed, *chosen), directory=directory_of(sweep) / f"trial{number:04d}"
    )
    return tuple(
        run._replace(title=f"trial {number}, seed {run.train.run.seed}")
        for run in sweep_plan.make_plan(trial)
    )


def _read(text: str, hints: Mapping[str, Any]) -> tuple[str, constraints.Range | None]:
    """Reads NAME or NAME=LOW..HIGH[:log]; returns the flag, and the range if there is one."""
    match = _RANGE.fullmatch(text)
    if match is None:
        raise ValueError(
            f"`search` must be NAME or NAME=LOW..HIGH or NAME=LOW..HIGH:log, got '{text}'. For example: "
            "--search learning-rate=1e-5..1e-3:log discount=0.9..0.999"
        )
    name, low, high, log = match.groups()
    names = [_field(flag).replace("_", "-") for flag in hints if not flag.startswith("--no-")]
    flag = _flag(choices.choose("setting", name.removeprefix("--").replace("_", "-"), names))
    if low is None:
        return flag, None
    with contextlib.suppress(ValueError):
        found = constraints.Range(float(low), float(high), log is not None)
        if -math.inf < found.low < found.high < math.inf and (found.low > 0 or not found.log):
            return flag, found
    raise ValueError(f"`search` must have finite numbers LOW < HIGH, and LOW > 0 with :log, got '{text}'.")


def _dimension(flag: str, found: constraints.Range | None, hints: Mapping[str, Any]) -> Dimension:
    kind, many, _ = flags.read(hints[flag])
    if many or kind not in (int, float):
        raise ValueError(
            f"`{flag}` is not a number, so it has no range. Give the values to try to its flag: {flag} ..."
        )
    if found is None:
        raise ValueError(
            f"`{flag}` declares no range. Give one: --search {flag.removeprefix('--')}=LOW..HIGH"
        )
    if kind is int and not (float(found.low).is_integer() and float(found.high).is_integer()):
        raise ValueError(f"`{flag}` must be a whole number, got the range {found}.")
    return Dimension(found, is_whole=kind is int)


def _field(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
