"""Environments in which what is seen says which action pays, and random actions do not earn much.

Every step shows something new. In the image, noise but for two bright columns, their place is the action
that pays, one of four. In the dict it is one of eight, and each bit of it is told by another leaf: by which
half of the image is bright, by a number that is always far from 0, and by one of two values.
"""

import dm_env
import numpy as np

from minerva_acme import specs

NUM_STEPS = 5  # of an episode
IMAGE = specs.BoundedArray((8, 8, 1), np.uint8, 0, 255, name="camera")
DICT = {
    "camera": IMAGE,
    "gear": specs.DiscreteArray(2),
    "joints": (specs.Array((2,), np.float32), specs.Array((), np.float32)),
    "touch": specs.Array((2, 3), np.int32),
}


class Showing(specs.SpecMethods, dm_env.Environment):
    """Pays 1 a step for the action that is shown, or 1 - (a - x)^2 with x its place in [-1, 1]."""

    def __init__(self, observation_spec, *, discrete, seed):
        self._is_image = observation_spec is IMAGE
        self._num_actions = 4 if self._is_image else 8
        action = (
            specs.DiscreteArray(self._num_actions, name="action")
            if discrete
            else specs.BoundedArray((1,), np.float32, -1.0, 1.0, name="action")
        )
        self._specs = specs.EnvironmentSpec(
            observation_spec,
            action,
            specs.Array((), np.float32, name="reward"),
            specs.BoundedArray((), np.float32, 0.0, 1.0, name="discount"),
        )
        self._discrete = discrete
        self._random = np.random.default_rng(seed)

    def reset(self):
        self._count = 0
        return dm_env.restart(self._show())

    def step(self, action):
        self._count += 1
        if self._discrete:
            reward = float(action == self._place)
        else:
            reward = 1.0 - (float(action[0]) - (2.0 * self._place / (self._num_actions - 1) - 1.0)) ** 2
        kind = dm_env.StepType.LAST if self._count == NUM_STEPS else dm_env.StepType.MID
        return dm_env.TimeStep(kind, np.float32(reward), np.float32(1.0), self._show())

    def _show(self):
        self._place = int(self._random.integers(self._num_actions))
        image = self._random.integers(0, 100, IMAGE.shape, np.uint8)
        if self._is_image:
            image[:, 2 * self._place : 2 * self._place + 2] += 120
            return image
        half, large, gear = (self._place >> bit & 1 for bit in range(3))
        image[:, 4 * half : 4 * half + 4] += 120
        return {
            "camera": image,
            "gear": np.array(gear, np.int32),
            "joints": (
                np.array([self._random.normal(), 1000.0 + large], np.float32),
                np.array(7.0, np.float32),
            ),
            "touch": self._random.integers(-5, 5, (2, 3), np.int32),
        }
