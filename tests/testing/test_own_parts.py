"""The project's own environments and wrappers keep their contracts; tests/replay has the stores."""

import types

import numpy as np

from minerva_acme import environments, specs, testing, wrappers


class TestContinuousFake(testing.EnvironmentConformance):
    def make_environment(self):
        return testing.FakeEnvironment.continuous()


class TestBoundedFake(testing.EnvironmentConformance):
    def make_environment(self):
        return testing.FakeEnvironment.bounded(truncates=True)


class TestDiscreteFake(testing.EnvironmentConformance):
    def make_environment(self):
        return testing.FakeEnvironment.discrete(episode_length=1)


class TestNestedFake(testing.EnvironmentConformance):
    def make_environment(self):
        return testing.FakeEnvironment.nested()


class TestDmControl(testing.EnvironmentConformance):
    def make_environment(self):
        return environments.make("dm_control/cartpole/swingup", seed=0, time_limit=0.2)


class TestDmControlWithNestedObservations(testing.EnvironmentConformance):
    def make_environment(self):
        return environments.make("dm_control/walker/walk", seed=0, time_limit=0.2)


class TestDmControlAsAgentsSeeIt(testing.EnvironmentConformance):
    def make_environment(self):
        return environments.make_training_environment("dm_control/reacher/easy", seed=0, time_limit=0.2)


class TestPendulum(testing.EnvironmentConformance):
    def make_environment(self):
        return environments.make("Pendulum-v1", seed=0)


class TestCartPole(testing.EnvironmentConformance):
    def make_environment(self):
        return environments.make("CartPole-v1", seed=0)


class TestFrozenLake(testing.EnvironmentConformance):
    def make_environment(self):
        return environments.make("FrozenLake-v1", seed=0)


class TestHopper(testing.EnvironmentConformance):
    def make_environment(self):
        return environments.make_training_environment("Hopper-v5", seed=0)


class WrapperSuite(testing.WrapperConformance):
    """A wrapper with the settings of its own, and what it is put around."""

    settings = {}

    def make_wrapped(self):
        return testing.FakeEnvironment.nested(episode_length=7, truncates=True)

    def wrap(self, environment):
        return self.wrapper(environment, **self.settings)


class TestBaseWrapper(WrapperSuite):
    wrapper = wrappers.EnvironmentWrapper


class TestSinglePrecision(WrapperSuite):
    wrapper = wrappers.SinglePrecisionWrapper


class TestCanonicalAction(WrapperSuite):
    wrapper = wrappers.CanonicalActionWrapper

    def make_wrapped(self):
        return testing.FakeEnvironment.bounded()


class TestConcatObservation(WrapperSuite):
    wrapper = wrappers.ConcatObservationWrapper
    settings = {"name_filter": ["joints"]}


class TestNumbersOnly(WrapperSuite):
    wrapper = wrappers.NumbersOnlyWrapper


class TestFlatAction(WrapperSuite):
    wrapper = wrappers.FlatActionWrapper

    def make_wrapped(self):
        arm = specs.BoundedArray((2,), np.float32, -1.0, 1.0)
        return testing.FakeEnvironment(action_spec={"arm": arm, "grip": (arm, arm)})


class TestFloatObservation(WrapperSuite):
    wrapper = wrappers.FloatObservationWrapper


class TestDmControlRandomState(WrapperSuite):
    wrapper = wrappers.DmControlRandomState


class TestActionRepeat(WrapperSuite):
    wrapper = wrappers.ActionRepeatWrapper
    settings = {"num_repeats": 2}


class TestActionTransform(WrapperSuite):
    wrapper = wrappers.ActionTransformWrapper
    settings = {"transform": np.negative, "spec": specs.BoundedArray((2,), np.float32, -1.0, 1.0)}

    def make_wrapped(self):
        return testing.FakeEnvironment()


class TestObservationTransform(WrapperSuite):
    wrapper = wrappers.ObservationTransformWrapper
    settings = {"transform": np.negative, "spec": specs.Array((3,), np.float32)}

    def make_wrapped(self):
        return testing.FakeEnvironment()


class TestNamedRewards(WrapperSuite):
    wrapper = wrappers.NamedRewardsWrapper

    def make_wrapped(self):
        reward = {"task": specs.Array((), np.float32), "effort": specs.Array((2,), np.float32)}
        return testing.FakeEnvironment(reward_spec=reward)


class TestScalarReward(TestNamedRewards):
    wrapper = wrappers.ScalarRewardWrapper
    settings = {"weights": {"task": 1.0, "effort/0": -0.1, "effort/1": -0.2}}


class TestCriticObservation(WrapperSuite):
    wrapper = wrappers.CriticObservationWrapper
    settings = {"critic_observations": ["camera", "joints"]}


class TestDelayedReward(WrapperSuite):
    wrapper = wrappers.DelayedRewardWrapper
    settings = {"period": 3}
    max_reward_delay = 2


class TestFrameStack(WrapperSuite):
    wrapper = wrappers.FrameStackWrapper
    settings = {"num_frames": 3}


class TestSpecCheck(WrapperSuite):
    wrapper = wrappers.SpecCheckWrapper


class TestStepLimit(WrapperSuite):
    wrapper = wrappers.StepLimitWrapper
    settings = {"max_steps": 4}


def _draw(height, width, **camera):
    return np.zeros((height, width, 3), np.uint8)


class Drawn(testing.FakeEnvironment):
    def __init__(self):
        super().__init__()
        quality = types.SimpleNamespace(shadowsize=2048)
        model = types.SimpleNamespace(vis=types.SimpleNamespace(quality=quality))
        self.physics = types.SimpleNamespace(model=model, render=_draw)


class TestPixels(WrapperSuite):
    wrapper = wrappers.PixelsWrapper
    settings = {"size": 2}

    def make_wrapped(self):
        return Drawn()


def _suites(suite):
    return {suite}.union(*map(_suites, suite.__subclasses__())) - {WrapperSuite}


def test_every_wrapper_of_the_project_runs_through_the_conformance_class():
    public = (getattr(wrappers, name) for name in wrappers.__all__)
    classes = {part for part in public if isinstance(part, type)}
    expected = {part for part in classes if issubclass(part, wrappers.EnvironmentWrapper)}
    assert expected <= {suite.wrapper for suite in _suites(WrapperSuite)}
