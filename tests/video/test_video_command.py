import dataclasses
import re
import shutil
import subprocess

import imageio_ffmpeg
import numpy as np
import pytest
import torch

from minerva_acme import environments, specs, testing, wrappers
from minerva_acme.agents import ppo
from minerva_acme.cli import commands, parsing, video
from minerva_acme.environments import factories
from minerva_acme.runs import checkpointing, run_folder
from minerva_acme.video import movie, recording

pytestmark = pytest.mark.usefixtures("environment_variables_stay")


def make_run(directory, environment_id, environment=None, steps=(5000,)):
    """Makes the folder of a run whose policies, one for each checkpoint, have learned nothing."""
    config = ppo.PPOConfig(policy_layer_sizes=(8,), value_layer_sizes=(8,))
    description = run_folder.RunDescription(
        agent="ppo", environment=environment_id, seed=0, hyperparameters=dataclasses.asdict(config)
    )
    description.write(directory)
    environment = environment or environments.make_training_environment(environment_id, seed=0)
    spec = specs.make_environment_spec(environment)
    environment.close()
    saver = checkpointing.Checkpointer(directory / "checkpoints", keep=len(steps))
    for seed, step in enumerate(steps, start=1):  # the policy of seed 0 holds the pole for long
        network = description.make_builder().make_networks(spec, torch.Generator().manual_seed(seed))
        saver.save(step, {"policy_variables": [dict(network.state_dict())]})
    return directory


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("runs") / "cartpole", "CartPole-v1")


def film(directory, **settings):
    return video.run(commands.Video(directory=directory, **settings))


@pytest.fixture
def drawn(monkeypatch):
    """The returns that were written on the pictures."""
    written = []
    monkeypatch.setattr(movie, "annotate", lambda frame, text, above: written.append(text) or frame)
    return written


def describe(path):
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(path), "-f", "null", "-"]
    return subprocess.run(command, capture_output=True, check=True).stderr.decode()


@pytest.mark.promise("Videos")
def test_the_film_shows_the_best_episode_with_its_return_at_the_environments_rate(cartpole, drawn, capsys):
    assert film(cartpole, episodes=4) == 0
    out = capsys.readouterr().out
    returns = [float(value) for value in re.findall(r"return +([0-9.]+)  best", out)]
    assert len(returns) == 4 and len(set(returns)) > 1
    # CartPole gives a reward of 1 for every step.
    assert drawn == [f"return {step}.0" for step in range(int(max(returns)) + 1)]
    files = sorted((cartpole / "videos").iterdir())
    assert [file.name for file in files] == ["000005000.gif", "000005000.mp4"]
    words = describe(files[1])
    assert "50 fps" in words and re.search(rf"frame= *{len(drawn)}\b", words)
    assert f"return {max(returns):.2f}, the best of 4" in out
    assert "Played again" not in out


@pytest.mark.parametrize("typed", [["first,middle", "best"], ["first", "middle", "best"]])
def test_several_checkpoints_are_typed_with_commas_or_spaces(typed):
    assert parsing.parse(["video", "RUN", "--checkpoint", *typed]).checkpoint == ("first", "middle", "best")


def test_several_checkpoints_are_shown_side_by_side_each_with_its_steps(tmp_path, drawn, capsys):
    run = make_run(tmp_path / "run", "CartPole-v1", steps=(1000, 5000, 9000))
    film(run, checkpoint=("first", "middle", "latest", "9000"), episodes=1, format=("mp4",))
    out = capsys.readouterr().out
    (path,) = (run / "videos").iterdir()
    assert path.name == "000001000+000005000+000009000.mp4"
    assert f"{3 * 600 + 2 * 8}x400" in describe(path)  # one picture for each, though one was named twice
    lengths = []
    for steps in ("1,000", "5,000", "9,000"):
        (found,) = re.findall(
            rf"CartPole-v1, {steps} environment steps: return ([0-9.]+), the best of 1\n", out
        )
        lengths.append(int(float(found)))
    assert len(set(lengths)) > 1 and re.search(rf"frame= *{max(lengths) + 1}\b", describe(path))
    assert drawn == [
        f"{steps} steps: return {step}.0"
        for steps, length in zip(("1,000", "5,000", "9,000"), lengths, strict=True)
        for step in range(length + 1)
    ]
    assert f"Side by side in {path}" in out.replace("\n", "")


@pytest.mark.parametrize(("num_env_steps", "kind"), [(9, "environment"), (0, "learner")])
def test_the_steps_are_those_that_the_run_made(num_env_steps, kind, cartpole, tmp_path, capsys):
    run = shutil.copytree(cartpole, tmp_path / "run")
    described = dataclasses.replace(run_folder.read(run), options={"num_env_steps": num_env_steps})
    (run / run_folder.FILE).unlink()
    described.write(run)
    film(run, episodes=1, every=100, format=("mp4",))
    assert f"CartPole-v1, 5,000 {kind} steps: return" in capsys.readouterr().out


def test_one_in_so_many_steps_is_drawn_in_real_time(cartpole, drawn, tmp_path):
    film(cartpole, episodes=1, output=tmp_path / "film.mp4", every=4)
    assert drawn == [f"return {4 * picture}.0" for picture in range(len(drawn))] and len(drawn) > 1
    words = describe(tmp_path / "film.mp4")
    assert "12.50 fps" in words and re.search(rf"frame= *{len(drawn)}\b", words)
    with pytest.raises(ValueError, match="`every` must be >= 1 step, got 0"):
        film(cartpole, every=0)


def test_repeated_actions_are_filmed_at_the_rate_of_what_is_drawn(cartpole, drawn, tmp_path, monkeypatch):
    make = factories.make_for_run
    monkeypatch.setattr(
        factories,
        "make_for_run",
        lambda *args, **more: wrappers.ActionRepeatWrapper(make(*args, **more), num_repeats=2),
    )
    film(cartpole, episodes=1, output=tmp_path / "film.mp4")
    assert "25 fps" in describe(tmp_path / "film.mp4")


def test_only_what_was_asked_for_is_written(cartpole, drawn, tmp_path):
    film(cartpole, episodes=1, output=tmp_path / "film.gif", every=8)
    film(cartpole, episodes=1, output=tmp_path / "other", format=("mp4",), every=8)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["film.gif", "other.mp4"]


def test_dm_control_is_drawn_in_the_size_and_by_the_camera_that_were_asked_for(tmp_path):
    settings, render = recording.drawing("dm_control/walker/walk", "side", 24, 32)
    environment = environments.make("dm_control/walker/walk", 0, **settings)
    environment.reset()
    frame = render(environment)
    assert frame.shape == (24, 32, 3) and frame.max() > 0
    _, back = recording.drawing("dm_control/walker/walk", "back", 24, 32)
    assert not np.array_equal(back(environment), frame)


def test_gymnasiums_mujoco_is_drawn_in_the_size_that_was_asked_for():
    settings, render = recording.drawing("InvertedPendulum-v5", None, 24, 32)
    environment = environments.make("InvertedPendulum-v5", 0, **settings)
    environment.reset()
    frame = render(environment)
    environment.close()
    assert frame.shape == (24, 32, 3) and frame.max() > 0


def test_an_environment_with_randomness_beyond_its_seed_is_reported(tmp_path, monkeypatch, capsys):
    class Unseeded(testing.FakeEnvironment):
        length = 5

        def __init__(self):
            Unseeded.length += 1
            super().__init__(episode_length=Unseeded.length)

        def render(self):
            return np.zeros((16, 16, 3), np.uint8)

        def control_timestep(self):
            return 0.1

    monkeypatch.setattr(factories, "make_for_run", lambda *args, **more: Unseeded())
    directory = make_run(tmp_path / "run", "CartPole-v1", Unseeded())
    film(directory, episodes=1, output=tmp_path / "film.mp4")
    assert (
        "return was 45.00: the environment has randomness that its seed does not control"
        in capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"episodes": 0}, "`episodes` must be >= 1, got 0"),
        ({"format": ("avi",)}, "`format` must be in mp4, gif, got avi"),
        ({"format": ()}, "`format` must be in mp4, gif, got none"),
        ({"checkpoint": ()}, "`checkpoint` must name at least one checkpoint, such as latest, got none"),
        ({"height": 0}, "`height` must be >= 1 pixel, got 0"),
        ({"width": 50}, "`camera`, `height` and `width` must not be given for CartPole-v1"),
    ],
)
def test_a_mistake_is_told(cartpole, tmp_path, settings, message):
    with pytest.raises(ValueError, match=message):
        film(cartpole, output=tmp_path / "film", **settings)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_refused_before_an_episode_is_played(cartpole, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError):
        film(cartpole, episodes=1, output=tmp_path / "file" / "film.mp4")
    assert "episode" not in capsys.readouterr().out


def test_a_run_without_a_checkpoint_is_told(tmp_path):
    with pytest.raises(ValueError, match="There is no run in"):
        film(tmp_path)
    run = make_run(tmp_path / "run", "CartPole-v1")
    shutil.rmtree(run / "checkpoints" / "000005000")
    with pytest.raises(ValueError, match="holds no checkpoint yet. Train it first: minerva train"):
        film(run)
