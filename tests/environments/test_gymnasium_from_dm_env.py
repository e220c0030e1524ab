import gymnasium
import numpy as np
import pytest
from dm_env import specs
from gymnasium import spaces

from minerva_acme import environments, testing, wrappers
from minerva_acme.environments import GymnasiumFromDmEnv


def last_of(tape, discount):
    environment = GymnasiumFromDmEnv(tape([1.0, 2.0], [0.5, discount]))
    environment.reset()
    return environment.step(0), environment.step(0)


@pytest.mark.parametrize(
    ("discount", "terminated", "truncated"), [(0.0, True, False), (1.0, False, True), (0.9, False, True)]
)
def test_the_discount_of_last_tells_terminated_from_truncated(tape, discount, terminated, truncated):
    middle, last = last_of(tape, discount)
    assert middle[1:4] == (1.0, False, False)
    assert last[1:4] == (2.0, terminated, truncated)
    assert all(type(flag) is bool for flag in middle[2:4] + last[2:4])
    np.testing.assert_array_equal(last[0], [1, 2])


def test_a_discount_of_zero_in_the_middle_of_an_episode_does_not_end_it(tape):
    environment = GymnasiumFromDmEnv(tape([1.0, 2.0], [0.0, 1.0]))
    environment.reset()
    assert environment.step(0)[2:4] == (False, False)


def test_info_holds_the_discount_and_what_the_environment_tells(tape):
    assert [result[4] for result in last_of(tape, 0.75)] == [{"discount": 0.5}, {"discount": 0.75}]

    class Talking(tape):
        def get_info(self):
            return {"lives": 3}

    environment = GymnasiumFromDmEnv(Talking([1.0]))
    assert environment.reset()[1] == {"lives": 3}
    assert environment.step(0)[4] == {"lives": 3, "discount": 0.0}


def test_a_step_without_an_open_episode_is_refused(tape):
    environment = GymnasiumFromDmEnv(tape([1.0]))
    with pytest.raises(gymnasium.error.ResetNeeded, match="`step` must follow a `reset`"):
        environment.step(0)
    environment.reset()
    environment.step(0)
    with pytest.raises(gymnasium.error.ResetNeeded, match="got no open episode"):
        environment.step(0)
    assert len(environment.environment.actions) == 1


def test_observations_are_not_written_into_later(tape):
    environment = GymnasiumFromDmEnv(tape([1.0, 2.0]))
    first, _ = environment.reset()
    environment.step(0)
    np.testing.assert_array_equal(first, [1, 0])


def test_nested_actions_arrive_in_structure_and_dtype_of_their_spec():
    spec = {"b": [specs.DiscreteArray(3, dtype=np.int32)], "a": specs.BoundedArray((2,), np.float32, -1, 1)}
    inner = testing.FakeEnvironment(action_spec=spec)
    environment = GymnasiumFromDmEnv(inner)
    assert isinstance(environment.action_space, spaces.Dict)
    environment.reset()
    environment.action_space.seed(0)
    for _ in range(3):
        environment.step(environment.action_space.sample())
    environment.step({"a": [0.5, -0.5], "b": (2,)})
    specs_kept = [type(action["b"]) is list and action["a"].dtype == np.float32 for action in inner.actions]
    assert specs_kept == [True] * 4
    np.testing.assert_array_equal(inner.actions[-1]["a"], [0.5, -0.5])


def test_a_seed_determines_the_episodes_that_follow():
    environment = GymnasiumFromDmEnv(environments.make("dm_control/cartpole/swingup"))
    episodes = []
    for _ in range(2):
        episodes.append([environment.reset(seed=3)[0]["position"], environment.reset()[0]["position"]])
    np.testing.assert_array_equal(episodes[0], episodes[1])
    assert not np.array_equal(*episodes[0])
    expected = environments.make("dm_control/cartpole/swingup", 3).reset().observation["position"]
    np.testing.assert_array_equal(episodes[0][0], expected)


def test_an_environment_that_cannot_be_seeded_says_so(tape):
    environment = GymnasiumFromDmEnv(tape([1.0]))
    with pytest.raises(ValueError, match=r"`seed` must be None .* got 3\. .*DmControlRandomState"):
        environment.reset(seed=3)
    assert environment.reset()[0].shape == (2,)


def test_options_are_refused(tape):
    with pytest.raises(ValueError, match="`options` must be empty.*got {'level': 2}"):
        GymnasiumFromDmEnv(tape([1.0])).reset(options={"level": 2})


def test_frames_are_those_of_the_environment_at_one_a_control_timestep(tape):
    def draw(environment):
        return np.full((2, 3, 3), len(environment.actions), np.uint8)

    environment = GymnasiumFromDmEnv(tape([1.0, 2.0]), render_mode="rgb_array", render=draw)
    assert environment.metadata == {"render_modes": ["rgb_array"], "render_fps": 4.0}
    environment.reset()
    environment.step(0)
    np.testing.assert_array_equal(environment.render(), np.ones((2, 3, 3)))
    assert GymnasiumFromDmEnv(tape([1.0]), render=draw).render() is None


def test_frames_of_dm_control_change_as_it_moves():
    environment = GymnasiumFromDmEnv(
        environments.make("dm_control/cartpole/swingup"), render_mode="rgb_array"
    )
    assert environment.metadata["render_fps"] == pytest.approx(100)
    environment.reset(seed=0)
    before = environment.render()
    for _ in range(10):
        environment.step(np.ones(1))
    assert before.shape == (240, 320, 3) and before.dtype == np.uint8
    assert not np.array_equal(before, environment.render())


@pytest.mark.parametrize(
    ("mode", "message"),
    [("human", r"one of \['rgb_array'\], got 'human'"), ("rgb_array", r"one of \[\], got 'rgb_array'")],
)
def test_a_render_mode_that_there_is_not_is_refused(tape, mode, message):
    environment = tape([1.0]) if mode == "human" else testing.FakeEnvironment()
    with pytest.raises(ValueError, match=f"`render_mode` must be None or {message}"):
        GymnasiumFromDmEnv(environment, render_mode=mode)


@pytest.mark.parametrize(
    "spec", [specs.Array((2,), np.float64), {"a": specs.Array((), np.float64)}], ids=["vector", "nest"]
)
def test_rewards_that_are_not_one_scalar_are_refused(tape, spec):
    with pytest.raises(ValueError, match=r"`reward_spec` must be one scalar.*Reduce it in a wrapper"):
        GymnasiumFromDmEnv(tape([1.0], reward_spec=spec))


def test_close_closes_the_environment(scripted):
    inner = scripted()
    GymnasiumFromDmEnv(inner).close()
    assert inner.closed


def test_an_environment_that_has_wrappers_goes_through(tape):
    environment = GymnasiumFromDmEnv(wrappers.StepLimitWrapper(tape([1.0] * 5), max_steps=2))
    environment.reset()
    assert [environment.step(0)[2:4] for _ in range(2)] == [(False, False), (False, True)]
    assert environment.metadata["render_fps"] == 4.0
