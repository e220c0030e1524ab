"""The frames of an episode."""

from collections.abc import Callable

import dm_env
import numpy as np

from minerva_acme.wrappers import base, rendering


class VideoFramesWrapper(base.EnvironmentWrapper):
    """Draws the environment at every timestep and keeps the frames of the latest episode.

    An episode of T steps has T + 1 frames, including those of FIRST and LAST.

    Attributes:
        frames: The frames so far, each uint8 [height, width, 3]. Each episode begins a new list.
        frame_rate: The number of frames per second in real time, 1 / control_timestep.
    """

    def __init__(
        self,
        environment: dm_env.Environment,
        *,
        render: Callable[[dm_env.Environment], np.ndarray] = rendering.render_frame,
    ) -> None:
        """Initialises the wrapper.

        Args:
            environment: The environment to wrap and draw.
            render: Draws the environment, uint8 [height, width, 3]; for other sizes and cameras use
                `functools.partial(render_frame, height=480, width=640)`.

        Raises:
            ValueError: The environment has no `control_timestep` method.
        """
        super().__init__(environment)
        self._render = render
        self.frame_rate = rendering.frames_per_second(environment)
        self.frames: list[np.ndarray] = []

    def _convert(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        if timestep.first():
            self.frames = []
        self.frames.append(np.array(self._render(self._environment)))  # some draw into the same array
        return timestep
