"""What observers share: a row of numbers at every step, summarised at the end of the episode."""

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dm_env
import numpy as np
import tree

from minerva_acme import loggers, types


class SummarisingObserver(abc.ABC):
    """Adds statistics over the steps of an episode to its result, as `<name>/<statistic>`.

    An `environments.Observer`. A subclass says in `measure` which numbers there are, and in
    `statistics` which fields of `loggers.SeriesSummary` are reported. Percentiles, if asked for, are
    reported as `<name>/p<percent>`, such as `p50` for the median; for them an episode's numbers are kept.
    """

    statistics: tuple[str, ...] = ("mean", "min", "max")

    def __init__(self, *, percentiles: Sequence[float] = ()) -> None:
        """Args: percentiles: those to report, percent in [0, 100], interpolated between two numbers.

        Raises:
            ValueError: a percentile is out of range.
        """
        for percent in percentiles:
            if not 0 <= percent <= 100:
                raise ValueError(
                    f"`percentiles` must lie in [0, 100] percent, got {percent}. 50 is the median."
                )
        self._percentiles = tuple(percentiles)
        self._begin()

    @abc.abstractmethod
    def measure(
        self, environment: dm_env.Environment, timestep: dm_env.TimeStep, action: types.NestedArray
    ) -> Mapping[str, float]:
        """Returns numbers by name, after a step by `action` that led to `timestep`."""

    def observe_first(self, environment: dm_env.Environment, timestep: dm_env.TimeStep) -> None:
        """Begins an episode. Its first timestep, to which no action led, is not measured."""
        del environment, timestep
        self._begin()

    def observe(
        self, environment: dm_env.Environment, timestep: dm_env.TimeStep, action: types.NestedArray
    ) -> None:
        """Measures a step."""
        row = self.measure(environment, timestep, action)
        self._summary.add(row)
        if self._percentiles:
            for name, value in row.items():
                self._numbers.setdefault(name, []).append(float(value))

    def get_metrics(self) -> dict[str, Any]:
        """Returns the statistics of each series of the episode; none before its first step."""
        metrics = {
            f"{name}/{statistic}": getattr(series, statistic)
            for name, series in self._summary.result().items()
            for statistic in self.statistics
        }
        for name, numbers in self._numbers.items():
            values = np.percentile(numbers, self._percentiles).tolist()
            metrics |= {f"{name}/p{p:g}": value for p, value in zip(self._percentiles, values, strict=True)}
        return metrics

    def _begin(self) -> None:
        self._summary = loggers.Summary()
        self._numbers: dict[str, list[float]] = {}  # of an episode, by name, where percentiles are asked for


def by_path(name: str, nest: types.NestedArray, function: Callable[[Any], Any]) -> dict[str, Any]:
    """Applies a function to the leaves: `<name>` of a single array, `<name>/<path>` of each in a nest.

    Raises:
        ValueError: two leaves would have one name.
    """
    leaves = tree.flatten_with_path(nest)
    return each_once([("/".join(map(str, (name, *path))), function(leaf)) for path, leaf in leaves])


def by_element(name: str, nest: types.NestedArray) -> dict[str, float]:
    """Returns each number of a nest: `<name>/<path>/<index>`, without the index where a leaf is a scalar.

    Raises:
        ValueError: two numbers would have one name.
    """
    return each_once(
        [
            (f"{part}/{index}" if values.ndim else part, value)
            for part, values in by_path(name, nest, np.asarray).items()
            for index, value in enumerate(values.ravel().tolist())
        ]
    )


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
