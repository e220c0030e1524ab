"""Wrappers around `dm_env` environments, and the adapter for Gymnasium's."""

from typing import TYPE_CHECKING, Any

from minerva_acme.wrappers.base import EnvironmentWrapper, wrap_all
from minerva_acme.wrappers.canonical_action import CanonicalActionWrapper
from minerva_acme.wrappers.concat_observation import ConcatObservationWrapper
from minerva_acme.wrappers.random_state import DmControlRandomState
from minerva_acme.wrappers.single_precision import SinglePrecisionWrapper

if TYPE_CHECKING:
    from minerva_acme.wrappers.gymnasium_adapter import GymnasiumEnvironment

__all__ = [
    "CanonicalActionWrapper",
    "ConcatObservationWrapper",
    "DmControlRandomState",
    "EnvironmentWrapper",
    "GymnasiumEnvironment",
    "SinglePrecisionWrapper",
    "wrap_all",
]


def __getattr__(name: str) -> Any:
    # Importing gymnasium is left to those who use it.
    if name == "GymnasiumEnvironment":
        from minerva_acme.wrappers.gymnasium_adapter import GymnasiumEnvironment

        return GymnasiumEnvironment
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
