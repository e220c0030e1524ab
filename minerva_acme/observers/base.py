"""What observers share: a row of numbers at every step, summarised at the end of the episode."""

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dm_env
import tree

from minerva_acme import loggers, types


class SummarisingObserver(abc.ABC):
    """Adds statistics over the steps of an episode to its result, as `<name>/<statistic>`.

    An `environments.Observer`. A subclass says in `measure` which numbers there are, and in
    `statistics` which fields of `loggers.SeriesSummary` are reported.
    """

    statistics: tuple[str, ...] = ("mean", "min", "max")

    def __init__(self) -> None:
        self._summary = loggers.Summary()

    @abc.abstractmethod
    def measure(
        self, environment: dm_env.Environment, timestep: dm_env.TimeStep, action: types.NestedArray
    ) -> Mapping[str, float]:
        """Returns numbers by name, after a step by `action` that led to `timestep`."""

    def observe_first(self, environment: dm_env.Environment, timestep: dm_env.TimeStep) -> None:
        """Begins an episode. Its first timestep, to which no action led, is not measured."""
        del environment, timestep
        self._summary = loggers.Summary()

    def observe(
        self, environment: dm_env.Environment, timestep: dm_env.TimeStep, action: types.NestedArray
    ) -> None:
        """Measures a step."""
        self._summary.add(self.measure(environment, timestep, action))

    def get_metrics(self) -> dict[str, Any]:
        """Returns the statistics of each series of the episode; none before its first step."""
        return {
            f"{name}/{statistic}": getattr(series, statistic)
            for name, series in self._summary.result().items()
            for statistic in self.statistics
        }


def by_path(name: str, nest: types.NestedArray, function: Callable[[Any], Any]) -> dict[str, Any]:
    """Applies a function to the leaves: `<name>` of a single array, `<name>/<path>` of each in a nest.

    Raises:
        ValueError: two leaves would have one name.
    """
    leaves = tree.flatten_with_path(nest)
    return each_once([("/".join(map(str, (name, *path))), function(leaf)) for path, leaf in leaves])


def each_once(named: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Returns a row of the named values.

    Raises:
        ValueError: a name is there twice, as those of the nest `{"a": {"b": x}, "a/b": y}` would be.
    """
    row = dict(named)
    if len(row) < len(named):
        names = [name for name, _ in named]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(
            f"`{twice}` must be the name of one number, got it of several in a nest. Rename one of them in a "
            "wrapper of the environment."
        )
    return row
