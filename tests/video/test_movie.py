import re
import subprocess

import imageio_ffmpeg
import numpy as np
import pytest
from PIL import Image, ImageSequence

from minerva_acme.video import movie


def picture(brightness=0, size=(32, 48)):
    return np.full((*size, 3), brightness, np.uint8)


def write(path, frames, frames_per_second):
    with movie.MovieWriter(path, frames_per_second=frames_per_second) as writer:
        for frame in frames:
            writer.write(frame)


def read(path):
    """Returns the film's pictures, and what the decoder says of it."""
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    done = subprocess.run(command, capture_output=True, check=True)
    words = done.stderr.decode()
    width, height = map(int, re.search(r"(\d+)x(\d+)[, ]", words).groups())
    return np.frombuffer(done.stdout, np.uint8).reshape(-1, height, width, 3), words


def shown_milliseconds(path):
    with Image.open(path) as gif:
        return [frame.info["duration"] for frame in ImageSequence.Iterator(gif)]


def test_a_film_has_every_picture_at_the_rate_that_was_asked_for(tmp_path):
    write(tmp_path / "new" / "film.mp4", [picture(40 * i) for i in range(6)], 40.0)
    frames, words = read(tmp_path / "new" / "film.mp4")
    assert "40 fps" in words and "h264" in words
    np.testing.assert_allclose([frame.mean() for frame in frames], 40.0 * np.arange(6), atol=3.0)


def test_a_rate_that_is_no_decimal_number_is_kept_exactly(tmp_path):
    # 1 / 0.03 seconds, dm_control's swimmer: after 300 pictures 9 seconds have gone by, to the picture.
    write(tmp_path / "film.mp4", [picture()] * 300, 1.0 / 0.03)
    frames, words = read(tmp_path / "film.mp4")
    assert len(frames) == 300 and "Duration: 00:00:09.00" in words


def test_pictures_with_odd_sides_are_padded(tmp_path):
    write(tmp_path / "film.mp4", [picture(200, (31, 47))] * 2, 10.0)
    frames, _ = read(tmp_path / "film.mp4")
    assert frames[0].shape == (32, 48, 3)


@pytest.mark.parametrize(("rate", "pictures"), [(25.0, 50), (40.0, 80), (100.0, 100), (125.0, 84)])
def test_a_gif_plays_as_long_as_its_film_and_no_faster_than_browsers_do(tmp_path, rate, pictures):
    changing = [picture(int(255 * (i % 7) / 6)) for i in range(int(2 * rate))]
    write(tmp_path / "film.mp4", changing, rate)
    movie.write_gif(tmp_path / "film.mp4", tmp_path / "film.gif", frames_per_second=rate)
    milliseconds = shown_milliseconds(tmp_path / "film.gif")
    assert abs(len(milliseconds) - pictures) <= 1 and min(milliseconds) >= 20
    assert sum(milliseconds) == pytest.approx(2000, abs=20)
    with Image.open(tmp_path / "film.gif") as gif:
        assert gif.info["loop"] == 0  # for ever


@pytest.mark.parametrize(("width", "size"), [(24, (24, 16)), (100, (48, 32)), (None, (48, 32))])
def test_a_gif_is_shrunk_to_the_width_that_was_asked_for(tmp_path, width, size):
    write(tmp_path / "film.mp4", [picture(40 * i) for i in range(3)], 10.0)
    movie.write_gif(tmp_path / "film.mp4", tmp_path / "film.gif", frames_per_second=10.0, width=width)
    with Image.open(tmp_path / "film.gif") as gif:
        assert (gif.size, gif.n_frames) == (size, 3)


def test_an_error_leaves_no_film_behind(tmp_path):
    with (
        pytest.raises(RuntimeError, match="stop"),
        movie.MovieWriter(tmp_path / "film.mp4", frames_per_second=10.0) as writer,
    ):
        while not any(tmp_path.iterdir()):  # until the encoder has begun a file
            writer.write(picture())
        raise RuntimeError("stop")
    assert not list(tmp_path.iterdir())


def test_a_film_that_exists_stays_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "film.mp4"
    path.write_bytes(b"old")
    writer = movie.MovieWriter(path, frames_per_second=10.0)
    writer.write(picture())
    assert path.read_bytes() == b"old"
    writer.close()
    assert len(read(path)[0]) == 1


def test_what_the_encoder_says_is_told(tmp_path):
    path = tmp_path / "film.mp4"
    (tmp_path / ".unfinished-film.mp4").mkdir()
    writer = movie.MovieWriter(path, frames_per_second=10.0)
    with pytest.raises(OSError, match="film.mp4 could not be written: .*[Dd]irectory"):
        writer.write(picture())
        writer.close()


def test_a_gif_of_no_film_is_told(tmp_path):
    with pytest.raises(OSError, match="could not be written: .*No such file"):
        movie.write_gif(tmp_path / "none.mp4", tmp_path / "film.gif", frames_per_second=10.0)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        ([np.zeros((4, 4), np.uint8)], r"`frame` must be uint8 \[height, width, 3\], got uint8 \[4, 4\]"),
        ([np.zeros((4, 4, 3))], r"`frame` must be uint8 \[height, width, 3\], got float64 \[4, 4, 3\]"),
        ([picture(), picture(size=(4, 4))], "`frame` must have the shape of the first"),
        ([], "At least one frame must be written before `close`, got none"),
    ],
)
def test_what_is_no_picture_is_refused(tmp_path, frames, message):
    with pytest.raises(ValueError, match=message):
        write(tmp_path / "film.mp4", frames, 10.0)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "rate", "message"),
    [("film.avi", 10.0, "`path` must end in .mp4"), ("film.mp4", 0.0, "`frames_per_second` must be > 0")],
)
def test_what_is_no_film_is_refused(tmp_path, name, rate, message):
    with pytest.raises(ValueError, match=message):
        movie.MovieWriter(tmp_path / name, frames_per_second=rate)


@pytest.mark.parametrize("ground", [0, 128, 255])
def test_text_is_legible_on_any_ground_and_the_rest_stays(ground):
    frame = picture(ground, (240, 320))
    written = movie.annotate(frame, "return 123.4")
    corner = written[:20, :80]
    assert int(corner.max()) - int(np.median(corner)) > 150
    assert np.all(written[60:] == ground) and np.all(written[:, 200:] == ground)
    assert np.all(frame == ground)


def test_text_above_a_picture_hides_nothing_of_it():
    frame = picture(128, (240, 320))
    written = movie.annotate(frame, "12,000 steps: return 123.4", above=True)
    strip, below = np.split(written, [len(written) - 240])
    assert np.all(below == frame)
    assert strip.max() == 255 and np.median(strip) == 0 and 20 <= len(strip) <= 30


def test_text_becomes_smaller_until_it_fits_into_a_narrow_picture():
    white = movie.annotate(picture(0, (240, 100)), "12,000 steps: return 123.4", above=True) > 200
    columns = np.flatnonzero(white.any(axis=(0, 2)))
    assert columns[0] > 0 and 80 < columns[-1] < 97  # the last digit too


def test_films_side_by_side_last_as_long_as_the_longest(tmp_path):
    films = [tmp_path / f"{brightness}.mp4" for brightness in (60, 120, 200)]
    for film, length in zip(films, (3, 5, 2), strict=True):
        brightness = int(film.stem)
        write(film, [picture(brightness)] * (length - 1) + [picture(brightness - 40)], 10.0)
    movie.write_side_by_side(films, tmp_path / "row.mp4")
    frames, words = read(tmp_path / "row.mp4")
    assert "10 fps" in words and frames.shape == (5, 32, 48 + 8 + 48 + 8 + 48, 3)
    found = [frames[:, 16, column].mean(axis=-1) for column in (24, 80, 136)]
    expected = [[60, 60, 20, 20, 20], [120, 120, 120, 120, 80], [200, 160, 160, 160, 160]]
    np.testing.assert_allclose(found, expected, atol=4.0)
    assert frames[:, :, [51, 107]].min() > 240  # white between them
    with pytest.raises(OSError, match="could not be written: .*No such file"):
        movie.write_side_by_side([films[0], tmp_path / "none.mp4"], tmp_path / "no.mp4")
    assert not (tmp_path / "no.mp4").exists()
