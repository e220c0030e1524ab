"""The plan of a sweep, as plain values: a run for each setting, environment and seed."""

import dataclasses
import itertools
import pathlib
import shlex
from typing import Any, NamedTuple

from minerva_acme.cli import commands, parsing
from minerva_acme.runs import env_kwargs, run_names


class PlannedRun(NamedTuple):
    """One run of a sweep."""

    experiment: str  # its setting, such as mpo_control+discount=0.98
    title: str  # how it differs from the sweep's other runs
    directory: pathlib.Path
    words: tuple[str, ...]  # of the command, after `minerva`
    train: commands.Train  # the parsed command

    @property
    def command(self) -> str:
        """The shell command of this run."""
        return shlex.join(["minerva", *self.words])


def directory_of(sweep: commands.Sweep) -> pathlib.Path:
    """Returns the folder of a sweep."""
    return sweep.directory or pathlib.Path("runs", "sweeps", sweep.agent.rpartition(":")[2])


def make_plan(sweep: commands.Sweep) -> tuple[PlannedRun, ...]:
    """Returns the runs of a sweep, ordered by setting, then environment, then seed.

    The folder of a run is <directory>/<setting>/<environment>/seed<seed>. The name of a setting has the
    agent, the preset, the hyperparameters that differ from it, and every other flag with several values. So
    adding values, environments or seeds leaves existing folders in place.

    Raises:
        ValueError: A value is invalid, there are no runs, or two of them would be the same.
    """
    for name, given in {"env": sweep.env, "seeds": sweep.seeds}.items():
        if not given:
            raise ValueError(f"`{name}` must have at least one value, got none.")
    if min(sweep.seeds) < 0:
        raise ValueError(f"`seeds` must be >= 0, got {min(sweep.seeds)}.")
    flags = [flag for flag, _ in sweep.settings]
    kwargs = ("--env-kwargs", *sweep.env_kwargs) if sweep.env_kwargs else ()
    arguments = env_kwargs.read(sweep.env_kwargs)
    planned: list[PlannedRun] = []
    of_identity: dict[tuple[Any, ...], PlannedRun] = {}
    for values in itertools.product(*(values for _, values in sweep.settings)):
        setting = dict(zip(flags, values, strict=True))
        for environment in sweep.env:
            words = ("train", sweep.agent, "--env", environment, *kwargs, *itertools.chain(*values))
            train = parsing.parse(words)
            name, varied = _names(sweep, train, setting)
            for seed in sweep.seeds:
                place = run_names.environment_name(environment, arguments)
                directory = directory_of(sweep) / name / place / f"seed{seed}"
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
                        f"The runs of a sweep must all differ, got the same run twice: "
                        f"{_shown(of_identity[identity])} and {_shown(run)}. Leave one of them out."
                    )
                of_identity[identity] = run
                planned.append(run)
    return tuple(planned)


def _names(
    sweep: commands.Sweep, train: commands.Train, setting: dict[str, tuple[str, ...]]
) -> tuple[str, list[str]]:
    """Returns the name of a setting, and the parts of it that vary within the sweep."""
    hyperparameters = dataclasses.asdict(train.hyperparameters)
    varied = {
        flag.removeprefix("--").replace("-", "_"): "-".join(values) or str(given == flag).lower()
        for flag, (given, *values) in sorted(setting.items())
        if len(dict(sweep.settings)[flag]) > 1
    }
    options = {
        name: value for name, value in varied.items() if name not in hyperparameters and name != "preset"
    }
    presets = {train.preset: parsing.find_preset(train.agent, train.preset, train.env)}
    name = run_names.setting_name(sweep.agent, hyperparameters, presets, **options)
    return name, [f"{name}={value}" for name, value in varied.items()]


def _shown(run: PlannedRun) -> str:
    return shlex.join(run.words[: run.words.index("--directory")])
