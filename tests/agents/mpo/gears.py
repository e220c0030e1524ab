"""A task with hybrid actions whose best actions are known: a gear and a throttle."""

import dm_env
import numpy as np

from minerva_acme import specs

BEST_GEARS = (2, 0, 3, 1)
"""The right gear in each quarter of the circle: neighbours in number are none on it."""
NUM_STEPS = 20


class Gears(specs.SpecMethods, dm_env.Environment):
    """Shows a direction of the circle, new in each step; the right gear is its quarter's, see `BEST_GEARS`.

    In the right gear the reward is 1 - steepness (throttle - best)^2, with the cosine of the direction, times
    0.8, as the best throttle. In another it is 0. So the best return is the number of steps, `NUM_STEPS`.
    """

    def __init__(self, seed=0, *, rounds=False, steepness=1.0):
        """Makes the task.

        Args:
            seed: The seed of the directions.
            rounds: Whether the gear is a float in [-1, 1] too, of which equal parts stand for the gears.
            steepness: With 4, a random throttle in the right gear is worse than any in another one.
        """
        self._random = np.random.default_rng(seed)
        self._rounds = rounds
        self._steepness = steepness
        self._step = 0
        throttle = specs.BoundedArray((), np.float32, -1.0, 1.0, name="throttle")
        gear = specs.DiscreteArray(4, name="gear")
        self._specs = specs.EnvironmentSpec(
            observations=specs.BoundedArray((2,), np.float32, -1.0, 1.0, name="direction"),
            actions={"throttle": throttle, "gear": throttle.replace(name="gear") if rounds else gear},
            rewards=specs.Array((), np.float32, name="reward"),
            discounts=specs.BoundedArray((), np.float32, 0.0, 1.0, name="discount"),
        )

    def reset(self):
        self._step = 0
        return dm_env.restart(self._turn())

    def step(self, action):
        reward = np.float32(self.reward_of(**action))
        self._step += 1
        if self._step == NUM_STEPS:
            return dm_env.truncation(reward, self._turn(), np.float32(1.0))
        return dm_env.transition(reward, self._turn(), np.float32(1.0))

    def reward_of(self, throttle, gear):
        if self._rounds:
            gear = min(int((gear + 1.0) * 2.0), 3)
        if gear != BEST_GEARS[int(self._angle // (np.pi / 2))]:
            return 0.0
        return 1.0 - self._steepness * (float(throttle) - 0.8 * np.cos(self._angle)) ** 2

    def _turn(self):
        self._angle = self._random.uniform(0.0, 2.0 * np.pi)
        return np.array([np.cos(self._angle), np.sin(self._angle)], np.float32)
