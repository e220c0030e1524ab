"""Films of evaluations, as TensorBoard gets them."""

import csv
import io
import json

import gymnasium
import numpy as np
import pytest
from PIL import Image, ImageSequence

from minerva_acme import testing, video, wrappers
from minerva_acme.cli import main
from minerva_acme.video import filming
from tests.loggers import test_tensorboard

pytestmark = pytest.mark.usefixtures("environment_variables_stay")


class Drawable(testing.FakeEnvironment):
    """Is drawn as a picture of one brightness, which rises with every step."""

    def __init__(self, rate, episode_length, size=(24, 32)):
        super().__init__(episode_length=episode_length)
        self.rate, self.size, self.was_closed = rate, size, False

    def control_timestep(self):
        return 1.0 / self.rate

    def render(self):
        return np.full((*self.size, 3), len(self.actions) % 256, np.uint8)

    def close(self):
        self.was_closed = True


def make_actor(environment):
    return testing.FakeActor(np.zeros(environment.action_spec().shape, np.float32))


def film(rate, episode_length, **settings):
    """Returns the size, and how many milliseconds each picture stays."""
    made = []

    def make(seed):
        made.append(Drawable(rate, episode_length, **settings))
        return made[-1]

    gif = video.Filmer(make)(make_actor(Drawable(rate, 1)), 0, lambda: False)
    assert all(environment.was_closed for environment in made)
    return read(gif)


def read(gif):
    with Image.open(io.BytesIO(gif)) as image:
        return image.size, [frame.info["duration"] for frame in ImageSequence.Iterator(image)]


def test_a_film_has_the_whole_episode_at_the_environments_rate():
    assert film(rate=20.0, episode_length=7) == ((32, 24), [50] * 8)


def test_of_more_than_50_pictures_a_second_every_second_one_is_shown():
    _, milliseconds = film(rate=100.0, episode_length=20)
    assert milliseconds == [20] * 11


def test_a_film_ends_after_10_seconds():
    _, milliseconds = film(rate=25.0, episode_length=400)
    assert (len(milliseconds), sum(milliseconds)) == (250, 10_000)


def test_a_film_is_at_most_320_pixels_wide():
    size, _ = film(rate=10.0, episode_length=2, size=(400, 600))
    assert size == (320, 213)


def test_a_stop_is_heeded_in_the_middle_of_an_episode():
    played = []

    class Counting(Drawable):
        def step(self, action):
            played.append(action)
            return super().step(action)

    filmer = video.Filmer(lambda seed: Counting(10.0, 50))
    assert filmer(make_actor(Drawable(10.0, 1)), 0, lambda: len(played) >= 3) is None
    assert len(played) == 3


def test_an_environment_without_a_rate_is_told_at_once():
    with pytest.raises(ValueError, match="`environment` must have a method `control_timestep`"):
        video.Filmer(lambda seed: testing.FakeEnvironment())


def test_dm_control_is_filmed_without_a_display(monkeypatch):
    monkeypatch.setattr(filming, "_MAX_SECONDS", 0.4)
    filmer = video.make_filmer("dm_control/cartpole/swingup")
    gif = filmer(testing.FakeActor(np.ones(1, np.float32)), 0, lambda: False)
    # 100 steps a second, of which every second one is shown.
    assert read(gif) == ((320, 240), [20] * 20)
    with Image.open(io.BytesIO(gif)) as image:
        first, last = (np.asarray(frame.convert("RGB"), int) for frame in (seek(image, 0), seek(image, 19)))
    assert first.max() > 200 and np.abs(last - first).max() > 100  # something is there, and it moves


def seek(image, index):
    image.seek(index)
    return image.copy()


def test_tensorboard_plays_each_evaluations_first_episode_of_a_run(tmp_path, monkeypatch):
    monkeypatch.setattr(gymnasium.spec("CartPole-v1"), "max_episode_steps", 25)
    command = (
        "train ppo --env CartPole-v1 --num-env-steps 128 --rollout-steps 64 --num-envs 2 --minibatch-size 32"
        " --evaluation-video --evaluation-episodes 1 --evaluation-period 64 --replay memory --directory"
    )
    assert main([*command.split(), str(tmp_path)]) == 0
    films = [
        (event.step, value.image.width, value.image.height, value.image.encoded_image_string)
        for event in test_tensorboard.events(tmp_path / "tensorboard")
        for value in event.summary.value
        if value.tag == "evaluation/video"
    ]
    with open(tmp_path / "evaluator.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [step for step, *_ in films] == [0, 64, 128] == [int(float(row["actor_steps"])) for row in rows]
    for (_, width, height, gif), row in zip(films, rows, strict=True):
        size, milliseconds = read(gif)
        assert size == (width, height) == (320, 213)
        # CartPole makes 50 steps a second, and is drawn once more than it steps.
        assert milliseconds == [20] * (int(float(row["episode_length"])) + 1)


def test_a_machine_that_cannot_draw_says_so_before_anything_is_written(tmp_path, monkeypatch, capsys):
    def fail(environment, **size):
        raise RuntimeError("no OpenGL here")

    monkeypatch.setattr(wrappers, "render_frame", fail)
    command = "train ppo --env CartPole-v1 --num-env-steps 64 --evaluation-video --directory"
    assert main([*command.split(), str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("minerva: `environment` must support drawing on this machine")
    assert error.endswith("Or train without `evaluation_video`.\n")
    assert not (tmp_path / "run").exists()


def test_a_run_that_goes_on_with_csv_files_alone_makes_no_films(tmp_path, monkeypatch, capsys):
    command = "train ppo --env CartPole-v1 --num-env-steps 64 --rollout-steps 64 --replay memory --directory"
    assert main([*command.split(), str(tmp_path)]) == 0
    description = json.loads((tmp_path / "run.json").read_text())
    description["options"]["evaluation_video"] = True
    (tmp_path / "run.json").write_text(json.dumps(description))
    monkeypatch.setattr(video, "make_filmer", lambda environment_id: pytest.fail("was asked for films"))
    assert main(["resume", str(tmp_path), "--num-env-steps", "128", "--log", "csv"]) == 0
    assert json.loads((tmp_path / "run.json").read_text())["options"]["evaluation_video"] is False
