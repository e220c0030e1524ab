"""A plain actor loop, the reference for the library's actor loop.

The policy is a torch module with a distribution of torch, and gets an observation as a batch of one. Steps
are written to Reverb with its own Python writer, packed into one row, the cheapest way for that writer.
There are no episode statistics, no timing and no checks.
"""

from typing import Any

import dm_env
import numpy as np
import torch

from . import plain_mpo


def flat(timestep: dm_env.TimeStep) -> np.ndarray:
    """Returns the observation as one vector."""
    return np.concatenate([np.ravel(part) for part in timestep.observation.values()]).astype(np.float32)


class PlainActing:
    """Returns a sample of the policy, clipped to [-1, 1], the raw sample and its log-density."""

    def __init__(self, observation_size: int, action_size: int, layer_sizes: tuple[int, ...]) -> None:
        self._policy = plain_mpo.Policy(observation_size, action_size, layer_sizes)

    @torch.no_grad()
    def __call__(self, observation: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        policy = self._policy(torch.from_numpy(observation)[None])
        raw_action = policy.sample()
        log_prob = policy.log_prob(raw_action).sum(dim=-1)
        action = raw_action.clamp(-1.0, 1.0)
        return action[0].numpy(), raw_action[0].numpy(), log_prob[0].numpy()


class PlainWriting:
    """Writes a row per step and, once an episode has `num_rows` rows, an item of its last rows."""

    def __init__(self, writer: Any, table: str, num_rows: int) -> None:
        self._writer, self._table, self._num_rows = writer, table, num_rows
        self._length = 0

    def first(self, observation: np.ndarray, row_size: int) -> None:
        self._length = 0
        self._append(np.concatenate([observation, np.zeros(row_size - len(observation), np.float32)]))

    def step(
        self,
        observation: np.ndarray,
        action: np.ndarray,
        reward: float,
        discount: float,
        raw_action: np.ndarray,
        log_prob: np.ndarray,
    ) -> None:
        signals = np.array([reward, discount, 1.0, log_prob], np.float32)
        self._append(np.concatenate([observation, action, signals, raw_action]))

    def end(self) -> None:
        self._writer.end_episode()

    def _append(self, row: np.ndarray) -> None:
        self._writer.append([row])
        self._length += 1
        if self._length >= self._num_rows:
            self._writer.create_item(
                self._table, priority=1.0, trajectory=[self._writer.history[0][-self._num_rows :]]
            )
            self._writer.flush(2 * self._num_rows)


class PlainLoop:
    """Makes one environment step per call, with a reset after the end of an episode."""

    def __init__(
        self, environment: dm_env.Environment, acting: PlainActing | None, writing: PlainWriting | None
    ) -> None:
        """Args: acting: None to repeat one action. writing: None to write nothing."""
        self._environment, self._acting, self._writing = environment, acting, writing
        self._observation: np.ndarray | None = None
        self._nothing = np.zeros(environment.action_spec().shape, np.float32)
        self.num_steps = 0
        self.episode_return = 0.0

    def step(self) -> None:
        if self._observation is None:
            self._observation = flat(self._environment.reset())
            self.episode_return = 0.0
            if self._writing is not None:
                self._writing.first(self._observation, len(self._observation) + 2 * len(self._nothing) + 4)
        if self._acting is None:
            action, raw_action, log_prob = self._nothing, self._nothing, np.float32(0.0)
        else:
            action, raw_action, log_prob = self._acting(self._observation)
        timestep = self._environment.step(action)
        self._observation = flat(timestep)
        if self._writing is not None:
            self._writing.step(
                self._observation, action, timestep.reward, timestep.discount, raw_action, log_prob
            )
        self.num_steps += 1
        self.episode_return += timestep.reward
        if timestep.last():
            self._observation = None
            if self._writing is not None:
                self._writing.end()
