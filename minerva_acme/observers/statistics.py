"""Statistics of each dimension of actions and observations."""

import dm_env

from minerva_acme import types
from minerva_acme.observers import base


class ActionStatistics(base.SummarisingObserver):
    """Reports each element of the actions: `action/<index>/mean`, `/stddev`, `/min` and `/max`.

    The statistics are over an episode. In a nest, names are `action/<path>/<index>/...`; a scalar has no
    index, and arrays with several axes are indexed row by row. An actuator that never moves has `stddev` 0,
    and one that is driven from bound to bound has a `stddev` near half its range. For a discrete action,
    `min` and `max` show which indices are used; the mean is meaningless.
    """

    statistics = ("mean", "stddev", "min", "max")

    def measure(
        self, environment: dm_env.Environment, timestep: dm_env.TimeStep, action: types.NestedArray
    ) -> dict[str, float]:
        return base.by_element("action", action)


class ObservationStatistics(base.SummarisingObserver):
    """Reports each element of the observations: `observation/<index>/mean`, `/stddev`, `/min` and `/max`.

    Names are as in `ActionStatistics`; the statistics are over the observations after each step of an
    episode. Every element is reported, so use it for small observations.
    """

    statistics = ("mean", "stddev", "min", "max")

    def measure(
        self, environment: dm_env.Environment, timestep: dm_env.TimeStep, action: types.NestedArray
    ) -> dict[str, float]:
        return base.by_element("observation", timestep.observation)
