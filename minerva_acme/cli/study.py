"""The trials of a search in an SQLite file, and Optuna, which chooses their settings and prunes them.

What Optuna chooses depends on the finished trials, the seed and the number of the trial alone, and the
settings of trials that run are in the file too. So a search that was killed continues as if it had not been.
"""

import json
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import optuna

from minerva_acme.cli import search_space

_NAME, _IDENTITY, _RUNNING = "minerva", "search", "running"
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
            path: The SQLite file.
            space: What the search varies.
            identity: Plain values that all trials of a study have in common.
            seed: The seed of the settings that are chosen.
            num_steps: The steps of a run.

        Raises:
            ValueError: The file has a study with another identity; the message lists the differences.
        """
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._distributions = {name: _distribution(found) for name, found in space.dimensions.items()}
        self._seed = seed
        self._study = optuna.create_study(
            storage=f"sqlite:///{path}", study_name=_NAME, direction="maximize", load_if_exists=True
        )
        asked: dict[str, Any] = json.loads(json.dumps(identity))
        there = self._study.user_attrs.get(_IDENTITY, {})
        # A study of an older version stores less; what it lacks is taken to be the same.
        if different := [name for name in sorted(there) if asked.get(name) != there[name]]:
            raise ValueError(
                f"{path.parent} holds another search: "
                + "; ".join(
                    f"{name} is {there[name]!r} there, {asked.get(name)!r} here" for name in different
                )
                + ". Choose another --directory."
            )
        if there.keys() != asked.keys():
            self._study.set_user_attr(_IDENTITY, asked)
        self._pruner = optuna.pruners.MedianPruner(
            n_startup_trials=_NUM_UNPRUNED, n_warmup_steps=int(_SHARE_UNPRUNED * num_steps)
        )
        self._before = self._copy(0)

    @property
    def finished(self) -> list[Finished]:
        """The trials that have ended, by number."""
        names = {optuna.trial.TrialState.COMPLETE: "complete", optuna.trial.TrialState.PRUNED: "pruned"}
        return [
            Finished(trial.number, trial.params, names.get(trial.state, "failed"), trial.value)
            for trial in self._study.trials
        ]

    def next_trials(self, number: int) -> list[Trial]:
        """Returns the trials to run next: those that were begun, or new ones.

        Args:
            number: How many new ones are to run at once.
        """
        first = len(self._study.trials)
        running = self._study.user_attrs.get(_RUNNING, {"first": 0, "params": []})
        if not running["params"][first - running["first"] :]:
            sampler = optuna.samplers.TPESampler(
                seed=int(np.random.SeedSequence([self._seed, first]).generate_state(1)[0]),
                n_startup_trials=_NUM_RANDOM,
            )
            study = self._copy(first, sampler)
            params = [study.ask(self._distributions).params for _ in range(number)]
            running = {"first": first, "params": params}
            self._study.set_user_attr(_RUNNING, running)
        # Without those that ended since then, so that the same trials are pruned after a resume.
        self._before = self._copy(running["first"])
        trials = [Trial(index, params) for index, params in enumerate(running["params"], running["first"])]
        return trials[first - running["first"] :]

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
            values: Its values by step.
            error: Why it failed.
        """
        states = {"complete": optuna.trial.TrialState.COMPLETE, "pruned": optuna.trial.TrialState.PRUNED}
        self._study.add_trial(
            optuna.trial.create_trial(
                state=states.get(state, optuna.trial.TrialState.FAIL),
                value=value,
                params=dict(trial.params),
                distributions=self._distributions,
                intermediate_values=dict(values),
                user_attrs={"error": error} if error else {},
            )
        )

    def _copy(self, number: int, sampler: Any = None) -> optuna.Study:
        """Returns a copy of the first trials, in memory."""
        copy = optuna.create_study(direction="maximize", sampler=sampler)
        copy.add_trials(self._study.trials[:number])
        return copy


def _distribution(dimension: search_space.Dimension) -> Any:
    if dimension.range is None:
        return optuna.distributions.CategoricalDistribution(dimension.choices)
    kind: Any = (
        optuna.distributions.IntDistribution if dimension.is_whole else optuna.distributions.FloatDistribution
    )
    return kind(*dimension.ends(), log=dimension.range.log)
