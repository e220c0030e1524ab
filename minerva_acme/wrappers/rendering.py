"""Images of an environment of any library."""

import dm_env
import numpy as np

from minerva_acme.wrappers import calls


def render_frame(
    environment: dm_env.Environment, *, height: int = 240, width: int = 320, camera_id: int | str = 0
) -> np.ndarray:
    """Draws the current state of the environment.

    Args:
        environment: One of dm_control's (anything with `physics`) or one with a `render` method, such as
            `GymnasiumEnvironment`, with or without wrappers.
        height: The height in pixels. Like width and camera it is only for `physics`: `render` uses its own.
        width: The width in pixels.
        camera_id: The number or name of a camera of the model; -1 is the free one.

    Returns:
        The image, uint8 [height, width, 3].

    Raises:
        ValueError: The environment cannot be drawn.
    """
    if hasattr(environment, "physics"):
        return np.asarray(environment.physics.render(height=height, width=width, camera_id=camera_id))
    frame = environment.render() if hasattr(environment, "render") else None
    if frame is None:
        raise ValueError(
            "`environment` must have `physics` or a `render` method that returns a picture, got "
            f"a {calls.class_name(environment)}. Write a `render` in it, or in a wrapper around it."
        )
    return np.asarray(frame)


def frames_per_second(environment: dm_env.Environment) -> float:
    """Returns the rate at which one frame a step plays in real time: 1 / control_timestep.

    Raises:
        ValueError: The environment has no `control_timestep` method.
    """
    if not hasattr(environment, "control_timestep"):
        raise ValueError(
            "`environment` must have a method `control_timestep` that returns the seconds of a step, got "
            f"a {calls.class_name(environment)}. Write it there, or in a wrapper around it."
        )
    return 1.0 / float(environment.control_timestep())
