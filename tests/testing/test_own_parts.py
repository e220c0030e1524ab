"""The project's own environments, wrappers and store keep their contracts."""

import pytest

from minerva_acme import environments, replay, testing, wrappers


@pytest.mark.reverb
class TestReverb(testing.ReplayConformance):
    def make_server(self, tables):
        return replay.ReverbServer(tables)


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


class TestBaseWrapper(testing.WrapperConformance):
    def wrap(self, environment):
        return wrappers.EnvironmentWrapper(environment)


class TestSinglePrecision(testing.WrapperConformance):
    def wrap(self, environment):
        return wrappers.SinglePrecisionWrapper(environment)


class TestCanonicalAction(testing.WrapperConformance):
    def wrap(self, environment):
        return wrappers.CanonicalActionWrapper(environment)

    def make_wrapped(self):
        return testing.FakeEnvironment.bounded()


class TestConcatObservation(testing.WrapperConformance):
    def wrap(self, environment):
        return wrappers.ConcatObservationWrapper(environment, name_filter=["joints"])

    def make_wrapped(self):
        return testing.FakeEnvironment.nested()


class TestDmControlRandomState(testing.WrapperConformance):
    def wrap(self, environment):
        return wrappers.DmControlRandomState(environment)


class TestAllForFlatControl(testing.WrapperConformance):
    def wrap(self, environment):
        return environments.wrap_for_flat_control(environment)
