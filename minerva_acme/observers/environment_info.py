"""What a Gymnasium environment says beside its observations."""

from collections.abc import Sequence
from typing import Any

import dm_env
import numpy as np

from minerva_acme import types
from minerva_acme.observers import base


class EnvironmentInfo(base.SummarisingObserver):
    """Reports the numbers in the `info` of the steps: `info/<key>/mean`, `/min`, `/max`, `/last` and `/sum`.

    For environments with a `get_info()`, such as a `GymnasiumEnvironment` under any wrappers. A key that
    is in the info of some steps only is summarised over those. The info of the reset is left out.
    """

    statistics = ("mean", "min", "max", "last", "sum")

    def __init__(self, keys: Sequence[str] | None = None) -> None:
        """Args: keys: those to report where they occur; None: all that hold one number or truth value."""
        super().__init__()
        self._keys = None if keys is None else frozenset(keys)

    def observe_first(self, environment: dm_env.Environment, timestep: dm_env.TimeStep) -> None:
        """Begins an episode.

        Raises:
            ValueError: the environment has no `get_info`.
        """
        if not callable(getattr(environment, "get_info", None)):
            raise ValueError(
                "`environment` must have a `get_info` method to report its info, got a "
                f"{type(environment).__name__}. Use a GymnasiumEnvironment, or Measurement with a function "
                "of your own."
            )
        super().observe_first(environment, timestep)

    def measure(
        self, environment: dm_env.Environment, timestep: dm_env.TimeStep, action: types.NestedArray
    ) -> dict[str, float]:
        """Returns the numbers in the info.

        Raises:
            ValueError: a key that was asked for does not hold one number.
        """
        numbers = {}
        for key, value in environment.get_info().items():  # type: ignore[attr-defined]
            if _is_number(value) and (self._keys is None or key in self._keys):
                numbers[f"info/{key}"] = float(value)
            elif self._keys is not None and key in self._keys:
                raise ValueError(
                    f"`info[{key!r}]` must be one number to be reported, got {value!r}. Leave it out of "
                    "`keys`, or report a number made of it with Measurement."
                )
        return numbers


def _is_number(value: Any) -> bool:
    if isinstance(value, bool | int | float):
        return True
    return isinstance(value, np.ndarray | np.generic) and value.ndim == 0 and value.dtype.kind in "biuf"
