"""What a sweep runs, as a plain value: a run for each setting, environment and seed."""

import dataclasses
import hashlib
import itertools
import pathlib
import re
import shlex
from typing import Any, NamedTuple

from minerva_acme.cli import commands, parsing

_MAX_NAME = 100  # characters of a name before it is cut


class PlannedRun(NamedTuple):
    """One training."""

    experiment: str  # its setting, such as mpo_control+discount=0.98
    title: str  # what tells it from the sweep's others
    directory: pathlib.Path
    words: tuple[str, ...]  # of the command, behind `minerva`
    train: commands.Train  # the same, parsed

    @property
    def command(self) -> str:
        """The shell command that trains it."""
        return shlex.join(["minerva", *self.words])


def directory_of(sweep: commands.Sweep) -> pathlib.Path:
    """Returns the folder of a sweep."""
    return sweep.directory or pathlib.Path("runs", "sweeps", sweep.agent.rpartition(":")[2])


def make_plan(sweep: commands.Sweep) -> tuple[PlannedRun, ...]:
    """Returns the runs of a sweep: settings, environments and seeds, the last varying first.

    Each is in <directory>/<setting>/<environment>/seed<seed>. A setting is named by agent, preset, the
    agent's hyperparameters that were given, and what else has several values. So more values, environments or
    seeds leave the folders of those before where they are.

    Raises:
        ValueError: a value is wrong, there are no runs, or two of them would be the same.
    """
    for name, given in {"env": sweep.env, "seeds": sweep.seeds}.items():
        if not given:
            raise ValueError(f"`{name}` must be at least one, got none.")
    if min(sweep.seeds) < 0:
        raise ValueError(f"`seeds` must be >= 0, got {min(sweep.seeds)}.")
    flags = [flag for flag, _ in sweep.settings]
    planned: list[PlannedRun] = []
    of_identity: dict[tuple[Any, ...], PlannedRun] = {}
    for values in itertools.product(*(values for _, values in sweep.settings)):
        setting = dict(zip(flags, values, strict=True))
        for environment in sweep.env:
            words = ("train", sweep.agent, "--env", environment, *itertools.chain(*values))
            train = parsing.parse(words)
            name, varied = _names(sweep, train, setting)
            for seed in sweep.seeds:
                directory = directory_of(sweep) / name / _short(environment.replace("/", "-")) / f"seed{seed}"
                run = PlannedRun(
                    name,
                    ", ".join([*varied, environment, f"seed {seed}"]),
                    directory,
                    (*words, "--seed", str(seed), "--directory", str(directory)),
                    dataclasses.replace(
                        train, run=dataclasses.replace(train.run, seed=seed), directory=directory
                    ),
                )
                identity = (
                    environment.removeprefix("gymnasium/"),
                    seed,
                    train.hyperparameters,
                    train.run,
                    train.log,
                )
                if identity in of_identity:
                    raise ValueError(
                        f"Each run of a sweep must differ from the others, got twice: "
                        f"{_shown(of_identity[identity])} and {_shown(run)}. Leave one of them out."
                    )
                of_identity[identity] = run
                planned.append(run)
    return tuple(planned)


def _names(
    sweep: commands.Sweep, train: commands.Train, setting: dict[str, tuple[str, ...]]
) -> tuple[str, list[str]]:
    """Returns the name of a setting, and what of it varies within the sweep."""
    of_agent = {field.name for field in dataclasses.fields(train.hyperparameters)}
    is_list = {flag: len(values) > 1 for flag, values in sweep.settings}
    parts, varied = [], []
    for flag, (given, *values) in sorted(setting.items()):
        name = flag.removeprefix("--").replace("-", "_")
        part = f"{name}={'-'.join(values) or str(given == flag).lower()}"
        if flag != "--preset" and (name in of_agent or is_list[flag]):
            parts.append(part)
        if is_list[flag]:
            varied.append(part)
    return _short("+".join([f"{sweep.agent.rpartition(':')[2]}_{train.preset}", *parts])), varied


def _short(name: str) -> str:
    """The name as that of a folder and an experiment; what is lost is made up for by a few digits."""
    short = re.sub(r"[^\w.+=-]", "_", name, flags=re.ASCII)[:_MAX_NAME]
    return short if short == name else f"{short}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _shown(run: PlannedRun) -> str:
    return shlex.join(run.words[: run.words.index("--directory")])
