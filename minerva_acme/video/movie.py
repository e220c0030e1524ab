"""Encodes frames as mp4 and gif files that play in real time, without keeping all frames in memory."""

import contextlib
import fractions
import functools
import os
import pathlib
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, Self

import imageio_ffmpeg
import numpy as np
from PIL import Image, ImageDraw, ImageFont

# The quality of H.264 is from 0 (lossless) to 51; lower values make no visible difference.
_ENCODING = ("-c:v", "libx264", "-crf", "18", "-movflags", "+faststart")
_GAP = 8  # pixels between movies side by side
# Browsers slow down a gif whose frames change more often.
_MAX_GIF_FRAMES_PER_SECOND = 50
_TEXT_LINES_PER_FRAME = 18
_SMALLEST_TEXT = 6  # pixels

_font = functools.cache(ImageFont.load_default)


class MovieWriter:
    """A context manager that encodes frames to an mp4 file as they arrive.

    The complete file appears at `close`. If an exception leaves the block, no file is written.
    """

    def __init__(self, path: pathlib.Path, *, frames_per_second: float) -> None:
        """Args: path: The file, which must end in .mp4. frames_per_second: The frame rate, > 0.

        Raises:
            ValueError: An argument is out of range.
        """
        if path.suffix != ".mp4":
            raise ValueError(f"`path` must end in .mp4, got '{path}'. `write_gif` converts mp4 to gif.")
        if not frames_per_second > 0.0:
            raise ValueError(f"`frames_per_second` must be > 0, got {frames_per_second}.")
        self._path = path
        self._rate = _rate(frames_per_second)
        self._shape: tuple[int, ...] = ()
        self._encoder: subprocess.Popen[bytes] | None = None
        self._file = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        if error[0] is None:
            self.close()
        elif self._encoder is not None:
            self._encoder.kill()
            self._encoder.communicate()
            self._file.__exit__(*error)

    def write(self, frame: np.ndarray) -> None:
        """Appends a frame.

        Args:
            frame: The frame, uint8 [height, width, 3]; all frames have the same size.

        Raises:
            ValueError: The frame has a different shape or dtype.
            OSError: The encoder failed; the message is its own.
        """
        if frame.ndim != 3 or frame.shape[2] != 3 or frame.dtype != np.uint8:
            raise ValueError(
                f"`frame` must be uint8 [height, width, 3], got {frame.dtype} {list(frame.shape)}."
            )
        if self._encoder is None:
            self._encoder, self._shape = self._start(*frame.shape[:2]), frame.shape
        if frame.shape != self._shape:
            raise ValueError(f"`frame` must have the shape of the first, {self._shape}, got {frame.shape}.")
        assert self._encoder.stdin is not None
        try:
            self._encoder.stdin.write(np.ascontiguousarray(frame).data)
        except BrokenPipeError:
            self.close()  # raises the encoder's error

    def close(self) -> None:
        """Finishes the file.

        Raises:
            ValueError: No frame was written.
            OSError: The encoder failed; the message is its own.
        """
        if self._encoder is None:
            raise ValueError("At least one frame must be written before `close`, got none.")
        with self._file:
            _, errors = self._encoder.communicate()
            _check(self._encoder.returncode, errors, self._path)

    def _start(self, height: int, width: int) -> subprocess.Popen[bytes]:
        unfinished = self._file.enter_context(_complete_or_absent(self._path))
        command = [
            *_ffmpeg(),
            *("-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}"),
            *("-framerate", self._rate, "-i", "-"),
            # All players support yuv420p, which halves the resolution of colours: both sides must be even.
            *("-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-pix_fmt", "yuv420p"),
            *_ENCODING,
            unfinished,
        ]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)


def write_gif(
    movie: pathlib.Path, path: pathlib.Path, *, frames_per_second: float, width: int | None = None
) -> None:
    """Converts an mp4 to a gif that plays at the same speed, in a loop.

    A gif shows each frame for whole hundredths of a second, and browsers need at least two: above 50
    frames per second, only every second frame (or third ...) is kept.

    Args:
        movie: The file that `MovieWriter` wrote.
        path: The gif file.
        frames_per_second: The frame rate of the movie.
        width: The width in pixels to which a wider movie is shrunk, or None to keep its size.

    Raises:
        OSError: The encoder failed; the message is its own.
    """
    filters = f"fps={_rate(frames_per_second / gif_period(frames_per_second))}"
    if width is not None:
        filters += f",scale='min(iw,{width})':-1:flags=area"
    with _complete_or_absent(path) as unfinished, tempfile.TemporaryDirectory() as folder:
        # A first pass finds the 256 colours; a single pass would keep all frames in memory.
        palette = os.path.join(folder, "palette.png")
        dithered = f"[0:v]{filters}[x];[x][1:v]paletteuse=dither=bayer:bayer_scale=5:diff_mode=rectangle"
        for arguments in (
            ["-vf", f"{filters},palettegen=stats_mode=diff", palette],
            ["-i", palette, "-lavfi", dithered, "-loop", "0", unfinished],
        ):
            done = subprocess.run([*_ffmpeg(), "-i", str(movie), *arguments], capture_output=True)
            _check(done.returncode, done.stderr, path)


def write_side_by_side(movies: Sequence[pathlib.Path], path: pathlib.Path) -> None:
    """Joins movies of the same height and frame rate to one, from left to right.

    It lasts as long as the longest of them. The others keep their last frame.

    Args:
        movies: The files that `MovieWriter` wrote, two or more.
        path: The mp4 file.

    Raises:
        OSError: The encoder failed; the message is its own.
    """
    inputs = [word for movie in movies for word in ("-i", str(movie))]
    last = len(movies) - 1
    gaps = [f"[{index}]pad=iw+{_GAP}:ih:0:0:white[gap{index}]" for index in range(last)]
    row = "".join(f"[gap{index}]" for index in range(last)) + f"[{last}]hstack=inputs={len(movies)}"
    with _complete_or_absent(path) as unfinished:
        command = [*_ffmpeg(), *inputs, "-filter_complex", ";".join([*gaps, row]), *_ENCODING, unfinished]
        done = subprocess.run(command, capture_output=True)
        _check(done.returncode, done.stderr, path)


def gif_period(frames_per_second: float) -> int:
    """Returns which frames of a video a gif keeps: 1 for all, 2 for every second one, and so on."""
    return -int(-frames_per_second // _MAX_GIF_FRAMES_PER_SECOND)


def annotate(frame: np.ndarray, text: str, *, above: bool = False) -> np.ndarray:
    """Returns the frame with a line of text, white on dark. It becomes smaller if the frame is too narrow.

    Args:
        frame: The frame, uint8 [height, width, 3].
        text: The line of text.
        above: Whether the text is in a strip above the frame, or in the frame's upper left corner.

    Returns:
        A copy of the frame with the text, uint8 [height, width, 3]; with a strip it is higher.
    """
    size = max(10, frame.shape[0] // _TEXT_LINES_PER_FRAME)
    height = int(1.8 * size)
    if above:
        frame = np.pad(frame, ((height, 0), (0, 0), (0, 0)))
    while size > _SMALLEST_TEXT and _font(size).getlength(text) + size > frame.shape[1]:
        size -= 1
    font = _font(size)
    # A multiple of the size, so that the box does not change with every digit.
    width = int(-(-font.getlength(text) // size) + 1) * size
    frame = frame.copy()
    frame[:height, :width] //= 3  # darken the background
    image = Image.fromarray(frame)
    ImageDraw.Draw(image).text((size // 2, height // 2), text, font=font, fill="white", anchor="lm")
    return np.asarray(image)


def _rate(frames_per_second: float) -> str:
    """Returns the rate as an exact ratio: 1 / 0.03 is 100/3, which two decimals cannot express."""
    return str(fractions.Fraction(frames_per_second).limit_denominator(1000))


def _ffmpeg() -> list[str]:
    return [imageio_ffmpeg.get_ffmpeg_exe(), "-hide_banner", "-loglevel", "error", "-nostdin", "-y"]


def _check(status: int, errors: bytes, path: pathlib.Path) -> None:
    if status != 0:
        words = errors.decode(errors="replace").strip()
        raise OSError(f"{path} could not be written: {words or 'the encoder stopped'}")


@contextlib.contextmanager
def _complete_or_absent(path: pathlib.Path) -> Iterator[str]:
    """Yields a temporary path to write to, which is renamed to `path` at the end, or removed on an error."""
    unfinished = path.with_name(f".unfinished-{path.name}")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield str(unfinished)
        unfinished.replace(path)
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink()
