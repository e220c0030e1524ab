"""A task of parameterised actions: to run, hop or leap over platforms, each by how far.

After the platform domain of Masson, Ranchod and Konidaris 2016, "Reinforcement learning with parameterized
actions", without its enemies and its flight through the air.
"""

import dm_env
import numpy as np

from minerva_acme import specs

RANGES = {"run": (0.0, 0.5), "hop": (0.5, 1.5), "leap": (1.5, 2.5)}
"""How far each of the actions goes, by its parameter from -1 to 1."""
NUM_PLATFORMS, MAX_STEPS = 4, 25


class Platforms(specs.SpecMethods, dm_env.Environment):
    """Four platforms of 1 to 2, with gaps of 0.8 to 2.2 between them. Whoever lands in a gap falls.

    It shows how far the edge is, how wide the gap behind it and how long the next platform, 0 behind the last
    one. The reward is the progress as a share of the way, to the edge for who falls. So the best return is 1:
    running to an edge, then hopping or leaping by the width of the gap, never too far.
    """

    def __init__(self, seed=0, *, rounds=False):
        """Makes the task.

        Args:
            seed: The seed of the platforms.
            rounds: Whether the choice is a float in [-1, 1] too, of which equal parts stand for the actions.
        """
        self._random = np.random.default_rng(seed)
        self._rounds = rounds
        number = specs.BoundedArray((), np.float32, -1.0, 1.0, name="choice")
        self._specs = specs.EnvironmentSpec(
            observations=specs.BoundedArray((3,), np.float32, 0.0, 3.0, name="edge, gap, next"),
            actions={
                "choice": number if rounds else specs.DiscreteArray(len(RANGES), name="choice"),
                # A parameter of each, of which that of the choice counts.
                "far": specs.BoundedArray((len(RANGES),), np.float32, -1.0, 1.0, name="far"),
            },
            rewards=specs.Array((), np.float32, name="reward"),
            discounts=specs.BoundedArray((), np.float32, 0.0, 1.0, name="discount"),
        )

    def reset(self):
        lengths = self._random.uniform(1.0, 2.0, NUM_PLATFORMS)
        gaps = self._random.uniform(0.8, 2.2, NUM_PLATFORMS - 1)
        self._begins = np.concatenate([[0.0], np.cumsum(lengths[:-1] + gaps)])
        self._ends = self._begins + lengths
        self._x, self._step = 0.0, 0
        return dm_env.restart(self._view())

    def step(self, action):
        choice = action["choice"]
        if self._rounds:
            choice = min(int((choice + 1.0) * 0.5 * len(RANGES)), len(RANGES) - 1)
        low, high = [*RANGES.values()][int(choice)]
        x = self._x + low + (high - low) * (float(action["far"][int(choice)]) + 1.0) / 2.0
        x, before = min(x, self._ends[-1]), self._x
        falls = not ((self._begins <= x) & (x <= self._ends)).any()
        self._x = self._ends[self._ends < x].max() if falls else x
        self._step += 1
        reward = np.float32((self._x - before) / self._ends[-1])
        if falls or x == self._ends[-1]:
            return dm_env.termination(reward, self._view())
        if self._step == MAX_STEPS:
            return dm_env.truncation(reward, self._view(), np.float32(1.0))
        return dm_env.transition(reward, self._view(), np.float32(1.0))

    def _view(self):
        at = min(int(np.searchsorted(self._ends, self._x)), NUM_PLATFORMS - 1)
        begins, ends = (np.append(x, self._ends[-1]) for x in (self._begins, self._ends))
        view = [ends[at] - self._x, begins[at + 1] - ends[at], ends[at + 1] - begins[at + 1]]
        return np.clip(view, 0.0, 3.0).astype(np.float32)
