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

from minerva_acme import types, wrappers

Render = Callable[[dm_env.Environment], np.ndarray]
"""Draws an environment: uint8 [height, width, 3]."""

_BACKENDS = ("egl", "osmesa")  # that need no display
_PROBE = "import mujoco; context = mujoco.GLContext(8, 8); context.make_current(); context.free()"
_PROBE_SECONDS = 60.0
_DM_CONTROL_SIZE: dict[str, Any] = {"height": 480, "width": 640}


class Episode(NamedTuple):
    """The result of an episode."""

    seed: int  # plays it again
    episode_return: float  # undiscounted sum of its rewards
    length: int  # environment steps


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
            environment: what to wrap and draw; its rewards are single numbers.
            render: draws it, uint8 [height, width, 3].
            on_frame: receives each frame, and the undiscounted sum of the rewards so far.
            every: draws FIRST and then one in so many timesteps.
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
        self._return = 0.0 if timestep.first() else self._return + float(timestep.reward)
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
    """Plays episodes and returns the one with the highest return, the first if several are equal.

    Only an episode's result is kept; its seed plays it again.

    Args:
        play: plays the episode of a seed.
        num_episodes: >= 1; their seeds are `seed`, `seed` + 1 and so on.
        seed: of the first.
        on_episode: receives each episode's index, its result, and the best result so far.

    Raises:
        ValueError: `num_episodes` is below 1.
    """
    if num_episodes < 1:
        raise ValueError(f"`episodes` must be >= 1, got {num_episodes}.")
    episodes: list[Episode] = []
    for index in range(num_episodes):
        episodes.append(play(seed + index))
        best = max(episodes, key=lambda episode: episode.episode_return)
        on_episode(index, episodes[-1], best)
    return best


def drawing(
    environment_id: str, camera: int | str | None, height: int | None, width: int | None
) -> tuple[dict[str, Any], Render]:
    """Returns the settings to make an environment with so that it can be drawn, and what draws it.

    Args:
        environment_id: as `environments.make` takes it.
        camera: number or name of a camera of the model; None: the environment's default.
        height: pixels; None: likewise.
        width: pixels; None: likewise.

    Raises:
        ValueError: a size is below 1.
    """
    size = {name: pixels for name, pixels in (("height", height), ("width", width)) if pixels is not None}
    for name, pixels in size.items():
        if pixels < 1:
            raise ValueError(f"`{name}` must be >= 1 pixel, got {pixels}.")
    if environment_id.startswith("dm_control/"):
        camera_id = 0 if camera is None else camera
        return {}, functools.partial(wrappers.render_frame, camera_id=camera_id, **_DM_CONTROL_SIZE | size)
    settings: dict[str, Any] = {"render_mode": "rgb_array", **size}
    if camera is not None:
        settings["camera_id" if isinstance(camera, int) else "camera_name"] = camera
    return settings, wrappers.render_frame


def check_drawable(environment: dm_env.Environment, render: Render) -> None:
    """Draws the first picture of an episode.

    Raises:
        ValueError: that fails; the message says why.
    """
    environment.reset()
    _try_to_render(render, environment)


def choose_renderer() -> None:
    """Lets MuJoCo and SDL draw without a display. Call it before MuJoCo is imported.

    A MUJOCO_GL that the user set stays. Otherwise EGL and OSMesa are tried, each in its own process, since
    a process can use only one. If neither works, none is chosen and drawing will fail.
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
            warnings.simplefilter("ignore")  # third parties' warnings about their imports
            return render(environment)
    except NotImplementedError as error:
        raise ValueError(
            "`environment` must be one that can be drawn, but its `render` is not implemented. Write one "
            "that returns a picture, uint8 [height, width, 3], for the `render_mode` 'rgb_array'."
        ) from error
    except (ValueError, MemoryError):
        raise  # says what is wrong with the size or the camera
    except Exception as error:  # drawing libraries fail in many ways
        backend = os.environ.get("MUJOCO_GL")
        raise ValueError(
            f"`environment` must be one that can be drawn on this machine, but that failed: {error} "
            f"(MUJOCO_GL is {repr(backend) if backend else 'not set'}). Without a display MuJoCo draws with "
            "EGL or OSMesa: apt-get install libegl1 libosmesa6, then put MUJOCO_GL=egl (or osmesa) before "
            "the command. A Gymnasium environment that names a package needs that one."
        ) from error
