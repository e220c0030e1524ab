"""How items lie in replay, one file each: one object for the writer, the reader and the table."""

from minerva_acme.replay.layouts.rollouts import RolloutLayout
from minerva_acme.replay.layouts.trajectories import PaddingFunction, TrajectoryLayout, WindowLayout
from minerva_acme.replay.layouts.transitions import PackedStep, TransitionLayout

__all__ = [
    "PackedStep",
    "PaddingFunction",
    "RolloutLayout",
    "TrajectoryLayout",
    "TransitionLayout",
    "WindowLayout",
]
