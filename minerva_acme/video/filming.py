"""Films of evaluations: short, small, and encoded while training waits."""

import contextlib
import pathlib
import tempfile
from collections.abc import Callable

import dm_env
import numpy as np

from minerva_acme import core, environments, wrappers
from minerva_acme.video import recording

# A film of ten seconds has 500 pictures at most, a megabyte or two: TensorBoard keeps ten of them in memory.
_MAX_SECONDS = 10.0
_WIDTH = 320  # pixels
_HEIGHT = 240


class Filmer:
    """Films an actor's episode as an animated gif that plays in real time; an `experiments.EpisodeFilmer`.

    The gif has the episode's first 10 seconds, at most 320 pixels wide, with the return so far. It has
    every picture where the environment makes at most 50 steps a second, else every second one (or
    third ...), since browsers show no more.
    """

    def __init__(
        self,
        make_environment: Callable[[int], dm_env.Environment],
        *,
        render: Callable[[dm_env.Environment], np.ndarray] = wrappers.render_frame,
    ) -> None:
        """Draws one picture, so that a machine that cannot says so before anything was trained.

        Args:
            make_environment: makes an environment that can be drawn and tells its `control_timestep`,
                wrapped as the actor needs it, from a seed.
            render: draws it, uint8 [height, width, 3].

        Raises:
            ValueError: the environment cannot be drawn, or a package is missing; the message tells the
                way out.
        """
        try:
            from minerva_acme.video import movie
        except ModuleNotFoundError as error:
            raise ValueError(
                f"Films need '{error.name}', which is not installed: pip install 'minerva-acme[video]', "
                "or train without `evaluation_video`."
            ) from error
        self._movie = movie
        self._make_environment = make_environment
        self._render = render
        with contextlib.closing(make_environment(0)) as environment:
            try:
                wrappers.frames_per_second(environment)
                recording.DrawingWrapper(
                    environment, render=render, on_frame=lambda frame, so_far: None
                ).reset()
            except ValueError as error:
                raise ValueError(f"{error} Or train without `evaluation_video`.") from error

    def __call__(self, actor: core.Actor, seed: int, should_stop: Callable[[], bool]) -> bytes | None:
        """Plays an episode and returns its film, or None if `should_stop` said so in between."""
        movie = self._movie
        with contextlib.ExitStack() as resources:
            environment = resources.enter_context(contextlib.closing(self._make_environment(seed)))
            folder = pathlib.Path(resources.enter_context(tempfile.TemporaryDirectory()))
            steps_per_second = wrappers.frames_per_second(environment)
            every = movie.gif_period(steps_per_second)
            rate = steps_per_second / every
            with movie.MovieWriter(folder / "film.mp4", frames_per_second=rate) as writer:
                drawn = recording.DrawingWrapper(
                    environment,
                    render=self._render,
                    on_frame=lambda frame, so_far: writer.write(
                        movie.annotate(frame, f"return {so_far:.1f}")
                    ),
                    every=every,
                )
                loop = environments.EnvironmentLoop(environment=drawn, actor=actor, should_update=False)
                for _ in range(max(1, int(_MAX_SECONDS * steps_per_second) - 1)):
                    if loop.step() is not None or should_stop():
                        break
            if should_stop():
                return None
            movie.write_gif(folder / "film.mp4", folder / "film.gif", frames_per_second=rate, width=_WIDTH)
            return (folder / "film.gif").read_bytes()


def make_filmer(environment_id: str) -> Filmer:
    """Makes what films a training environment by id; call it before anything imports MuJoCo.

    Raises:
        ValueError: as `environments.make` and `Filmer`.
    """
    recording.choose_renderer()
    size = (_HEIGHT, _WIDTH) if environment_id.startswith("dm_control/") else (None, None)
    settings, render = recording.drawing(environment_id, None, *size)
    return Filmer(
        lambda seed: environments.make_training_environment(environment_id, seed=seed, **settings),
        render=render,
    )
