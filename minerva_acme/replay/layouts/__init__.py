"""Layouts of items in replay, one per file. The writer, the reader and the table share one layout object."""

from minerva_acme.replay.layouts.batched import (
    BatchedLayout,
    BatchedRolloutLayout,
    BatchedRow,
    BatchedTrajectoryLayout,
    BatchedTransitionLayout,
)
from minerva_acme.replay.layouts.rollouts import RolloutLayout
from minerva_acme.replay.layouts.trajectories import PaddingFunction, TrajectoryLayout, WindowLayout
from minerva_acme.replay.layouts.transitions import PackedStep, TransitionLayout

__all__ = [
    "BatchedLayout",
    "BatchedRolloutLayout",
    "BatchedRow",
    "BatchedTrajectoryLayout",
    "BatchedTransitionLayout",
    "PackedStep",
    "PaddingFunction",
    "RolloutLayout",
    "TrajectoryLayout",
    "TransitionLayout",
    "WindowLayout",
]
