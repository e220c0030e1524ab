"""Pictures to a film: mp4 and gif that play in real time, without holding the pictures in memory."""

import contextlib
import fractions
import functools
import os
import pathlib
import subprocess
import tempfile
from types import TracebackType
from typing import IO, Any, Self

import imageio_ffmpeg
import numpy as np
from PIL import Image, ImageDraw, ImageFont

_QUALITY = "18"  # of H.264, from 0 (lossless) to 51; below 18 nobody sees a difference
# Browsers slow down a gif whose pictures change more often.
_MAX_GIF_FRAMES_PER_SECOND = 50
_TEXT_LINES_PER_FRAME = 18


class MovieWriter:
    """Encodes pictures to an mp4 file as they come; the file appears, whole, at `close`.

    A context manager: left by an exception, it writes nothing.
    """

    def __init__(self, path: pathlib.Path, *, frames_per_second: float) -> None:
        """Args: path: ends in .mp4. frames_per_second: pictures in a second, > 0.

        Raises:
            ValueError: an argument is out of its range.
        """
        if path.suffix != ".mp4":
            raise ValueError(f"`path` must end in .mp4, got '{path}'. `write_gif` makes gifs of such.")
        if not frames_per_second > 0.0:
            raise ValueError(f"`frames_per_second` must be > 0, got {frames_per_second}.")
        self._path = path
        self._rate = _rate(frames_per_second)
        self._shape: tuple[int, ...] | None = None
        self._encoder: subprocess.Popen[bytes] | None = None
        self._complaints: IO[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc_type is None:
            self.close()
        else:
            self._give_up()

    def write(self, frame: np.ndarray) -> None:
        """Appends a picture.

        Args:
            frame: uint8 [height, width, 3], each of the same size.

        Raises:
            ValueError: it is no such picture.
            OSError: the encoder failed; the message is its own.
        """
        if frame.ndim != 3 or frame.shape[2] != 3 or frame.dtype != np.uint8:
            raise ValueError(
                f"`frame` must be uint8 [height, width, 3], got {frame.dtype} {list(frame.shape)}."
            )
        if self._encoder is None:
            self._shape = frame.shape
            self._encoder = self._start(*frame.shape[:2])
        if frame.shape != self._shape:
            raise ValueError(f"`frame` must be as large as the first, {self._shape}, got {frame.shape}.")
        assert self._encoder.stdin is not None
        try:
            self._encoder.stdin.write(np.ascontiguousarray(frame).data)
        except BrokenPipeError:
            raise self._failure() from None

    def close(self) -> None:
        """Finishes the file.

        Raises:
            ValueError: there was no picture.
            OSError: the encoder failed; the message is its own.
        """
        if self._encoder is None:
            raise ValueError("At least one frame must be written before `close`, got none.")
        assert self._encoder.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._encoder.stdin.close()
        if self._encoder.wait() != 0:
            raise self._failure()
        self._release()
        os.replace(self._unfinished, self._path)

    @property
    def _unfinished(self) -> pathlib.Path:
        return self._path.with_name(f".unfinished-{self._path.name}")

    def _start(self, height: int, width: int) -> subprocess.Popen[bytes]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 -- held as long as the encoder
        return subprocess.Popen(
            [
                *_ffmpeg(),
                *("-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}"),
                *("-framerate", self._rate, "-i", "-"),
                # Half as many colours as pixels, as every player expects: the sides must be even.
                *("-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-pix_fmt", "yuv420p"),
                *("-c:v", "libx264", "-crf", _QUALITY, "-movflags", "+faststart"),
                str(self._unfinished),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._complaints,
        )

    def _give_up(self) -> None:
        if self._encoder is not None:
            self._encoder.kill()
            self._encoder.wait()
            self._release()
            with contextlib.suppress(OSError):
                self._unfinished.unlink()

    def _release(self) -> None:
        assert self._encoder is not None and self._encoder.stdin is not None and self._complaints is not None
        with contextlib.suppress(BrokenPipeError):
            self._encoder.stdin.close()
        self._complaints.close()

    def _failure(self) -> OSError:
        assert self._encoder is not None and self._complaints is not None
        self._encoder.wait()
        self._complaints.seek(0)
        words = self._complaints.read().decode(errors="replace").strip()
        self._give_up()
        return OSError(f"{self._path} could not be written: {words or 'the encoder stopped'}")


def write_gif(
    movie: pathlib.Path, path: pathlib.Path, *, frames_per_second: float, width: int | None = None
) -> None:
    """Turns an mp4 into a gif that plays at the same speed, over and over.

    A gif's pictures stay for whole hundredths of a second, and browsers want at least two: at more than
    50 pictures a second every second one (or third ...) is taken.

    Args:
        movie: what `MovieWriter` wrote.
        path: of the gif.
        frames_per_second: of the movie.
        width: pixels that a wider one is shrunk to; None: as it is.

    Raises:
        OSError: the encoder failed; the message is its own.
    """
    filters = f"fps={_rate(frames_per_second / gif_period(frames_per_second))}"
    if width is not None:
        filters += f",scale='min(iw,{width})':-1:flags=area"
    unfinished = path.with_name(f".unfinished-{path.name}")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory() as folder:
            # The 256 colours first: in one pass, all pictures would wait for them in memory.
            palette = os.path.join(folder, "palette.png")
            _run("-i", str(movie), "-vf", f"{filters},palettegen=stats_mode=diff", palette)
            dithered = f"[0:v]{filters}[x];[x][1:v]paletteuse=dither=bayer:bayer_scale=5:diff_mode=rectangle"
            _run("-i", str(movie), "-i", palette, "-lavfi", dithered, "-loop", "0", str(unfinished))
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def gif_period(frames_per_second: float) -> int:
    """Returns which of the pictures of a film a gif shows: every one, every second, ..."""
    return -int(-frames_per_second // _MAX_GIF_FRAMES_PER_SECOND)


def annotate(frame: np.ndarray, text: str) -> np.ndarray:
    """Returns the picture with a line of text in its upper left corner, in white on a dark ground.

    Args:
        frame: uint8 [height, width, 3].
        text: a line.

    Returns:
        uint8 [height, width, 3], a copy.
    """
    size = max(10, frame.shape[0] // _TEXT_LINES_PER_FRAME)
    font = _font(size)
    # In whole sizes, so that the box does not twitch with every digit.
    width, height = int(-(-font.getlength(text) // size) + 1) * size, int(1.8 * size)
    frame = frame.copy()
    frame[:height, :width] //= 3  # a darker ground, whatever is there
    image = Image.fromarray(frame)
    ImageDraw.Draw(image).text((size // 2, height // 2), text, font=font, fill="white", anchor="lm")
    return np.asarray(image)


@functools.cache
def _font(size: int) -> Any:
    return ImageFont.load_default(size)


def _rate(frames_per_second: float) -> str:
    """An exact ratio: 1 / 0.03 is 100/3, which two decimals would miss."""
    return str(fractions.Fraction(frames_per_second).limit_denominator(1000))


def _ffmpeg() -> list[str]:
    return [imageio_ffmpeg.get_ffmpeg_exe(), "-hide_banner", "-loglevel", "error", "-nostdin", "-y"]


def _run(*arguments: str) -> None:
    done = subprocess.run([*_ffmpeg(), *arguments], capture_output=True)
    if done.returncode != 0:
        words = done.stderr.decode(errors="replace").strip()
        raise OSError(f"{arguments[-1]} could not be written: {words or 'the encoder stopped'}")
