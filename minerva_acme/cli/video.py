"""`minerva video`."""

import contextlib
import pathlib
import tempfile
from collections.abc import Sequence

import dm_env
import numpy as np
from rich import console as rich_console
from rich import progress as rich_progress

from minerva_acme import environments, experiments
from minerva_acme.cli import runs
from minerva_acme.experiments import checkpointing
from minerva_acme.video import recording
from minerva_acme.wrappers import rendering

_FORMATS = ("mp4", "gif")


def run(
    directory: pathlib.Path,
    *,
    episodes: int = 5,
    out: pathlib.Path | None = None,
    formats: Sequence[str] = _FORMATS,
    camera: int | str | None = None,
    height: int | None = None,
    width: int | None = None,
    seed: int = 0,
    explore: bool = False,
) -> int:
    """Films the best of several episodes of a run's newest checkpoint; returns the exit status.

    Args:
        directory: the run's folder.
        episodes: how many to choose from.
        out: the film's path, its suffix one of the formats or missing; None: in the run's folder, named by
            the checkpoint.
        formats: "mp4", "gif" or both, where `out` has no suffix.
        camera: number or name of a camera of the model; None: the environment's own choice.
        height: pixels; None: the environment's own choice.
        width: pixels, likewise.
        seed: of the first episode; the others' follow it.
        explore: whether to act with the exploring policy rather than the one to be judged by.
    """
    try:
        from minerva_acme.video import movie
    except ModuleNotFoundError as error:
        raise ValueError(
            f"`minerva video` needs '{error.name}', which is not installed: pip install 'minerva-acme[video]'"
        ) from error
    console = rich_console.Console(highlight=False, soft_wrap=True)
    description = runs.read(directory)
    checkpoint = checkpointing.find(directory)
    files = _files(out or directory / "videos" / checkpoint.name, formats)
    recording.choose_renderer()
    builder = description.make_builder()
    settings, render = recording.drawing(description.environment, camera, height, width)

    def make(episode_seed: int) -> dm_env.Environment:
        try:
            return environments.make_training_environment(
                description.environment, seed=episode_seed, **settings
            )
        except TypeError as error:
            raise ValueError(
                f"`camera`, `height` and `width` must not be given with {description.environment}, "
                f"which chooses them itself: {error}"
            ) from error

    def play(environment: dm_env.Environment, episode_seed: int) -> recording.Episode:
        result = experiments.evaluate_checkpoint(
            checkpoint, builder, environment, 1, seed=episode_seed, explore=explore
        )
        return recording.Episode(episode_seed, result.returns[0], result.lengths[0])

    def play_unseen(episode_seed: int) -> recording.Episode:
        with contextlib.closing(make(episode_seed)) as environment:
            return play(environment, episode_seed)

    def report(index: int, episode: recording.Episode, best: recording.Episode) -> None:
        console.print(
            f"episode {index + 1:3d}/{episodes}  return {episode.episode_return:10.2f}  "
            f"best {best.episode_return:10.2f}"
        )

    best = recording.find_best(play_unseen, num_episodes=episodes, seed=seed, on_episode=report)
    with contextlib.closing(make(best.seed)) as environment, tempfile.TemporaryDirectory() as folder:
        rate = rendering.frames_per_second(environment)
        film = files.get("mp4", pathlib.Path(folder, "film.mp4"))
        console.print(f"Drawing the best, {rate:g} pictures for a second of the environment's time ...")
        with movie.MovieWriter(film, frames_per_second=rate) as writer, _bar(console) as bar:
            task = bar.add_task("pictures", total=best.length + 1)

            def draw(frame: np.ndarray, so_far: float) -> None:
                writer.write(movie.annotate(frame, f"return {so_far:.1f}"))
                bar.advance(task)

            drawn = play(recording.DrawingWrapper(environment, render=render, on_frame=draw), best.seed)
        if "gif" in files:
            movie.write_gif(film, files["gif"], frames_per_second=rate)
    if not np.isclose(drawn.episode_return, best.episode_return):
        console.print(
            f"Played again from the same seed, the episode's return was {drawn.episode_return:.2f}: the "
            "environment draws from something else than its seed. The film shows that episode."
        )
    console.print(
        f"{description.agent} on {description.environment}, {int(checkpoint.name):,} environment steps: "
        f"return {drawn.episode_return:.2f}, the best of {episodes}, in {', '.join(map(str, files.values()))}"
    )
    return 0


def _bar(console: rich_console.Console) -> rich_progress.Progress:
    return rich_progress.Progress(
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(bar_width=None),
        rich_progress.TextColumn("{task.completed:,}/{task.total:,}"),
        rich_progress.TimeRemainingColumn(elapsed_when_finished=True),
        console=console,
        disable=not console.is_terminal,
    )


def _files(out: pathlib.Path, formats: Sequence[str]) -> dict[str, pathlib.Path]:
    suffix = out.suffix.removeprefix(".")
    wanted = [suffix] if suffix else list(formats)
    unknown = [name for name in wanted if name not in _FORMATS]
    if unknown or not wanted:
        raise ValueError(f"`format` must be of {', '.join(_FORMATS)}, got {', '.join(unknown) or 'none'}.")
    return {name: out.with_name(f"{out.name.removesuffix(out.suffix)}.{name}") for name in wanted}
