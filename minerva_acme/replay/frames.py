"""Frame stacks, of which replay stores each frame only once."""

from typing import Any

import numpy as np
import tree

from minerva_acme import specs, types


def frame_spec(observation_spec: types.NestedSpec, frame_stack: int) -> types.NestedSpec:
    """Returns the spec of one frame, given the spec of observations that are stacks of frames.

    Raises:
        ValueError: `frame_stack` is below 1, or a leaf is not a stack of `frame_stack` frames.
    """
    if frame_stack < 1:
        raise ValueError(f"`frame_stack` must be >= 1 frame, got {frame_stack}.")
    if frame_stack == 1:
        return observation_spec

    def first_removed(path: tuple[Any, ...], spec: specs.Array) -> specs.Array:
        if spec.shape[:1] != (frame_stack,):
            raise ValueError(
                f"`{specs.leaf_name('observation', path)}` must have the {frame_stack} frames of "
                f"`frame_stack` as its first axis, got {specs.describe(spec)}. Wrap the environment in "
                "FrameStackWrapper, with as many frames."
            )
        return specs.Array(spec.shape[1:], spec.dtype, name=spec.name)

    return tree.map_structure_with_path(first_removed, observation_spec)


def newest(observation: types.NestedArray) -> types.NestedArray:
    """Returns the newest frame of a stack."""
    return tree.map_structure(lambda leaf: leaf[-1], observation)


def check_first(observation: types.NestedArray) -> None:
    """Checks that the first stack of an episode repeats one frame, as replay will reconstruct it.

    Raises:
        ValueError: The frames differ.
    """
    if not all(
        np.array_equal(leaf[:-1], np.broadcast_to(leaf[-1], leaf[:-1].shape))
        for leaf in tree.flatten(observation)
    ):
        raise ValueError(_describe("The first observation of an episode must repeat one frame"))


def check_next(continues: bool) -> None:
    """Checks that a stack continues the one before it, as replay will reconstruct it.

    Raises:
        ValueError: `continues` is false.
    """
    if not continues:
        raise ValueError(_describe("An observation must hold the frames before it, oldest first"))


def _describe(expected: str) -> str:
    return (
        f"{expected} where replay stacks frames, got another stack. Apply FrameStackWrapper after all "
        "wrappers that change observations, or store whole stacks with `frame_stack` 1."
    )
