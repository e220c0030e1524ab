"""The pictures of an episode."""

from collections.abc import Callable

import dm_env
import numpy as np

from minerva_acme.wrappers import base, rendering


class VideoFramesWrapper(base.EnvironmentWrapper):
    """Draws the environment at every timestep and keeps the frames of the latest episode.

    An episode of T steps has T + 1 frames, FIRST and LAST among them. At `frame_rate` they play in real
    time.
    """

    def __init__(
        self,
        environment: dm_env.Environment,
        *,
        render: Callable[[dm_env.Environment], np.ndarray] = rendering.render_frame,
    ) -> None:
        """Initialises the wrapper.

        Args:
            environment: what to wrap and draw.
            render: draws the environment, uint8 [height, width, 3]; for other sizes and cameras
                `functools.partial(render_frame, height=480, width=640)`.

        Raises:
            ValueError: the environment does not tell its control timestep.
        """
        super().__init__(environment)
        self._render = render
        self._frame_rate = rendering.frames_per_second(environment)
        self._frames: list[np.ndarray] = []

    @property
    def frames(self) -> list[np.ndarray]:
        """The frames so far, each uint8 [height, width, 3]. A list that the next episode leaves alone."""
        return self._frames

    @property
    def frame_rate(self) -> float:
        """Frames a second, 1 / control_timestep."""
        return self._frame_rate

    def _convert(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        if timestep.first():
            self._frames = []
        self._frames.append(self._render(self._environment))
        return timestep
