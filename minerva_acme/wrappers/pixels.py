"""Images instead of observations."""

from typing import Any

import dm_env
import numpy as np

from minerva_acme import specs
from minerva_acme.wrappers import base, rendering


class PixelsWrapper(base.EnvironmentWrapper):
    """Replaces observations by images of the environment.

    The observation is an image, uint8 [size, size, 3], drawn by `physics`, which dm_control's environments
    have. Shadows are not drawn: in software rendering they take two thirds of the time.
    """

    def __init__(self, environment: dm_env.Environment, *, size: int = 84, camera_id: int | str = 0) -> None:
        """Initialises the wrapper, and draws once, so that a missing renderer is found here.

        Args:
            environment: The environment to draw, with `physics`.
            size: The size of the image, in pixels on each side.
            camera_id: The number or name of a camera of the model; -1 is the free one.

        Raises:
            ValueError: The size is below 1 or too large for the model, it has no such camera, or the
                environment has no `physics`.
            RuntimeError: This machine cannot draw; the message says why, and what to do.
        """
        if size < 1:
            raise ValueError(f"`size` must be >= 1 pixel, got {size}.")
        if not hasattr(environment, "physics"):
            raise ValueError(
                f"`environment` must have `physics`, as dm_control's do, got {environment!r}. Draw other "
                "environments in your own wrapper."
            )
        super().__init__(environment)
        self._size, self._camera_id = size, camera_id
        physics: Any = environment.physics
        physics.model.vis.quality.shadowsize = 0  # must be set before the first image
        try:
            self._draw()
        except ValueError as error:
            raise ValueError(
                f"`size` and `camera_id` must be possible for this model, got {size} and {camera_id!r}: "
                f"{error}"
            ) from error
        except Exception as error:  # PyOpenGL, EGL and OSMesa fail in many ways
            raise RuntimeError(
                f"Pixels need a renderer, but this machine cannot draw: {error} On Linux, EGL draws "
                "without a display or a GPU: apt-get install libegl1 libgl1, and put MUJOCO_GL=egl before "
                "the command. `minerva doctor` says what works."
            ) from error

    def observation_spec(self) -> specs.BoundedArray:
        return specs.BoundedArray((self._size, self._size, 3), np.uint8, 0, 255, name="pixels")

    def _convert(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        return timestep._replace(observation=self._draw())

    def _draw(self) -> np.ndarray:
        return rendering.render_frame(
            self._environment, height=self._size, width=self._size, camera_id=self._camera_id
        )
