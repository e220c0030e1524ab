"""What holds for all wrappers alike."""

import copy
import inspect
import pickle
import types

import numpy as np
import pytest
from dm_env import specs

from minerva_acme import testing, wrappers


class Complete(testing.FakeEnvironment):
    """Has all that some wrapper asks for: a task with a generator, pictures and their rate."""

    def __init__(self):
        super().__init__(
            observation_spec={"a": specs.Array((2,), np.float64), "b": specs.Array((1,), np.float32)}
        )
        self.task = types.SimpleNamespace(random=np.random.RandomState(0))
        quality = types.SimpleNamespace(shadowsize=2048)
        model = types.SimpleNamespace(vis=types.SimpleNamespace(quality=quality))
        self.physics = types.SimpleNamespace(model=model, render=_draw)

    def reset(self):
        # A reset is then determined by the task's generator, as dm_control's are.
        self._random = np.random.default_rng(self.task.random.randint(1000))
        return super().reset()

    def control_timestep(self):
        return 0.1

    def render(self):
        return np.zeros((2, 2, 3), np.uint8)


def _draw(height, width, camera_id):
    return np.zeros((height, width, 3), np.uint8)


def double(nest):
    return {key: 2 * value for key, value in nest.items()}


def halve(action):
    return action / np.float32(2)


def make_transformed_observations(environment):
    return wrappers.ObservationTransformWrapper(
        environment, transform=double, spec=environment.observation_spec()
    )


class TwoRewards(wrappers.EnvironmentWrapper):
    """Adds a second number to the reward."""

    def reward_spec(self):
        return specs.Array((2,), np.float32)

    def _convert(self, timestep):
        return timestep if timestep.first() else timestep._replace(reward=np.float32([timestep.reward, 1]))


def make_scalar_reward(environment):
    return wrappers.ScalarRewardWrapper(environment, weights={"": 0.5})


def make_transformed_actions(environment):
    return wrappers.ActionTransformWrapper(environment, transform=halve, spec=environment.action_spec())


MAKERS = {
    wrappers.ActionRepeatWrapper: lambda inner: wrappers.ActionRepeatWrapper(inner, num_repeats=2),
    wrappers.ActionTransformWrapper: make_transformed_actions,
    wrappers.CanonicalActionWrapper: wrappers.CanonicalActionWrapper,
    wrappers.ConcatObservationWrapper: wrappers.ConcatObservationWrapper,
    wrappers.CriticObservationWrapper: lambda inner: wrappers.CriticObservationWrapper(
        inner, critic_observations=["b"]
    ),
    wrappers.DelayedRewardWrapper: lambda inner: wrappers.DelayedRewardWrapper(inner, period=2),
    wrappers.DmControlRandomState: wrappers.DmControlRandomState,
    wrappers.NumbersOnlyWrapper: wrappers.NumbersOnlyWrapper,
    wrappers.EnvironmentWrapper: wrappers.EnvironmentWrapper,
    wrappers.FlatActionWrapper: wrappers.FlatActionWrapper,
    wrappers.FloatObservationWrapper: wrappers.FloatObservationWrapper,
    wrappers.FrameStackWrapper: lambda inner: wrappers.FrameStackWrapper(inner, num_frames=2),
    wrappers.NamedRewardsWrapper: lambda inner: wrappers.NamedRewardsWrapper(TwoRewards(inner)),
    wrappers.ObservationTransformWrapper: make_transformed_observations,
    wrappers.PixelsWrapper: lambda inner: wrappers.PixelsWrapper(inner, size=2),
    wrappers.ScalarRewardWrapper: make_scalar_reward,
    wrappers.SinglePrecisionWrapper: wrappers.SinglePrecisionWrapper,
    wrappers.SpecCheckWrapper: wrappers.SpecCheckWrapper,
    wrappers.StepLimitWrapper: lambda inner: wrappers.StepLimitWrapper(inner, max_steps=3),
}
every_wrapper = pytest.mark.parametrize("make", MAKERS.values(), ids=[key.__name__ for key in MAKERS])


def play(environment, steps):
    action = np.full(2, 0.5, np.float32)
    return [environment.step(action) for _ in range(steps)]


def test_this_file_leaves_no_wrapper_out():
    public = {getattr(wrappers, name) for name in wrappers.__all__}
    found = {
        kind for kind in public if inspect.isclass(kind) and issubclass(kind, wrappers.EnvironmentWrapper)
    }
    assert found == set(MAKERS)


@every_wrapper
def test_dm_envs_checker_passes(check_dm_env, make):
    check_dm_env(lambda: make(Complete()))


@every_wrapper
def test_what_goes_in_and_out_conforms_to_the_wrappers_specs(make):
    # Twice, so that the wrapper also stands between two checks.
    inner = wrappers.SpecCheckWrapper(Complete())
    environment = wrappers.SpecCheckWrapper(make(inner))
    assert sum(timestep.last() for timestep in play(environment, 20)) >= 2


@every_wrapper
def test_public_attributes_and_close_reach_the_environment(make):
    closed = []
    inner = Complete()
    inner.close = lambda: closed.append(True)
    with make(inner) as environment:
        assert environment.timesteps is inner.timesteps
        wrapped = environment.environment
        assert inner in (wrapped, getattr(wrapped, "environment", None))
        assert environment.render().shape == (2, 2, 3)
        assert not hasattr(environment, "nonsense")
    assert closed == [True]


@every_wrapper
@pytest.mark.parametrize(
    ("duplicate", "steps_before"),
    [
        (copy.deepcopy, 0),
        (lambda environment: pickle.loads(pickle.dumps(environment)), 2),
        (copy.deepcopy, 5),
    ],
    ids=["new", "pickled after 2 steps", "after 5 steps"],
)
def test_a_copy_goes_on_alike_and_apart(make, duplicate, steps_before):
    environment = make(Complete())
    play(environment, steps_before)
    copied = duplicate(environment)
    expected = play(environment, 14)
    found = play(copied, 14)
    np.testing.assert_equal(found, expected)
    assert type(copied) is type(environment) and copied.timesteps is not environment.timesteps
    play(copied, 1)
    assert len(copied.timesteps) > len(environment.timesteps)
