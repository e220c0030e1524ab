"""Numbers in the `info` of a Gymnasium environment."""

from collections.abc import Sequence
from typing import Any

import dm_env
import numpy as np

from minerva_acme import types
from minerva_acme.observers import base


class EnvironmentInfo(base.SummarisingObserver):
    """Reports the numbers in the `info` of the steps: `info/<key>/mean`, `/min`, `/max`, `/last` and `/sum`.

    For environments with a `get_info()`, such as a `GymnasiumEnvironment` in any wrappers. A key that is
    only in the info of some steps is summarised over these steps. The info of the reset is left out.

    Evaluations have one of their own, see `runs.evaluate`.
    """

    statistics: tuple[str, ...] = ("mean", "min", "max", "last", "sum")

    def __init__(self, keys: Sequence[str] | None = None) -> None:
        """Args: keys: The keys to report, or None for all whose value is one number or boolean."""
        super().__init__()
        self._keys = None if keys is None else frozenset(keys)

    def observe_first(self, environment: dm_env.Environment, timestep: dm_env.TimeStep) -> None:
        """Begins an episode.

        Raises:
            ValueError: The environment has no `get_info`.
        """
        if not callable(getattr(environment, "get_info", None)):
            raise ValueError(
                "`environment` must have a `get_info` method to report its info, got a "
                f"{type(environment).__name__}. Use a GymnasiumEnvironment, or Measurement with your own "
                "function."
            )
        super().observe_first(environment, timestep)

    def measure(
        self, environment: dm_env.Environment, timestep: dm_env.TimeStep, action: types.NestedArray
    ) -> dict[str, float]:
        """Returns the numbers in the info.

        Raises:
            ValueError: The value of a requested key is not one number.
        """
        numbers = {}
        for key, value in environment.get_info().items():  # type: ignore[attr-defined]
            if _is_number(value) and (self._keys is None or key in self._keys):
                numbers[f"info/{key}"] = float(value)
            elif self._keys is not None and key in self._keys:
                raise ValueError(
                    f"`info[{key!r}]` must be one number to be reported, got {value!r}. Leave it out of "
                    "`keys`, or compute a number from it with Measurement."
                )
        return numbers


def _is_number(value: Any) -> bool:
    if isinstance(value, bool | int | float):
        return True
    return isinstance(value, np.ndarray | np.generic) and value.ndim == 0 and value.dtype.kind in "biuf"
