"""How large actions and observations are."""

import dm_env
import numpy as np

from minerva_acme import types
from minerva_acme.observers import base


class ActionNorm(base.SummarisingObserver):
    """Reports the Euclidean norm of the actions: `action_norm/mean`, `/min` and `/max` over an episode.

    Of a nest, the norm of each leaf: `action_norm/<path>/mean` and so on. In the action's own units.
    """

    def measure(
        self, environment: dm_env.Environment, timestep: dm_env.TimeStep, action: types.NestedArray
    ) -> dict[str, float]:
        return base.by_path("action_norm", action, _norm)


class ObservationNorm(base.SummarisingObserver):
    """Reports the Euclidean norm of the observations: `observation_norm/mean`, `/min` and `/max`.

    Over the observations that the steps of an episode led to; of a nest, the norm of each leaf. What
    grows without end, or is a thousand times larger than the rest, is seen here before it is learned.
    """

    def measure(
        self, environment: dm_env.Environment, timestep: dm_env.TimeStep, action: types.NestedArray
    ) -> dict[str, float]:
        return base.by_path("observation_norm", timestep.observation, _norm)


def _norm(leaf: np.ndarray) -> float:
    # In double precision: the squares of large numbers overflow in single.
    return float(np.linalg.norm(np.asarray(leaf, np.float64).ravel()))
