"""Your own numbers, measured at every step."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import dm_env

from minerva_acme import types
from minerva_acme.loggers import base as loggers
from minerva_acme.observers import base

Measure: TypeAlias = Callable[[dm_env.Environment, dm_env.TimeStep, types.NestedArray], Any]
"""A function that measures after a step, given the environment, the timestep and the action that led to it.

It returns one number, or a mapping of names to numbers.
"""


class Measurement(base.SummarisingObserver):
    """Calls a function at every step and adds the statistics of its numbers to the episode.

        def head_height(environment, timestep, action):
            return environment.physics.head_height()

        Measurement("height", head_height)       height/mean  /min  /max  /last

    A function that returns a mapping gives one series per key, `height/<key>/mean` and so on. The first
    timestep, which follows no action, is not measured.
    """

    statistics = ("mean", "min", "max", "last")

    def __init__(self, name: str, function: Measure, *, percentiles: Sequence[float] = ()) -> None:
        """Makes the observer.

        Args:
            name: The beginning of the names of the metrics.
            function: The function, which is called after every step.
            percentiles: The percentiles to report as well, such as [25, 50, 75].
        """
        super().__init__(percentiles=percentiles)
        self._name = name
        self._function = function

    def measure(
        self, environment: dm_env.Environment, timestep: dm_env.TimeStep, action: types.NestedArray
    ) -> dict[str, float]:
        """Calls the function.

        Raises:
            ValueError: It returned something other than numbers; the message names it.
        """
        measured = self._function(environment, timestep, action)
        if isinstance(measured, Mapping):
            row = {f"{self._name}/{key}": value for key, value in measured.items()}
        else:
            row = {self._name: measured}
        return {name: _to_number(name, value) for name, value in row.items()}


def _to_number(name: str, value: Any) -> float:
    number = loggers.to_plain({name: value})[name]
    if isinstance(number, str):
        raise ValueError(
            f"`{name}` must be a number to be summarised, got {number!r}. Log strings in another way."
        )
    return float(number)
