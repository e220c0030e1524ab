"""The text of modules as users write them, with environments of dm_env and of Gymnasium."""

ROBOT = """
import dm_env
import gymnasium
import numpy as np
from dm_env import specs


class Robot(dm_env.Environment):
    def __init__(self, seed=0, gravity=9.81):
        self.gravity = gravity
        self._random = np.random.default_rng(seed)
        self._steps = None

    def reset(self):
        self._steps = 0
        return dm_env.restart(self._random.uniform(size=2).astype(np.float32))

    def step(self, action):
        if self._steps is None:
            return self.reset()
        self._steps += 1
        observation, reward = self._random.uniform(size=2).astype(np.float32), -float(self.gravity)
        if self._steps == 5:
            self._steps = None
            return dm_env.truncation(reward, observation, discount=1.0)
        return dm_env.transition(reward, observation)

    def observation_spec(self):
        return specs.BoundedArray((2,), np.float32, 0.0, 1.0)

    def action_spec(self):
        return specs.BoundedArray((1,), np.float64, -1.0, 1.0)


class Seedless(Robot):
    def __init__(self):
        super().__init__()


class SeededLater(Seedless):
    def seed(self, seed):
        self._random = np.random.default_rng(seed)


class Drawn(Robot):
    def render(self):
        return np.zeros((32, 32, 3), np.uint8)


def make(seed, **arguments):
    return Robot(seed, **arguments)


def nothing(seed):
    Robot(seed)


def raises():
    raise KeyError("joint 7")


def needs_model(model, seed=0):
    return Robot(seed)


def several():
    return gymnasium.make_vec("CartPole-v1", num_envs=2)


robot = Robot()
number = 7
"""

BATCH = """
import torch

from minerva_acme import environments


def pendulums(seed, number=4, time_limit=5):
    generator = torch.Generator().manual_seed(seed)
    return environments.BatchedPendulum(number, generator=generator, time_limit=time_limit)


def seedless():
    return pendulums(0)
"""

GYM = """
import gymnasium
import numpy as np


class Walker(gymnasium.Env):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, length=5, render_mode=None):
        self._length, self.render_mode = length, render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        return self._observe(), {}

    def step(self, action):
        self._steps += 1
        return self._observe(), float(self._length), False, self._steps == self._length, {}

    def _observe(self):
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)

    def render(self):
        return np.zeros((32, 32, 3), np.uint8)


class Sorted(Walker):
    observation_space = gymnasium.spaces.Dict(
        {name: gymnasium.spaces.Box(-1, 1, (2,), np.float32) for name in ("seen", "hidden")}
    )

    def _observe(self):
        return {name: super(Sorted, self)._observe() for name in ("seen", "hidden")}


def make(**arguments):
    return Walker(**arguments)


gymnasium.register("Mine-v0", "my_gym:Walker", max_episode_steps=7)
"""

MODULES = {
    "my_robot": ROBOT,
    "my_batch": BATCH,
    "my_gym": GYM,
    "needs": "import not_there\n",
    "divides": "1 / 0\n",
}
