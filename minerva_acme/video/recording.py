"""Finds the best of several episodes, and draws an episode while it is played."""

import functools
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import dm_env
import numpy as np
import tree

from minerva_acme import types, wrappers
from minerva_acme.environments import own

Render = Callable[[dm_env.Environment], np.ndarray]
"""A function that draws an environment as uint8 [height, width, 3]."""

_BACKENDS = ("egl", "osmesa")  # backends that need no display
_PROBE = "import mujoco; context = mujoco.GLContext(8, 8); context.make_current(); context.free()"
_PROBE_SECONDS = 60.0
_DM_CONTROL_SIZE: dict[str, Any] = {"height": 480, "width": 640}


class Episode(NamedTuple):
    """The result of an episode."""

    seed: int  # replays the episode
    episode_return: float  # undiscounted sum of its rewards
    length: int  # environment steps
    score: float = 0.0  # by which the best is chosen; of equal ones, the highest return is


class DrawingWrapper(wrappers.EnvironmentWrapper):
    """Calls a function with each frame of an episode and the return so far; keeps no frame."""

    def __init__(
        self,
        environment: dm_env.Environment,
        *,
        render: Render,
        on_frame: Callable[[np.ndarray, float], None],
        every: int = 1,
    ) -> None:
        """Initialises the wrapper.

        Args:
            environment: The environment to wrap and draw.
            render: Draws the environment as uint8 [height, width, 3].
            on_frame: Receives each frame, and the undiscounted sum of all rewards so far.
            every: The period of drawing, in timesteps from FIRST on.
        """
        super().__init__(environment)
        self._render = render
        self._on_frame = on_frame
        self._every = every
        self._return = 0.0
        self._steps = 0

    def reset(self) -> dm_env.TimeStep:
        return self._draw(self._environment.reset())

    def step(self, action: types.NestedArray) -> dm_env.TimeStep:
        return self._draw(self._environment.step(action))

    def _draw(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        self._steps = 0 if timestep.first() else self._steps + 1
        if timestep.first():
            self._return = 0.0
        else:
            self._return += sum(float(np.sum(leaf)) for leaf in tree.flatten(timestep.reward))
        if self._steps % self._every == 0:
            self._on_frame(_try_to_render(self._render, self._environment), self._return)
        return timestep


def find_best(
    play: Callable[[int], Episode],
    *,
    num_episodes: int,
    seed: int,
    on_episode: Callable[[int, Episode, Episode], None] = lambda index, episode, best: None,
) -> Episode:
    """Plays episodes and returns the best one, the first if several are equal.

    Only an episode's result is kept; its seed replays it.

    Args:
        play: Plays the episode of a seed.
        num_episodes: The number of episodes, >= 1; their seeds are `seed`, `seed` + 1 and so on.
        seed: The seed of the first episode.
        on_episode: Receives each episode's index, its result, and the best result so far.

    Raises:
        ValueError: `num_episodes` is below 1.
    """
    if num_episodes < 1:
        raise ValueError(f"`episodes` must be >= 1, got {num_episodes}.")
    episodes: list[Episode] = []
    for index in range(num_episodes):
        episodes.append(play(seed + index))
        best = max(episodes, key=lambda episode: (episode.score, episode.episode_return))
        on_episode(index, episodes[-1], best)
    return best


def drawing(
    environment_id: str, camera: int | str | None, height: int | None, width: int | None
) -> tuple[dict[str, Any], Render]:
    """Returns the settings that an environment needs to be drawn, and the function that draws it.

    Args:
        environment_id: The id, as for `environments.make`. The module that it names is imported.
        camera: The number or name of one of the model's cameras, or None for the default.
        height: The height in pixels, or None for the default.
        width: The width in pixels, or None for the default.

    Raises:
        ValueError: A size is below 1.
    """
    size = {name: pixels for name, pixels in (("height", height), ("width", width)) if pixels is not None}
    for name, pixels in size.items():
        if pixels < 1:
            raise ValueError(f"`{name}` must be >= 1 pixel, got {pixels}.")
    if environment_id.startswith("dm_control/"):
        camera_id = 0 if camera is None else camera
        return {}, functools.partial(wrappers.render_frame, camera_id=camera_id, **_DM_CONTROL_SIZE | size)
    settings: dict[str, Any] = {**size}
    if own.accepts(environment_id, "render_mode"):
        settings["render_mode"] = "rgb_array"
    if camera is not None:
        settings["camera_id" if isinstance(camera, int) else "camera_name"] = camera
    return settings, wrappers.render_frame


def check_drawable(environment: dm_env.Environment, render: Render) -> None:
    """Draws the first frame of an episode.

    Raises:
        ValueError: Drawing fails, or gives no uint8 image [height, width, 3]; the message says why.
    """
    environment.reset()
    _try_to_render(render, environment)


def choose_renderer() -> None:
    """Lets MuJoCo and SDL draw without a display. Call it before MuJoCo is imported.

    If the user has set MUJOCO_GL, it is kept. Otherwise EGL and OSMesa are tried, each in its own process,
    since a process can use only one. If neither works, none is chosen and drawing will fail.
    """
    if sys.platform != "linux" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        return
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    if "MUJOCO_GL" not in os.environ and "mujoco" not in sys.modules:
        if backend := next(filter(_works, _BACKENDS), None):
            os.environ["MUJOCO_GL"] = backend


def _works(backend: str) -> bool:
    command = [sys.executable, "-c", _PROBE]
    variables = {**os.environ, "MUJOCO_GL": backend, "PYOPENGL_PLATFORM": backend}
    try:
        subprocess.run(command, env=variables, capture_output=True, check=True, timeout=_PROBE_SECONDS)
    except subprocess.SubprocessError:
        return False
    return True


def _try_to_render(render: Render, environment: dm_env.Environment) -> np.ndarray:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # third-party warnings about imports
            frame = render(environment)
    except NotImplementedError as error:
        raise ValueError(
            "`environment` must support drawing, but its `render` is not implemented. Implement it; for the "
            "`render_mode` 'rgb_array' it must return a uint8 image [height, width, 3]."
        ) from error
    except (ValueError, MemoryError):
        raise  # the message says what is wrong with the size or the camera
    except Exception as error:  # drawing libraries fail in many ways
        backend = os.environ.get("MUJOCO_GL")
        raise ValueError(
            f"`environment` must support drawing on this machine, but this failed: {error} "
            f"(MUJOCO_GL is {repr(backend) if backend else 'not set'}). Without a display, MuJoCo needs EGL: "
            "apt-get install libegl1 libgl1, then put MUJOCO_GL=egl before the command. If the error of a "
            "Gymnasium environment names a package, install it."
        ) from error
    if not isinstance(frame, np.ndarray) or frame.dtype != np.uint8 or frame.shape[2:] != (3,):
        found = type(frame).__name__
        if isinstance(frame, np.ndarray):
            found = f"{frame.dtype} of shape {frame.shape}"
        raise ValueError(
            "`render` must return one picture, a uint8 image [height, width, 3] in red, green and blue, got "
            f"{found}. Convert it there; one of Gymnasium's draws such pictures with render_mode='rgb_array'."
        )
    return frame
