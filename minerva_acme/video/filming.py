"""Short, small videos of evaluations. Training waits while they are encoded."""

import contextlib
import functools
import pathlib
import tempfile
from collections.abc import Callable
from typing import Any

import dm_env
import numpy as np

from minerva_acme import core, environments, wrappers
from minerva_acme.names import readable
from minerva_acme.video import recording

# A video of ten seconds has at most 500 frames, one or two megabytes; TensorBoard keeps ten in memory.
_MAX_SECONDS = 10.0
_HEIGHT, _WIDTH = 240, 320  # pixels


class Filmer:
    """An `experiments.EpisodeFilmer` that records an episode as an animated gif in real time.

    The gif shows the episode's first 10 seconds, at most 320 pixels wide, with the return so far. It has
    every frame if the environment makes at most 50 steps per second, else every second one (or third ...),
    since browsers show no more.
    """

    def __init__(
        self,
        make_environment: Callable[[int], dm_env.Environment],
        *,
        render: recording.Render = wrappers.render_frame,
    ) -> None:
        """Draws one frame, so that a problem with drawing is found before training starts.

        Args:
            make_environment: Makes an environment from a seed, wrapped as the actor needs it. The environment
                can be drawn and has a `control_timestep`.
            render: Draws the environment as uint8 [height, width, 3].

        Raises:
            ValueError: The environment cannot be drawn, or a package is missing; the message says what to
                do.
        """
        try:
            from minerva_acme.video import movie
        except ModuleNotFoundError as error:
            fix = "pip install 'minerva-acme[video]', or train without `evaluation_video`"
            raise ValueError(f"Videos need {readable.missing(error, fix)}.") from error
        self._movie = movie
        self._make_environment = make_environment
        self._draw = functools.partial(recording.DrawingWrapper, render=render)
        with contextlib.closing(make_environment(0)) as environment:
            try:
                wrappers.frames_per_second(environment)
                self._draw(environment, on_frame=lambda frame, so_far: None).reset()
            except ValueError as error:
                raise ValueError(f"{error} Or train without `evaluation_video`.") from error

    def __call__(self, actor: core.Actor, seed: int, should_stop: Callable[[], bool]) -> bytes | None:
        """Plays an episode and returns its gif, or None if `should_stop` ended it."""
        movie = self._movie
        closing = contextlib.closing(self._make_environment(seed))
        with closing as environment, tempfile.TemporaryDirectory() as folder:
            film, gif = pathlib.Path(folder, "film.mp4"), pathlib.Path(folder, "film.gif")
            steps_per_second = wrappers.frames_per_second(environment)
            every = movie.gif_period(steps_per_second)
            rate = steps_per_second / every
            with movie.MovieWriter(film, frames_per_second=rate) as writer:

                def write(frame: np.ndarray, so_far: float) -> None:
                    writer.write(movie.annotate(frame, f"return {so_far:.1f}"))

                drawn = self._draw(environment, on_frame=write, every=every)
                loop = environments.EnvironmentLoop(environment=drawn, actor=actor, should_update=False)
                for _ in range(max(1, int(_MAX_SECONDS * steps_per_second) - 1)):
                    if loop.step() or should_stop():
                        break
            if should_stop():
                return None
            movie.write_gif(film, gif, frames_per_second=rate, width=_WIDTH)
            return gif.read_bytes()


def make_filmer(environment_id: str, **task_kwargs: Any) -> Filmer:
    """Makes a `Filmer` for a training environment by id. Call it before anything imports MuJoCo.

    Args:
        environment_id: The id, as for `environments.make`.
        **task_kwargs: The task settings, as for `environments.make`.

    Raises:
        ValueError: See `environments.make` and `Filmer`.
    """
    recording.choose_renderer()
    size = (_HEIGHT, _WIDTH) if environment_id.startswith("dm_control/") else (None, None)
    settings, render = recording.drawing(environment_id, None, *size)
    return Filmer(
        lambda seed: environments.make_training_environment(
            environment_id, seed=seed, **task_kwargs | settings
        ),
        render=render,
    )
