import sys

import numpy as np
import pytest

from minerva_acme import testing, wrappers
from minerva_acme.video import recording


def test_the_best_episode_is_the_first_with_the_highest_return():
    returns = {5: 1.0, 6: 9.0, 7: 9.0, 8: -2.0}
    told = []
    best = recording.find_best(
        lambda seed: recording.Episode(seed, returns[seed], 3),
        num_episodes=4,
        seed=5,
        on_episode=lambda index, episode, best: told.append((index, episode.seed, best.seed)),
    )
    assert best[:3] == (6, 9.0, 3)
    assert told == [(0, 5, 5), (1, 6, 6), (2, 7, 6), (3, 8, 6)]


def test_of_a_score_the_highest_is_the_best_and_then_the_return():
    episodes = [recording.Episode(0, 9.0, 1, 0.5), recording.Episode(1, 1.0, 1, 0.7)]
    assert recording.find_best(episodes.__getitem__, num_episodes=2, seed=0) == episodes[1]
    equal = [episodes[0], episodes[0]._replace(seed=1, episode_return=10.0)]
    assert recording.find_best(equal.__getitem__, num_episodes=2, seed=0) == equal[1]


def test_every_episode_may_return_less_than_nothing():
    best = recording.find_best(lambda seed: recording.Episode(seed, -seed - 1.0, 1), num_episodes=3, seed=0)
    assert best.seed == 0


def test_no_episode_has_no_best():
    with pytest.raises(ValueError, match="`episodes` must be >= 1, got 0"):
        recording.find_best(lambda seed: recording.Episode(seed, 0.0, 1), num_episodes=0, seed=0)


def play_and_draw(episode_length, num_steps, **settings):
    """What is handed on: the number of actions so far, which each picture shows, and the return."""
    drawn = []
    environment = recording.DrawingWrapper(
        testing.FakeEnvironment(episode_length=episode_length),
        render=lambda environment: np.full((2, 2, 3), len(environment.actions), np.uint8),
        on_frame=lambda frame, so_far: drawn.append((int(frame[0, 0, 0]), so_far)),
        **settings,
    )
    environment.reset()
    for _ in range(num_steps):
        environment.step(np.zeros(2, np.float32))
    return drawn


def test_every_timestep_is_drawn_with_the_return_so_far():
    drawn = play_and_draw(episode_length=3, num_steps=4)  # the last one begins the next episode
    assert drawn == [(0, 0.0), (1, 1.0), (2, 3.0), (3, 6.0), (3, 0.0)]


def test_only_every_few_timesteps_are_drawn_where_that_is_asked_for():
    drawn = play_and_draw(episode_length=5, num_steps=6, every=2)  # likewise
    assert drawn == [(0, 0.0), (2, 3.0), (4, 10.0), (5, 0.0)]


@pytest.mark.parametrize(
    ("frame", "found"),
    [
        (np.zeros((4, 4, 3), np.float32), r"float32 of shape \(4, 4, 3\)"),
        (np.zeros((4, 4, 4), np.uint8), r"uint8 of shape \(4, 4, 4\)"),
        (np.zeros((4, 4), np.uint8), r"uint8 of shape \(4, 4\)"),
        ([np.zeros((4, 4, 3), np.uint8)], r"uint8 of shape \(1, 4, 4, 3\)"),
        ([], r"float64 of shape \(0,\)"),
        ("a line of text", r"<U14 of shape \(\)"),
    ],
)
def test_what_is_no_picture_in_colours_is_refused_at_the_first_frame(frame, found):
    class Drawn(testing.FakeEnvironment):
        def render(self):
            return frame

    with pytest.raises(ValueError, match=f"`render` must return one picture, .* got {found}. Convert it"):
        recording.check_drawable(Drawn(), wrappers.render_frame)


def test_a_picture_that_cannot_be_drawn_names_the_way_out(monkeypatch):
    def fail(environment):
        raise RuntimeError("no OpenGL here")

    monkeypatch.setenv("MUJOCO_GL", "disabled")
    environment = recording.DrawingWrapper(
        testing.FakeEnvironment(), render=fail, on_frame=lambda frame, so_far: None
    )
    message = "failed: no OpenGL here .MUJOCO_GL is 'disabled'.*libegl1 libgl1, then put MUJOCO_GL=egl"
    with pytest.raises(ValueError, match=message):
        environment.reset()


@pytest.fixture
def machine(monkeypatch):
    """A Linux machine without a display or a choice, on which MuJoCo was not imported yet."""
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL", "SDL_VIDEODRIVER", "PYGAME_HIDE_SUPPORT_PROMPT"):
        # Set first, so that what the code sets is taken back after the test.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.delitem(sys.modules, "mujoco", raising=False)
    tried = []
    monkeypatch.setattr(recording, "_works", lambda backend: tried.append(backend) or backend == "osmesa")
    return tried


def test_renderers_are_tried_in_turn_and_the_first_that_works_is_taken(machine, monkeypatch):
    recording.choose_renderer()
    assert machine == ["egl", "osmesa"]
    assert recording.os.environ["MUJOCO_GL"] == "osmesa"


def test_where_no_renderer_works_none_is_chosen(machine, monkeypatch):
    monkeypatch.setattr(recording, "_works", lambda backend: False)
    recording.choose_renderer()
    assert "MUJOCO_GL" not in recording.os.environ


@pytest.mark.parametrize("name", ["MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY"])
def test_a_choice_or_a_display_is_left_alone(machine, monkeypatch, name):
    monkeypatch.setenv(name, "glfw")
    recording.choose_renderer()
    assert machine == []
    assert recording.os.environ.get("MUJOCO_GL", "glfw") == "glfw"


def test_a_backend_that_does_not_exist_does_not_work():
    assert not recording._works("no such backend")


def test_the_return_of_several_rewards_is_their_sum():
    class Named(testing.FakeEnvironment):
        def step(self, action):
            timestep = super().step(action)
            if timestep.first():
                return timestep
            reward = np.float32(timestep.reward)
            return timestep._replace(reward={"speed": reward, "parts": np.array([reward, -0.5])})

    drawn = []
    environment = recording.DrawingWrapper(
        Named(episode_length=2),
        render=lambda environment: np.zeros((2, 2, 3), np.uint8),
        on_frame=lambda frame, so_far: drawn.append(so_far),
    )
    environment.reset()
    for _ in range(3):
        environment.step(np.zeros(2, np.float32))
    assert drawn == [0.0, 1.5, 5.0, 0.0]
