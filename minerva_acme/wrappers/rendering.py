"""Pictures of an environment, whichever library it comes from."""

import dm_env
import numpy as np


def render_frame(
    environment: dm_env.Environment, *, height: int = 240, width: int = 320, camera_id: int | str = 0
) -> np.ndarray:
    """Draws what the environment looks like now.

    Args:
        environment: dm_control's (anything with `physics`) or one with a `render` method, such as
            `GymnasiumEnvironment`; wrappers around them do not matter.
        height: pixels; for `physics` only, as the width and the camera: `render` has its own.
        width: pixels.
        camera_id: number or name of a camera of the model; -1 is the free one.

    Returns:
        uint8 [height, width, 3].

    Raises:
        ValueError: the environment cannot be drawn.
    """
    if hasattr(environment, "physics"):
        return np.asarray(environment.physics.render(height=height, width=width, camera_id=camera_id))
    frame = environment.render() if hasattr(environment, "render") else None
    if frame is None:
        raise ValueError(
            "`environment` must have `physics` or a `render` method that returns a picture, got "
            f"{environment!r}. Write a `render` in it, or in a wrapper around it."
        )
    return np.asarray(frame)


def frames_per_second(environment: dm_env.Environment) -> float:
    """Returns the rate at which one frame a step plays in real time: 1 / control_timestep.

    Raises:
        ValueError: the environment has no `control_timestep` method.
    """
    if not hasattr(environment, "control_timestep"):
        raise ValueError(
            "`environment` must have a method `control_timestep` that returns the seconds of a step, got "
            f"{environment!r}. Add it in a wrapper around yours."
        )
    return 1.0 / float(environment.control_timestep())
