"""A small Gymnasium task of which the return says nothing: only its `info` tells success."""

import gymnasium
import numpy as np


class Reach(gymnasium.Env):
    """Push a point to the place of the goal in eight steps; the reward is 0."""

    observation_space = gymnasium.spaces.Box(-4.0, 4.0, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def render(self):
        return np.zeros((32, 32, 3), np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._at, self._goal, self._steps = 0.0, float(self.np_random.uniform(-1.0, 1.0)), 0
        return self._observe(), {}

    def step(self, action):
        self._at = float(np.clip(self._at + 0.5 * float(action[0]), -4.0, 4.0))
        self._steps += 1
        distance = abs(self._at - self._goal)
        info = {
            "is_success": distance < 0.5,
            "distance": distance,
            "energy": float(action[0] ** 2),
            "name": "x",
        }
        return self._observe(), 0.0, False, self._steps == 8, info

    def _observe(self):
        return np.array([self._at, self._goal], np.float32)
