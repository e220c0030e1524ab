"""Episodes that find reward, counted in an environment that rewards what is held."""

import dm_env
import numpy as np
from dm_env import specs

from tests.learning import noise
from tests.learning.noise import Noise


class Drift(dm_env.Environment):
    """Rewards the agent once the sum of its actions is far from 0, in episodes of 40 steps."""

    def reset(self):
        self._place, self._steps = 0.0, 0
        return dm_env.restart(np.zeros(1))

    def step(self, action):
        assert np.abs(action).max() <= 1.0
        self._place, self._steps = self._place + float(action[0]), self._steps + 1
        reward = float(abs(self._place) > 15.0)
        return (dm_env.truncation if self._steps == 40 else dm_env.transition)(reward, np.zeros(1))

    def observation_spec(self):
        return specs.Array((1,), np.float64)

    def action_spec(self):
        return specs.BoundedArray((1,), np.float64, -1.0, 1.0)


def test_noise_that_is_held_gets_further():
    shares = [
        noise.share_of_episodes_with_reward(Drift(), Noise(1.0, repeat), episodes=50) for repeat in (1, 8, 40)
    ]
    # Held for the whole episode, a clipped normal number need only be above 15 / 40.
    assert shares[0] < 0.1 < shares[1] < shares[2] and abs(shares[2] - 0.71) < 0.15


def test_each_task_has_a_row_with_every_noise():
    found = noise.table(["dm_control/hopper/stand", "own"], 1, lambda task: Drift())
    head, rule, hopper, own = found.splitlines()
    assert head.startswith("| task | 0.5, 4 steps | 0.5, 8 steps |") and rule == "|---" * 7 + "|"
    assert hopper.startswith("| hopper stand | ") and own.startswith("| own | ")
    assert all(line.count("|") == 8 for line in (head, hopper, own))
