"""What each dimension of the actions and of the observations does."""

import dm_env

from minerva_acme import types
from minerva_acme.observers import base


class ActionStatistics(base.SummarisingObserver):
    """Reports each element of the actions: `action/<index>/mean`, `/stddev`, `/min` and `/max`.

    Over an episode. Of a nest `action/<path>/<index>/...`; of a scalar there is no index, and arrays of
    several axes are counted row by row. An actuator that never moves has `stddev` 0, one that is driven
    from bound to bound has a `stddev` near half its range. Of a discrete action, an index, `min` and
    `max` tell which are used; its mean says nothing.
    """

    statistics = ("mean", "stddev", "min", "max")

    def measure(
        self, environment: dm_env.Environment, timestep: dm_env.TimeStep, action: types.NestedArray
    ) -> dict[str, float]:
        return base.by_element("action", action)


class ObservationStatistics(base.SummarisingObserver):
    """Reports each element of the observations: `observation/<index>/mean`, `/stddev`, `/min` and `/max`.

    Named as by `ActionStatistics`; over the observations that the steps of an episode led to. Every element
    is reported, so it is for observations of few numbers.
    """

    statistics = ("mean", "stddev", "min", "max")

    def measure(
        self, environment: dm_env.Environment, timestep: dm_env.TimeStep, action: types.NestedArray
    ) -> dict[str, float]:
        return base.by_element("observation", timestep.observation)
