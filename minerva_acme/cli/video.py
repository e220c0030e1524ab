"""`minerva video`."""

import contextlib
import itertools
import math
import pathlib
import tempfile
from typing import Any

import dm_env
import numpy as np
from rich.progress import Progress

from minerva_acme import runs
from minerva_acme.cli import choices, commands, environment_choice
from minerva_acme.cli.output import Console
from minerva_acme.environments import task_settings
from minerva_acme.runs import options, policies, recorded_environment, run_folder
from minerva_acme.video import recording
from minerva_acme.wrappers import rendering

_FORMATS = ("mp4", "gif")
_PICTURES_A_LINE = 200  # without a terminal, which shows a progress bar


def run(command: commands.Video) -> int:
    """Records the best of several episodes of each checkpoint; returns the exit status.

    Raises:
        ValueError: There is no such run or file, a package is missing, or the environment cannot be rendered
            as requested.
    """
    if command.every < 1:
        raise ValueError(f"`every` must be >= 1 step, got {command.every}. With 1, every step is drawn.")
    with choices.needed("video"):
        from minerva_acme.video import movie
    if not command.checkpoint:
        raise ValueError("`checkpoint` must name at least one checkpoint, such as latest, got none.")
    console = Console()
    # Two names of one checkpoint are one picture.
    shown = {(one := policies.find(command.directory, name)).path: one for name in command.checkpoint}
    beside = pathlib.Path() if next(iter(shown)).is_file() else command.directory
    name = "+".join(path.name.removesuffix(".safetensors") for path in shown)
    files = _files(command, beside / "videos" / name)
    if command.output is not None:
        command.output.parent.mkdir(parents=True, exist_ok=True)  # before the episodes are played
    recording.choose_renderer()
    side_by_side = len(shown) > 1
    filmer = _Filmer(command, next(iter(shown.values())).description, console, side_by_side)
    with tempfile.TemporaryDirectory() as folder:
        whole = files.get("mp4", pathlib.Path(folder, "film.mp4"))
        parts = [pathlib.Path(folder, f"{index}.mp4") for index in range(len(shown))]
        drawn = [
            filmer.film(one, part if side_by_side else whole)
            for one, part in zip(shown.values(), parts, strict=True)
        ]
        if side_by_side:
            movie.write_side_by_side(parts, whole)
        if "gif" in files:
            console.print("Converting it to a gif ...")
            movie.write_gif(whole, files["gif"], frames_per_second=filmer.rate)
    where = f"in {', '.join(map(str, files.values()))}"
    description = filmer.description
    for one, episode in zip(shown.values(), drawn, strict=True):
        console.print(
            f"{description.agent} on {description.environment}, {one.env_steps:,} {description.steps_name}: "
            f"return {filmer.describe(episode)}, the best of {command.episodes}"
            f"{'' if side_by_side else f', {where}'}"
        )
    if side_by_side:
        console.print(f"Side by side {where}")
    return 0


class _Filmer:
    """Finds and films the best episode of each checkpoint of a run.

    Attributes:
        description: The run, with the environment that is filmed.
        rate: The frames per second of the environment's time.
    """

    def __init__(
        self,
        command: commands.Video,
        described: run_folder.RunDescription,
        console: Console,
        side_by_side: bool,
    ) -> None:
        """Makes the environment once and draws it, to fail before all episodes are played.

        Raises:
            ValueError: The environment cannot be rendered as requested.
        """
        self._command, self._console, self._side_by_side = command, console, side_by_side
        self._builder = described.make_builder(import_code=command.import_code)
        self.description, self._make_environment = environment_choice.choose(described, command)
        self._metric = self.description.options.get("metric", options.RETURN)
        name = self.description.environment
        if name.startswith(task_settings.RECORDED):
            raise ValueError(recorded_environment.explain(name.removeprefix(task_settings.RECORDED)))
        camera = int(command.camera) if command.camera and command.camera.isdigit() else command.camera
        self._settings, self._render = recording.drawing(name, camera, command.height, command.width)
        if self.description.environment_factory:  # takes only a seed
            self._settings.pop("render_mode", None)
        with contextlib.closing(self._make(command.seed)) as environment:
            recording.check_drawable(environment, self._render)
            self.rate = rendering.frames_per_second(environment) / command.every

    def film(self, found: policies.Found, path: pathlib.Path) -> recording.Episode:
        """Plays the episodes of a checkpoint, and films the best; returns the episode that is filmed."""

        def play(episode_seed: int) -> recording.Episode:
            with contextlib.closing(self._make(episode_seed)) as environment:
                return self._play(found.path, environment, episode_seed)

        def report(index: int, episode: recording.Episode, best: recording.Episode) -> None:
            returns = f"return {self.describe(episode, 10)}  best {self.describe(best, 10)}"
            console.print(f"episode {index + 1:3d}/{command.episodes}  {returns}")

        command, console = self._command, self._console
        if self._side_by_side:
            console.print(f"The checkpoint of {found.env_steps:,} {self.description.steps_name}:")
        best = recording.find_best(play, num_episodes=command.episodes, seed=command.seed, on_episode=report)
        console.print(f"Drawing the best, {self.rate:g} frames per second of the environment's time ...")
        drawn = self._draw(found, best, path)
        if not np.isclose(drawn.episode_return, best.episode_return):
            console.print(
                f"Replayed from the same seed, the episode's return was {drawn.episode_return:.2f}: the "
                "environment has randomness that its seed does not control. The video shows the replayed "
                "episode."
            )
        return drawn

    def describe(self, episode: recording.Episode, width: int = 0) -> str:
        """Returns an episode's return, and its score by the run's metric."""
        of_metric = "" if self._metric == options.RETURN else f", {self._metric} {episode.score:.4g}"
        return f"{episode.episode_return:{width}.2f}{of_metric}"

    def _make(self, episode_seed: int) -> dm_env.Environment:
        name = self.description.environment
        try:
            made: Any = self._make_environment(episode_seed, **self._settings)
        except (TypeError, ValueError) as error:
            refused = [setting for setting in self._settings if f"argument '{setting}'" in str(error)]
            if not refused:
                raise
            if "render_mode" in refused:  # the environment does not support rendering
                raise ValueError(
                    f"{name} cannot be drawn: it takes no argument `render_mode`. Add that argument, and a "
                    "method `render` that returns a uint8 image [height, width, 3] if it is 'rgb_array'."
                ) from error
            raise ValueError(
                f"`camera`, `height` and `width` must not be given for {name}, which chooses them itself: "
                f"{error}"
            ) from error
        if not isinstance(made, dm_env.Environment):
            raise ValueError(
                f"`env` must be a single environment to be filmed, got a {type(made).__name__}. Choose one "
                "of the same task with --env."
            )
        return made

    def _play(
        self, checkpoint: pathlib.Path, environment: dm_env.Environment, episode_seed: int
    ) -> recording.Episode:
        result = runs.evaluate_checkpoint(
            checkpoint,
            self._builder,
            environment,
            1,
            seed=episode_seed,
            explore=self._command.explore,
            metric=self._metric,
        )
        score = next(iter(result.values(self._metric)), -math.inf)  # as where observers in Python measure it
        return recording.Episode(episode_seed, result.returns[0], result.lengths[0], score)

    def _draw(self, found: policies.Found, best: recording.Episode, path: pathlib.Path) -> recording.Episode:
        """Plays an episode again, and writes its frames as they are drawn."""
        from minerva_acme.video import movie

        console, every, above = self._console, self._command.every, self._side_by_side
        total, drawn_so_far = 1 + best.length // every, itertools.count(1)
        progress = Progress(console=console, disable=not console.is_terminal)
        task = progress.add_task("frames", total=total)
        with (
            contextlib.closing(self._make(best.seed)) as environment,
            movie.MovieWriter(path, frames_per_second=self.rate) as writer,
            progress,
        ):

            def draw(frame: np.ndarray, so_far: float) -> None:
                steps = f"{found.env_steps:,} steps: " if above else ""
                writer.write(movie.annotate(frame, f"{steps}return {so_far:.1f}", above=above))
                progress.advance(task)
                count = next(drawn_so_far)
                if not console.is_terminal and count % _PICTURES_A_LINE == 0:
                    console.print(f"{count:,} of {total:,} frames")

            drawing = recording.DrawingWrapper(environment, render=self._render, on_frame=draw, every=every)
            return self._play(found.path, drawing, best.seed)


def _files(command: commands.Video, by_default: pathlib.Path) -> dict[str, pathlib.Path]:
    """Returns the paths of the videos to write, by format."""
    out = command.output or by_default
    suffix = out.suffix.removeprefix(".")
    wanted = (suffix,) if suffix else command.format
    unknown = [name for name in wanted if name not in _FORMATS]
    if unknown or not wanted:
        raise ValueError(f"`format` must be in {', '.join(_FORMATS)}, got {', '.join(unknown) or 'none'}.")
    return {name: out.with_name(f"{out.name.removesuffix(out.suffix)}.{name}") for name in wanted}
