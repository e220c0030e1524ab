"""Environments that several files play in."""

import pytest

from minerva_acme import testing


class Failing(testing.FakeEnvironment):
    fails = False

    def step(self, action):
        if self.fails:
            raise RuntimeError("a joint broke")
        return super().step(action)


class Telling(testing.FakeEnvironment):
    def get_info(self):
        return {"num_timesteps": len(self.timesteps)}


@pytest.fixture
def failing():
    """A class of environments whose steps fail while `fails` is set."""
    return Failing


@pytest.fixture
def telling():
    """A class of environments whose info counts the timesteps."""
    return Telling
