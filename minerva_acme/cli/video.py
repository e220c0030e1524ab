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

from minerva_acme import runs, task_settings
from minerva_acme.cli import commands, environment_choice, extras
from minerva_acme.cli.console import Console
from minerva_acme.runs import options, policies, recorded_environment
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
    with extras.needed("video"):
        from minerva_acme.video import movie
    console = Console()
    if not command.checkpoint:
        raise ValueError("`checkpoint` must name at least one checkpoint, such as latest, got none.")
    # Two names of one checkpoint are one picture.
    shown = {(one := policies.find(command.directory, name)).path: one for name in command.checkpoint}
    found = next(iter(shown.values()))
    beside = pathlib.Path() if found.path.is_file() else command.directory
    name = "+".join(path.name.removesuffix(".safetensors") for path in shown)
    files = _files(command, beside / "videos" / name)
    if command.output is not None:
        command.output.parent.mkdir(parents=True, exist_ok=True)  # before the episodes are played
    recording.choose_renderer()
    builder = found.description.make_builder(import_code=command.import_code)
    description, make_environment = environment_choice.choose(found.description, command)
    environment_id = description.environment
    metric = description.options.get("metric", options.RETURN)
    if environment_id.startswith(task_settings.RECORDED):
        raise ValueError(recorded_environment.explain(environment_id.removeprefix(task_settings.RECORDED)))
    camera = int(command.camera) if command.camera and command.camera.isdigit() else command.camera
    settings, render = recording.drawing(environment_id, camera, command.height, command.width)
    if description.environment_factory:  # takes only a seed
        settings.pop("render_mode", None)

    def make(episode_seed: int) -> dm_env.Environment:
        try:
            made: Any = make_environment(episode_seed, **settings)
        except (TypeError, ValueError) as error:
            refused = [name for name in settings if f"argument '{name}'" in str(error)]
            if not refused:
                raise
            if "render_mode" in refused:  # the environment does not support rendering
                raise ValueError(
                    f"{environment_id} cannot be drawn: it takes no argument `render_mode`. Add that "
                    "argument, and a method `render` that returns a uint8 image [height, width, 3] if it is "
                    "'rgb_array'."
                ) from error
            raise ValueError(
                f"`camera`, `height` and `width` must not be given for {environment_id}, "
                f"which chooses them itself: {error}"
            ) from error
        if not isinstance(made, dm_env.Environment):
            raise ValueError(
                f"`env` must be a single environment to be filmed, got a {type(made).__name__}. Choose one "
                "of the same task with --env."
            )
        return made

    def play(path: pathlib.Path, environment: dm_env.Environment, episode_seed: int) -> recording.Episode:
        result = runs.evaluate_checkpoint(
            path, builder, environment, 1, seed=episode_seed, explore=command.explore, metric=metric
        )
        score = next(iter(result.values(metric)), -math.inf)  # as where observers in Python measure it
        return recording.Episode(episode_seed, result.returns[0], result.lengths[0], score)

    def described(episode: recording.Episode, width: int = 0) -> str:
        of_metric = "" if metric == options.RETURN else f", {metric} {episode.score:.4g}"
        return f"{episode.episode_return:{width}.2f}{of_metric}"

    with contextlib.closing(make(command.seed)) as environment:  # fail before playing all episodes
        recording.check_drawable(environment, render)
        rate = rendering.frames_per_second(environment) / command.every
    num_episodes, side_by_side = command.episodes, len(shown) > 1

    def report(index: int, episode: recording.Episode, best: recording.Episode) -> None:
        found = f"return {described(episode, 10)}  best {described(best, 10)}"
        console.print(f"episode {index + 1:3d}/{num_episodes}  {found}")

    def film(found: policies.Found, path: pathlib.Path) -> recording.Episode:
        def play_unseen(episode_seed: int) -> recording.Episode:
            with contextlib.closing(make(episode_seed)) as environment:
                return play(found.path, environment, episode_seed)

        if side_by_side:
            console.print(f"The checkpoint of {found.env_steps:,} {description.steps_name}:")
        best = recording.find_best(
            play_unseen, num_episodes=num_episodes, seed=command.seed, on_episode=report
        )
        console.print(f"Drawing the best, {rate:g} frames per second of the environment's time ...")
        progress = Progress(console=console, disable=not console.is_terminal)
        with (
            contextlib.closing(make(best.seed)) as environment,
            movie.MovieWriter(path, frames_per_second=rate) as writer,
            progress,
        ):
            total = 1 + best.length // command.every
            task = progress.add_task("frames", total=total)
            drawn_so_far = itertools.count(1)

            def draw(frame: np.ndarray, so_far: float) -> None:
                steps = f"{found.env_steps:,} steps: " if side_by_side else ""
                writer.write(movie.annotate(frame, f"{steps}return {so_far:.1f}", above=side_by_side))
                progress.advance(task)
                count = next(drawn_so_far)
                if not console.is_terminal and count % _PICTURES_A_LINE == 0:
                    console.print(f"{count:,} of {total:,} frames")

            drawing = recording.DrawingWrapper(environment, render=render, on_frame=draw, every=command.every)
            drawn = play(found.path, drawing, best.seed)
        if not np.isclose(drawn.episode_return, best.episode_return):
            console.print(
                f"Replayed from the same seed, the episode's return was {drawn.episode_return:.2f}: the "
                "environment has randomness that its seed does not control. The video shows the replayed "
                "episode."
            )
        return drawn

    with tempfile.TemporaryDirectory() as folder:
        whole = files.get("mp4", pathlib.Path(folder, "film.mp4"))
        parts = [pathlib.Path(folder, f"{index}.mp4") for index in range(len(shown))]
        drawn = [
            film(one, part if side_by_side else whole)
            for one, part in zip(shown.values(), parts, strict=True)
        ]
        if side_by_side:
            movie.write_side_by_side(parts, whole)
        if "gif" in files:
            console.print("Converting it to a gif ...")
            movie.write_gif(whole, files["gif"], frames_per_second=rate)
    where = f"in {', '.join(map(str, files.values()))}"
    for one, episode in zip(shown.values(), drawn, strict=True):
        console.print(
            f"{description.agent} on {environment_id}, {one.env_steps:,} {description.steps_name}: return "
            f"{described(episode)}, the best of {num_episodes}{'' if side_by_side else f', {where}'}"
        )
    if side_by_side:
        console.print(f"Side by side {where}")
    return 0


def _files(command: commands.Video, by_default: pathlib.Path) -> dict[str, pathlib.Path]:
    """Returns the paths of the videos to write, by format."""
    out = command.output or by_default
    suffix = out.suffix.removeprefix(".")
    wanted = (suffix,) if suffix else command.format
    unknown = [name for name in wanted if name not in _FORMATS]
    if unknown or not wanted:
        raise ValueError(f"`format` must be in {', '.join(_FORMATS)}, got {', '.join(unknown) or 'none'}.")
    return {name: out.with_name(f"{out.name.removesuffix(out.suffix)}.{name}") for name in wanted}
