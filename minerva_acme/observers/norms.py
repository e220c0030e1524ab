"""Norms of actions and observations."""

import dm_env
import numpy as np

from minerva_acme import types
from minerva_acme.observers import base


class ActionNorm(base.SummarisingObserver):
    """Reports the Euclidean norm of the actions: `action_norm/mean`, `/min` and `/max` over an episode.

    For a nest, the norm of each leaf: `action_norm/<path>/mean` and so on. In the units of the action.
    """

    def measure(
        self, environment: dm_env.Environment, timestep: dm_env.TimeStep, action: types.NestedArray
    ) -> dict[str, float]:
        return base.by_path("action_norm", action, _norm)


class ObservationNorm(base.SummarisingObserver):
    """Reports the Euclidean norm of the observations: `observation_norm/mean`, `/min` and `/max`.

    Over the observations after each step of an episode; for a nest, the norm of each leaf. This shows
    observations that grow without bound, or are a thousand times larger than others, before they harm
    learning.
    """

    def measure(
        self, environment: dm_env.Environment, timestep: dm_env.TimeStep, action: types.NestedArray
    ) -> dict[str, float]:
        return base.by_path("observation_norm", timestep.observation, _norm)


def _norm(leaf: np.ndarray) -> float:
    # In double precision, because the squares of large numbers overflow in single precision.
    return float(np.linalg.norm(np.asarray(leaf, np.float64).ravel()))
