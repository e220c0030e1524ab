"""Observations that are stacks of the last few frames."""

import collections

import dm_env
import numpy as np
import tree

from minerva_acme import specs, types
from minerva_acme.wrappers import base


class FrameStackWrapper(base.EnvironmentWrapper):
    """Stacks the last `num_frames` observations of an episode along a new first axis, oldest first.

        environment        o0             o1             o2             o3
        num_frames 3   [o0, o0, o0]   [o0, o0, o1]   [o0, o1, o2]   [o1, o2, o3]

    Each leaf of shape [...] becomes [num_frames, ...] with the same dtype and bounds. The first observation
    is repeated instead of padded with zeros, which may lie outside the bounds.
    """

    def __init__(self, environment: dm_env.Environment, *, num_frames: int) -> None:
        """Initialises the wrapper.

        Args:
            environment: The environment to wrap; any nest of observations.
            num_frames: The number of observations to stack, >= 1.

        Raises:
            ValueError: `num_frames` is below 1.
        """
        if num_frames < 1:
            raise ValueError(f"`num_frames` must be >= 1, got {num_frames}. 1 only adds an axis.")
        super().__init__(environment)
        self._num_frames = num_frames
        self._frames: collections.deque[types.NestedArray] = collections.deque(maxlen=num_frames)

    def observation_spec(self) -> types.NestedSpec:
        return tree.map_structure(self._stacked_spec, self._environment.observation_spec())

    def _convert(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        # Copies: an environment may write its next observation into the same array.
        frame = tree.map_structure(np.array, timestep.observation)
        self._frames.extend([frame] * (self._num_frames if timestep.first() else 1))
        return timestep._replace(observation=tree.map_structure(lambda *leaf: np.stack(leaf), *self._frames))

    def _stacked_spec(self, spec: specs.Array) -> specs.Array:
        shape = (self._num_frames, *spec.shape)
        if isinstance(spec, specs.BoundedArray):  # DiscreteArray too: several numbers are not a single choice
            return specs.BoundedArray(shape, spec.dtype, spec.minimum, spec.maximum, spec.name)
        return spec.replace(shape=shape)
