"""Environments whose every output the test chooses, and what the tests do with environments."""

import unittest
from collections.abc import Callable
from typing import Any

import dm_env
import numpy as np
import pytest
import tree
from absl.testing import absltest
from dm_env import specs, test_utils


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


class TapeEnvironment(dm_env.Environment):
    """Plays the same rewards and discounts in every episode and remembers the actions.

    The observation is [episodes so far, steps in the episode], in an array that it writes into anew.
    """

    def __init__(self, rewards: Any, discounts: Any = None, reward_spec: Any = None) -> None:
        self.rewards = rewards
        self.discounts = discounts or [1.0] * (len(rewards) - 1) + [0.0]
        self.actions: list[Any] = []
        self._observation = np.zeros(2)
        self._step: int | None = None
        self._reward_spec = reward_spec or specs.Array((), np.float64, name="reward")

    def reset(self) -> dm_env.TimeStep:
        self._step = 0
        self._observation[:] = self._observation[0] + 1, 0
        return dm_env.restart(self._observation)

    def step(self, action: Any) -> dm_env.TimeStep:
        if self._step is None or self._step == len(self.rewards):
            return self.reset()
        self.actions.append(action)
        reward, discount = self.rewards[self._step], self.discounts[self._step]
        self._step += 1
        self._observation[1] = self._step
        last = self._step == len(self.rewards)
        step_type = dm_env.StepType.LAST if last else dm_env.StepType.MID
        return dm_env.TimeStep(step_type, reward, discount, self._observation)

    def observation_spec(self) -> Any:
        return specs.BoundedArray((2,), np.float64, 0, [np.inf, len(self.rewards)], name="observation")

    def action_spec(self) -> Any:
        return specs.DiscreteArray(3, dtype=np.int32)

    def reward_spec(self) -> Any:
        return self._reward_spec

    def control_timestep(self) -> float:
        return 0.25


@pytest.fixture
def tape() -> type[TapeEnvironment]:
    return TapeEnvironment


def _sample_action(spec: Any, random: np.random.Generator) -> Any:
    """An action that conforms, from the bounded leaves' whole range."""

    def sample(leaf: Any) -> Any:
        low, high = (np.broadcast_to(bound, leaf.shape) for bound in (leaf.minimum, leaf.maximum))
        if np.issubdtype(leaf.dtype, np.floating):
            return random.uniform(np.maximum(low, -1e3), np.minimum(high, 1e3)).astype(leaf.dtype)
        return random.integers(low, high, endpoint=True).astype(leaf.dtype)[()]

    return tree.map_structure(sample, spec)


@pytest.fixture
def sample_action() -> Callable[[Any, np.random.Generator], Any]:
    return _sample_action


@pytest.fixture
def check_dm_env() -> Callable[..., None]:
    """Runs dm_env's own checker with actions that reach the end of an episode."""

    def check(make: Callable[[], dm_env.Environment], max_steps: int = 300) -> None:
        class Check(test_utils.EnvironmentTestMixin, absltest.TestCase):
            saw_last = False

            def make_object_under_test(self) -> dm_env.Environment:
                return make()

            def make_action_sequence(self) -> Any:
                # One step beyond LAST, which must give FIRST.
                random = np.random.default_rng(0)
                steps_beyond = 0
                for _ in range(max_steps):
                    yield _sample_action(self.environment.action_spec(), random)
                    steps_beyond += self.over
                    if steps_beyond == 2:
                        break

            def step_environment(self, action: Any = None) -> dm_env.TimeStep:
                timestep = super().step_environment(action)
                self.over = getattr(self, "over", False) or timestep.last()
                Check.saw_last |= timestep.last()
                return timestep

            def reset_environment(self) -> dm_env.TimeStep:
                self.over = False
                return super().reset_environment()

        result = unittest.TestResult()
        unittest.defaultTestLoader.loadTestsFromTestCase(Check).run(result)
        assert result.testsRun >= 4
        assert result.wasSuccessful(), "\n".join(text for _, text in result.failures + result.errors)
        assert Check.saw_last, f"no episode ended within {max_steps} steps"

    return check
