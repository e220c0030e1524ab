"""An environment whose every output the test chooses."""

from typing import Any

import dm_env
import numpy as np
import pytest
from dm_env import specs


class ScriptedEnvironment(dm_env.Environment):
    """Gives the same observation always, ends after two steps and remembers the actions it got."""

    def __init__(
        self,
        observation: Any = 0.0,
        observation_spec: Any = None,
        action_spec: Any = None,
        reward: Any = 0.5,
        reward_spec: Any = None,
    ) -> None:
        self.observation = observation
        self.actions: list[Any] = []
        self.closed = False
        self._observation_spec = observation_spec or specs.Array((), np.float64)
        self._action_spec = action_spec or specs.BoundedArray((1,), np.float64, -1, 1)
        self._reward = reward
        self._reward_spec = reward_spec or specs.Array((), np.float64, name="reward")
        self._steps: int | None = None

    def reset(self) -> dm_env.TimeStep:
        self._steps = 0
        return dm_env.restart(self.observation)

    def step(self, action: Any) -> dm_env.TimeStep:
        if self._steps is None or self._steps == 2:
            return self.reset()
        self.actions.append(action)
        self._steps += 1
        if self._steps == 2:
            return dm_env.truncation(self._reward, self.observation, discount=1.0)
        return dm_env.transition(self._reward, self.observation, discount=1.0)

    def observation_spec(self) -> Any:
        return self._observation_spec

    def action_spec(self) -> Any:
        return self._action_spec

    def reward_spec(self) -> Any:
        return self._reward_spec

    def close(self) -> None:
        self.closed = True

    def greet(self, name: str) -> str:
        return f"hello {name}"


@pytest.fixture
def scripted() -> type[ScriptedEnvironment]:
    return ScriptedEnvironment
