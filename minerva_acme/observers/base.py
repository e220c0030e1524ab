"""The base class of observers: a row of numbers at every step, summarised at the end of the episode."""

import abc
import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dm_env
import numpy as np
import tree

from minerva_acme import types

_STATISTICS: dict[str, Callable[[Any], Any]] = {
    "mean": np.mean,
    "stddev": np.std,
    "min": np.min,
    "max": np.max,
    "last": lambda numbers: numbers[-1],
    "sum": np.sum,
}


class SummarisingObserver(abc.ABC):
    """Adds statistics over the steps of an episode to its result, as `<name>/<statistic>`.

    An `environments.Observer`, which keeps the numbers of an episode. A subclass defines them in `measure`,
    and in `statistics` which of mean, stddev (with a divisor of n), min, max, last and sum to report.
    Percentiles, if requested, are reported as `<name>/p<percent>`, such as `p50` for the median.
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
        for name, value in self.measure(environment, timestep, action).items():
            self._numbers.setdefault(name, array.array("d")).append(float(value))

    def get_metrics(self) -> dict[str, Any]:
        """Returns the statistics of each series of the episode; empty before its first step."""
        with np.errstate(all="ignore"):  # of numbers that are not finite
            metrics = {
                f"{name}/{statistic}": float(_STATISTICS[statistic](numbers))
                for name, numbers in self._numbers.items()
                for statistic in self.statistics
            }
            for name, numbers in self._numbers.items():
                values = zip(self._percentiles, np.percentile(numbers, self._percentiles), strict=True)
                metrics |= {f"{name}/p{percent:g}": float(value) for percent, value in values}
        return metrics

    def _begin(self) -> None:
        self._numbers: dict[str, array.array[float]] = {}  # an episode's, by name


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
