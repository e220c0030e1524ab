"""Wrappers around `dm_env` environments."""

from minerva_acme.wrappers.action_repeat import ActionRepeatWrapper
from minerva_acme.wrappers.base import EnvironmentWrapper, wrap_all
from minerva_acme.wrappers.canonical_action import CanonicalActionWrapper
from minerva_acme.wrappers.concat_observation import ConcatObservationWrapper
from minerva_acme.wrappers.critic_observation import CriticObservationWrapper
from minerva_acme.wrappers.delayed_reward import DelayedRewardWrapper
from minerva_acme.wrappers.flat_action import FlatActionWrapper
from minerva_acme.wrappers.float_observation import FloatObservationWrapper
from minerva_acme.wrappers.frame_stack import FrameStackWrapper
from minerva_acme.wrappers.numbers_only import NumbersOnlyWrapper
from minerva_acme.wrappers.pixels import PixelsWrapper
from minerva_acme.wrappers.random_state import DmControlRandomState
from minerva_acme.wrappers.rendering import frames_per_second, render_frame
from minerva_acme.wrappers.rewards import NamedRewardsWrapper, ScalarRewardWrapper
from minerva_acme.wrappers.single_precision import SinglePrecisionWrapper
from minerva_acme.wrappers.spec_check import SpecCheck, SpecCheckWrapper
from minerva_acme.wrappers.step_limit import StepLimitWrapper
from minerva_acme.wrappers.transforms import ActionTransformWrapper, ObservationTransformWrapper

__all__ = [
    "ActionRepeatWrapper",
    "ActionTransformWrapper",
    "CanonicalActionWrapper",
    "ConcatObservationWrapper",
    "CriticObservationWrapper",
    "DelayedRewardWrapper",
    "DmControlRandomState",
    "EnvironmentWrapper",
    "FlatActionWrapper",
    "FloatObservationWrapper",
    "FrameStackWrapper",
    "NamedRewardsWrapper",
    "NumbersOnlyWrapper",
    "ObservationTransformWrapper",
    "PixelsWrapper",
    "ScalarRewardWrapper",
    "SinglePrecisionWrapper",
    "SpecCheck",
    "SpecCheckWrapper",
    "StepLimitWrapper",
    "frames_per_second",
    "render_frame",
    "wrap_all",
]
