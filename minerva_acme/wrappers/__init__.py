"""Wrappers around `dm_env` environments, and the adapters from and to Gymnasium's."""

import importlib
from typing import TYPE_CHECKING, Any

from minerva_acme.wrappers.action_repeat import ActionRepeatWrapper
from minerva_acme.wrappers.base import EnvironmentWrapper, wrap_all
from minerva_acme.wrappers.canonical_action import CanonicalActionWrapper
from minerva_acme.wrappers.concat_observation import ConcatObservationWrapper
from minerva_acme.wrappers.delayed_reward import DelayedRewardWrapper
from minerva_acme.wrappers.episode_statistics import EpisodeStatistics, EpisodeStatisticsWrapper
from minerva_acme.wrappers.frame_stack import FrameStackWrapper
from minerva_acme.wrappers.noop_starts import NoopStartsWrapper
from minerva_acme.wrappers.random_state import DmControlRandomState
from minerva_acme.wrappers.rendering import frames_per_second, render_frame
from minerva_acme.wrappers.single_precision import SinglePrecisionWrapper
from minerva_acme.wrappers.spec_check import SpecCheckWrapper
from minerva_acme.wrappers.step_limit import StepLimitWrapper
from minerva_acme.wrappers.transforms import ActionTransformWrapper, ObservationTransformWrapper
from minerva_acme.wrappers.video_frames import VideoFramesWrapper

if TYPE_CHECKING:
    from minerva_acme.wrappers.gymnasium_adapter import GymnasiumEnvironment
    from minerva_acme.wrappers.gymnasium_from_dm_env import GymnasiumFromDmEnv
    from minerva_acme.wrappers.gymnasium_vector import (
        EnvironmentWorkerError,
        GymnasiumVectorEnvironment,
        ProcessVectorEnvironment,
    )

__all__ = [
    "ActionRepeatWrapper",
    "ActionTransformWrapper",
    "CanonicalActionWrapper",
    "ConcatObservationWrapper",
    "DelayedRewardWrapper",
    "DmControlRandomState",
    "EnvironmentWorkerError",
    "EnvironmentWrapper",
    "EpisodeStatistics",
    "EpisodeStatisticsWrapper",
    "FrameStackWrapper",
    "GymnasiumEnvironment",
    "GymnasiumFromDmEnv",
    "GymnasiumVectorEnvironment",
    "NoopStartsWrapper",
    "ObservationTransformWrapper",
    "ProcessVectorEnvironment",
    "SinglePrecisionWrapper",
    "SpecCheckWrapper",
    "StepLimitWrapper",
    "VideoFramesWrapper",
    "frames_per_second",
    "render_frame",
    "wrap_all",
]


_LAZY = {
    "EnvironmentWorkerError": "gymnasium_vector",
    "GymnasiumEnvironment": "gymnasium_adapter",
    "GymnasiumFromDmEnv": "gymnasium_from_dm_env",
    "GymnasiumVectorEnvironment": "gymnasium_vector",
    "ProcessVectorEnvironment": "gymnasium_vector",
}


def __getattr__(name: str) -> Any:
    # Importing gymnasium is left to those who use it.
    if name not in _LAZY:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
