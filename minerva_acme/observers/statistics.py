"""What each dimension of the actions does."""

import dm_env
import numpy as np

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
        return base.each_once(
            [
                (f"{name}/{index}" if values.ndim else name, value)
                for name, values in base.by_path("action", action, np.asarray).items()
                for index, value in enumerate(values.ravel().tolist())
            ]
        )
