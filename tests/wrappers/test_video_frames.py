import functools

import numpy as np
import pytest

from minerva_acme import environments, testing, wrappers


def draw(environment):
    return np.full((2, 3, 3), len(environment.actions), np.uint8)


def test_an_episode_has_a_frame_for_every_timestep(tape):
    environment = wrappers.VideoFramesWrapper(tape([1.0] * 3), render=draw)
    assert environment.frames == []
    environment.reset()
    for _ in range(3):
        environment.step(0)
    assert [frame[0, 0, 0] for frame in environment.frames] == [0, 1, 2, 3]


def test_an_episodes_frames_stay_when_the_next_one_begins(tape):
    environment = wrappers.VideoFramesWrapper(tape([1.0] * 2), render=draw)
    for _ in range(3):
        environment.step(0)
    frames = environment.frames
    assert environment.step(0).first()
    assert len(frames) == 3 and len(environment.frames) == 1


def test_the_frame_rate_is_one_over_the_control_timestep_repeats_included(tape):
    assert wrappers.VideoFramesWrapper(tape([1.0]), render=draw).frame_rate == 4.0
    repeated = wrappers.ActionRepeatWrapper(tape([1.0]), num_repeats=2)
    assert wrappers.VideoFramesWrapper(repeated, render=draw).frame_rate == 2.0


@pytest.mark.parametrize(("environment_id", "rate"), [("dm_control/walker/walk", 40), ("Hopper-v5", 125)])
def test_dm_control_and_gymnasium_are_drawn_at_their_rate(environment_id, rate):
    settings = {"render_mode": "rgb_array"} if environment_id == "Hopper-v5" else {}
    environment = wrappers.SinglePrecisionWrapper(environments.make(environment_id, 0, **settings))
    environment = wrappers.VideoFramesWrapper(environment)
    environment.reset()
    spec = environment.action_spec()
    for _ in range(3):
        environment.step(np.ones(spec.shape, spec.dtype))
    assert environment.frame_rate == pytest.approx(rate)
    frames = np.stack(environment.frames)
    assert frames.shape[0] == 4 and frames.shape[-1] == 3 and frames.dtype == np.uint8
    assert not np.array_equal(frames[0], frames[-1])


def test_the_size_of_dm_controls_frames_can_be_chosen():
    render = functools.partial(wrappers.render_frame, height=24, width=32, camera_id=-1)
    environment = wrappers.VideoFramesWrapper(environments.make("dm_control/pendulum/swingup"), render=render)
    environment.reset()
    assert environment.frames[0].shape == (24, 32, 3)


def test_an_environment_without_a_control_timestep_is_refused():
    with pytest.raises(ValueError, match="must have a method `control_timestep`.*wrapper around it"):
        wrappers.VideoFramesWrapper(testing.FakeEnvironment())


@pytest.mark.parametrize("renders", [False, True])
def test_an_environment_that_cannot_be_drawn_says_so(renders):
    environment = testing.FakeEnvironment()
    if renders:
        environment.render = lambda: None
    with pytest.raises(ValueError, match="`environment` must have `physics` or .*Write a `render` in it"):
        wrappers.render_frame(environment)


def test_frames_of_an_environment_that_draws_into_one_array_differ(tape):
    canvas = np.zeros((2, 3, 3), np.uint8)

    def draw_into_canvas(environment):
        canvas[...] = len(environment.actions)
        return canvas

    environment = wrappers.VideoFramesWrapper(tape([1.0] * 3), render=draw_into_canvas)
    environment.reset()
    for _ in range(3):
        environment.step(0)
    assert [frame[0, 0, 0] for frame in environment.frames] == [0, 1, 2, 3]
