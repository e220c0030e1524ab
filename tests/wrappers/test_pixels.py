"""Pictures in the place of observations, here drawn by a stand-in for dm_control's physics."""

import types

import numpy as np
import pytest

from minerva_acme import testing, wrappers


class Drawn(testing.FakeEnvironment):
    """Has physics that draw the number of steps, or cannot draw."""

    def __init__(self, error=None):
        super().__init__(episode_length=3)
        self.calls = []
        self.count = 0
        self.error = error
        self.quality = types.SimpleNamespace(shadowsize=2048)
        model = types.SimpleNamespace(vis=types.SimpleNamespace(quality=self.quality))
        self.physics = types.SimpleNamespace(model=model, render=self.draw)

    def step(self, action):
        self.count += 1
        return super().step(action)

    def draw(self, **how):
        if self.error is not None:
            raise self.error
        assert self.quality.shadowsize == 0, "settled by the first picture"
        self.calls.append(how)
        return np.full((how["height"], how["width"], 3), self.count, np.uint8)


def test_every_observation_is_a_picture_of_the_present_state():
    inner = Drawn()
    environment = wrappers.PixelsWrapper(inner, size=5, camera_id="side")
    assert environment.observation_spec().shape == (5, 5, 3)
    assert environment.observation_spec().dtype == np.uint8
    action = np.zeros(environment.action_spec().shape, np.float32)
    steps = [environment.reset(), environment.step(action), environment.step(action)]
    for number, timestep in enumerate(steps):
        environment.observation_spec().validate(timestep.observation)
        assert (timestep.observation == number).all()
    assert all(how == {"height": 5, "width": 5, "camera_id": "side"} for how in inner.calls)


def test_a_machine_that_cannot_draw_is_found_out_at_the_start_with_cause_and_way_out():
    cause = RuntimeError("No OpenGL rendering backend is available.")
    with pytest.raises(RuntimeError, match="cannot draw: No OpenGL .* available.*libegl1.*MUJOCO_GL=egl"):
        wrappers.PixelsWrapper(Drawn(cause))


def test_an_environment_without_physics_is_refused():
    with pytest.raises(ValueError, match="`environment` must have `physics`.*in your own wrapper"):
        wrappers.PixelsWrapper(testing.FakeEnvironment())


def test_pictures_without_pixels_are_refused():
    with pytest.raises(ValueError, match="`size` must be >= 1 pixel, got 0"):
        wrappers.PixelsWrapper(Drawn(), size=0)


@pytest.mark.parametrize("how", [{"size": 5_000}, {"camera_id": "front"}])
def test_a_picture_that_the_model_does_not_have_names_what_was_asked_for(how):
    cause = ValueError("Image height 5000 > framebuffer height 480." if "size" in how else "No such camera.")
    with pytest.raises(
        ValueError, match="`size` and `camera_id` must be possible for this model, got .*: .*[.]"
    ):
        wrappers.PixelsWrapper(Drawn(cause), **how)
