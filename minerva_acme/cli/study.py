"""The trials of a search in a file of JSON, and Optuna, which chooses their settings and prunes them.

What Optuna chooses depends on the finished trials, the seed and the number of the trial alone, and the
settings of trials that run are in the file too. So a search that was killed continues as if it had not been.
The file need not be trusted: a value of a trial is one that this search may choose, or the file is refused.
"""

import json
import math
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import optuna

from minerva_acme.cli import search_space
from minerva_acme.machine import reading, writing

_FORMAT = 1
_STATES = {
    "complete": optuna.trial.TrialState.COMPLETE,
    "pruned": optuna.trial.TrialState.PRUNED,
    "failed": optuna.trial.TrialState.FAIL,
}
# As in Optuna, the first trials are drawn at random and run to their end.
_NUM_RANDOM, _NUM_UNPRUNED = 10, 5
_SHARE_UNPRUNED = 0.25  # of a run's steps; earlier evaluations say little


class Trial(NamedTuple):
    """A trial that is to run."""

    number: int
    params: search_space.Params


class Finished(NamedTuple):
    """A trial that has ended."""

    number: int
    params: search_space.Params
    state: str  # "complete", "pruned" or "failed"
    value: float | None  # the objective, or the last value before it was pruned; None if it failed
    values: Mapping[int, float]  # its values by step
    error: str  # why it failed


class Study:
    """The trials of one search, towards the highest objective."""

    def __init__(
        self,
        path: pathlib.Path,
        space: search_space.Space,
        *,
        identity: Mapping[str, Any],
        seed: int,
        num_steps: int,
    ) -> None:
        """Opens a study, or makes a new one.

        Args:
            path: The file.
            space: What the search varies.
            identity: Plain values that all trials of a study have in common.
            seed: The seed of the settings that are chosen.
            num_steps: The steps of a run.

        Raises:
            ValueError: The file has a study with another identity, and the message lists the differences; or
                it holds something else.
        """
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._path = path
        self._distributions = {name: _distribution(found) for name, found in space.dimensions.items()}
        self._seed = seed
        self._finished: list[Finished] = []
        self._first, self._running = 0, list[search_space.Params]()  # the trials that run, from a number on
        self._identity: dict[str, Any] = json.loads(json.dumps(identity))
        if path.exists() or path.is_symlink():
            there = self._read(space)
            # A study of an older version stores less; what it lacks is taken to be the same.
            if different := [name for name in sorted(there) if self._identity.get(name) != there[name]]:
                raise ValueError(
                    f"{path.parent} holds another search: "
                    + "; ".join(
                        f"{name} is {there[name]!r} there, {self._identity.get(name)!r} here"
                        for name in different
                    )
                    + ". Choose another --directory."
                )
        self._write()
        self._pruner = optuna.pruners.MedianPruner(
            n_startup_trials=_NUM_UNPRUNED, n_warmup_steps=int(_SHARE_UNPRUNED * num_steps)
        )
        self._before = self._copy(0)

    @property
    def finished(self) -> list[Finished]:
        """The trials that have ended, by number."""
        return [*self._finished]

    def next_trials(self, number: int) -> list[Trial]:
        """Returns the trials to run next: those that were begun, or new ones.

        Args:
            number: How many new ones are to run at once.
        """
        first = len(self._finished)
        if not self._running[first - self._first :]:
            sampler = optuna.samplers.TPESampler(
                seed=int(np.random.SeedSequence([self._seed, first]).generate_state(1)[0]),
                n_startup_trials=_NUM_RANDOM,
            )
            study = self._copy(first, sampler)
            self._running = [study.ask(self._distributions).params for _ in range(number)]
            self._first = first
            self._write()
        # Without those that ended since then, so that the same trials are pruned after a resume.
        self._before = self._copy(self._first)
        trials = [Trial(index, params) for index, params in enumerate(self._running, self._first)]
        return trials[first - self._first :]

    def should_prune(self, trial: Trial, values: Mapping[int, float]) -> bool:
        """Returns whether to prune a trial, compared with those that had ended when it began.

        Args:
            trial: The trial.
            values: Its values so far by step, increasing; the last one is judged.
        """
        return self._pruner.prune(
            self._before,
            optuna.trial.create_trial(
                state=optuna.trial.TrialState.RUNNING,
                params=dict(trial.params),
                distributions=self._distributions,
                intermediate_values=dict(values),
            ),
        )

    def add(
        self, trial: Trial, state: str, value: float | None, values: Mapping[int, float], error: str = ""
    ) -> None:
        """Adds a trial that has ended.

        Args:
            trial: The trial.
            state: "complete", "pruned" or "failed".
            value: The objective, or the last value before it was pruned; None if it failed.
            values: Its values by step; those that are not finite are left out.
            error: Why it failed.
        """
        finite = {step: one for step, one in values.items() if math.isfinite(one)}
        if value is not None and not math.isfinite(value):
            value = None
        self._finished.append(Finished(len(self._finished), trial.params, state, value, finite, error))
        self._write()

    def _copy(self, number: int, sampler: Any = None) -> optuna.Study:
        """Returns Optuna's study of the first trials, in memory."""
        copy = optuna.create_study(direction="maximize", sampler=sampler)
        copy.add_trials(
            [
                optuna.trial.create_trial(
                    state=_STATES[one.state],
                    value=one.value,
                    params=dict(one.params),
                    distributions=self._distributions,
                    intermediate_values=dict(one.values),
                )
                for one in self._finished[:number]
            ]
        )
        return copy

    def _write(self) -> None:
        content = {
            "format": _FORMAT,
            "search": self._identity,
            "first": self._first,
            "running": [dict(params) for params in self._running],
            "trials": [
                {**one._asdict(), "params": dict(one.params), "values": [*one.values.items()]}
                for one in self._finished
            ],
        }
        writing.replace(self._path, [f"{json.dumps(content, indent=1)}\n".encode()])

    def _read(self, space: search_space.Space) -> dict[str, Any]:
        """Reads the trials, and returns the stored identity.

        Raises:
            ValueError: The file cannot be read, or holds something else than trials of this search.
        """
        try:
            content = reading.json_file(self._path, infinite=True)
            if content["format"] != _FORMAT:
                raise ValueError(f"its format must be {_FORMAT}, got {content['format']!r}")
            there: dict[str, Any] = dict(content["search"])
            if any(self._identity.get(name) != value for name, value in there.items()):
                return there  # whose trials may have other settings
            self._finished = [_finished(index, one, space) for index, one in enumerate(content["trials"])]
            self._first, self._running = content["first"], [*map(space.check, content["running"])]
            if type(self._first) is not int or not 0 <= self._first <= len(self._finished):
                raise ValueError(f"the first of the trials that run must be one of them, got {self._first!r}")
        except (AttributeError, KeyError, OSError, TypeError, ValueError) as error:
            raise ValueError(
                f"{self._path} must hold the trials of this search, but cannot be read as such: "
                f"{reading.why(error)}. Remove it to begin again: the runs of the trials stay, and those "
                "that are done are not repeated."
            ) from error
        return there


def _finished(number: int, stored: Any, space: search_space.Space) -> Finished:
    """Returns a trial as it was written.

    Raises:
        Exception: It is not one.
    """
    values = {_whole(step): _finite(value) for step, value in stored["values"]}
    state, error = stored["state"], stored["error"]
    if state not in _STATES or not isinstance(error, str):
        raise ValueError(f"a trial must be one of {', '.join(_STATES)}, got {state!r} with {error!r}")
    value = stored["value"]
    if value is not None or state == "complete":
        value = _finite(value)
    return Finished(number, space.check(stored["params"]), state, value, values, error)


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"a step must be a whole number >= 0, got {value!r}")
    return value


def _finite(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(f"a value must be a finite number, got {value!r}")
    return float(value)


def _distribution(dimension: search_space.Dimension) -> Any:
    if dimension.range is None:
        return optuna.distributions.CategoricalDistribution(tuple(dimension.choices))
    kind: Any = (
        optuna.distributions.IntDistribution if dimension.is_whole else optuna.distributions.FloatDistribution
    )
    return kind(*dimension.ends(), log=dimension.range.log)
