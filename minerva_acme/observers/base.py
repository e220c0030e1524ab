"""The base class of observers: a row of numbers at every step, summarised at the end of the episode."""

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dm_env
import numpy as np
import tree

from minerva_acme import loggers, types


class SummarisingObserver(abc.ABC):
    """Adds statistics over the steps of an episode to its result, as `<name>/<statistic>`.

    An `environments.Observer`. A subclass defines the numbers in `measure`, and in `statistics` the fields
    of `loggers.SeriesSummary` to report. Percentiles, if requested, are reported as `<name>/p<percent>`,
    such as `p50` for the median; they require keeping all numbers of an episode.
    """

    statistics: tuple[str, ...] = ("mean", "min", "max")

    def __init__(self, *, percentiles: Sequence[float] = ()) -> None:
        """Args: percentiles: The percentiles to report, in [0, 100], interpolated between two numbers.

        Raises:
            ValueError: A percentile is out of range.
        """
        for percent in percentiles:
            if not 0 <= percent <= 100:
                raise ValueError(
                    f"`percentiles` must be in [0, 100] percent, got {percent}. 50 is the median."
                )
        self._percentiles = tuple(percentiles)
        self._begin()

    @abc.abstractmethod
    def measure(
        self, environment: dm_env.Environment, timestep: dm_env.TimeStep, action: types.NestedArray
    ) -> Mapping[str, float]:
        """Returns numbers by name, after a step in which `action` led to `timestep`."""

    def observe_first(self, environment: dm_env.Environment, timestep: dm_env.TimeStep) -> None:
        """Begins an episode. Its first timestep, which follows no action, is not measured."""
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
        """Returns the statistics of each series of the episode; empty before its first step."""
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
        self._numbers: dict[str, list[float]] = {}  # an episode's numbers by name, for percentiles


def by_path(name: str, nest: types.NestedArray, function: Callable[[Any], Any]) -> dict[str, Any]:
    """Applies a function to the leaves, named `<name>` for a single array and `<name>/<path>` in a nest.

    Raises:
        ValueError: Two leaves would have the same name.
    """
    leaves = tree.flatten_with_path(nest)
    return each_once([("/".join(map(str, (name, *path))), function(leaf)) for path, leaf in leaves])


def by_element(name: str, nest: types.NestedArray) -> dict[str, float]:
    """Returns each number of a nest as `<name>/<path>/<index>`, without the index if a leaf is a scalar.

    Raises:
        ValueError: Two numbers would have the same name.
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
        ValueError: A name occurs twice, as it would in the nest `{"a": {"b": x}, "a/b": y}`.
    """
    row = dict(named)
    if len(row) < len(named):
        names = [name for name, _ in named]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(
            f"`{twice}` must be the name of one number, got several in a nest with this name. Rename one of "
            "them in a wrapper of the environment."
        )
    return row
