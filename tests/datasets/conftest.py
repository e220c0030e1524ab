"""An environment that wanders, and episodes of it."""

import dm_env
import numpy as np
import pytest

from minerva_acme import datasets, specs

SPEC = specs.EnvironmentSpec(
    specs.Array((2,), np.float32, name="observation"),
    specs.BoundedArray((1,), np.float32, -1.0, 1.0, name="action"),
    specs.Array((), np.float32, name="reward"),
    specs.BoundedArray((), np.float32, 0.0, 1.0, name="discount"),
)
DISCRETE = SPEC._replace(actions=specs.DiscreteArray(3, name="action"))


class Wanderer(specs.SpecMethods, dm_env.Environment):
    """Ends by chance or, after eight steps, by a time limit; every step differs. Writes into one array."""

    def __init__(self, seed=0, spec=SPEC):
        self._random = np.random.default_rng(seed)
        self._specs = spec
        self._observation = np.zeros(2, np.float32)

    def reset(self):
        self._length = 0
        return dm_env.restart(self._observe())

    def step(self, action):
        self._length += 1
        reward = np.float32(self._random.normal() + np.sum(action))
        if self._random.uniform() < 0.15:
            return dm_env.TimeStep(dm_env.StepType.LAST, reward, np.float32(0), self._observe())
        kind = dm_env.StepType.LAST if self._length == 8 else dm_env.StepType.MID
        return dm_env.TimeStep(kind, reward, np.float32(1), self._observe())

    def _observe(self):
        self._observation[:] = self._random.normal(size=2)
        return self._observation


@pytest.fixture
def make_episode():
    """Makes an episode of random numbers: `make_episode(num_steps, terminated, **extras)`."""
    random = np.random.default_rng(3)

    def make(num_steps=5, terminated=True, **extras):
        return datasets.Episode(
            random.normal(size=(num_steps + 1, 2)).astype(np.float32),
            random.uniform(-1, 1, (num_steps, 1)).astype(np.float32),
            random.normal(size=num_steps).astype(np.float32),
            terminated,
            extras,
        )

    return make
