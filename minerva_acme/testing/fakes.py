"""Parts that do as little as their contract allows, and remember what was done with them."""

from collections.abc import Mapping, Sequence
from typing import Any

import dm_env
import numpy as np
import tree

from minerva_acme import core, loggers, specs, types
from minerva_acme.testing import checks


class FakeEnvironment(dm_env.Environment):
    """Episodes of a fixed length with random observations, which refuse an action that breaks its spec.

    The reward of a step is its number in the episode, from 1, so that no two transitions of an episode
    are alike and an episode of n steps returns n * (n + 1) / 2. `timesteps` holds all that was given
    out, `actions` all that was taken.
    """

    def __init__(
        self,
        *,
        episode_length: int = 5,
        observation_spec: types.NestedSpec = None,
        action_spec: types.NestedSpec = None,
        truncates: bool = False,
        seed: int = 0,
    ) -> None:
        """Makes an environment.

        Args:
            episode_length: steps until LAST, >= 1.
            observation_spec: a spec or a nest of them; by default a float32 vector of 3.
            action_spec: likewise; by default a float32 vector of 2 in [-1, 1].
            truncates: whether episodes end by a time limit (discount 1) rather than truly (discount 0).
            seed: of the observations.
        """
        if episode_length < 1:
            raise ValueError(f"`episode_length` must be >= 1 step, got {episode_length}.")
        if observation_spec is None:
            observation_spec = specs.Array((3,), np.float32, name="observation")
        if action_spec is None:
            action_spec = specs.BoundedArray((2,), np.float32, -1.0, 1.0, name="action")
        self.timesteps: list[dm_env.TimeStep] = []
        self.actions: list[types.NestedArray] = []
        self._episode_length = episode_length
        self._observation_spec = observation_spec
        self._action_spec = action_spec
        self._last_discount = np.float32(1.0 if truncates else 0.0)
        self._random = np.random.default_rng(seed)
        self._step_number: int | None = None  # None: no episode is open

    def reset(self) -> dm_env.TimeStep:
        self._step_number = 0
        return self._remember(dm_env.restart(self._observation()))

    def step(self, action: types.NestedArray) -> dm_env.TimeStep:
        if self._step_number is None:
            return self.reset()
        checks.check_conforms("action", action, self._action_spec)
        self.actions.append(tree.map_structure(np.copy, action))
        self._step_number += 1
        reward = np.float32(self._step_number)
        if self._step_number < self._episode_length:
            return self._remember(dm_env.transition(reward, self._observation(), np.float32(1.0)))
        self._step_number = None
        return self._remember(
            dm_env.TimeStep(dm_env.StepType.LAST, reward, self._last_discount, self._observation())
        )

    def observation_spec(self) -> types.NestedSpec:
        return self._observation_spec

    def action_spec(self) -> types.NestedSpec:
        return self._action_spec

    def reward_spec(self) -> specs.Array:
        return specs.Array((), np.float32, name="reward")

    def discount_spec(self) -> specs.BoundedArray:
        return specs.BoundedArray((), np.float32, 0.0, 1.0, name="discount")

    def _observation(self) -> types.NestedArray:
        return tree.map_structure(self._draw, self._observation_spec)

    def _draw(self, spec: specs.Array) -> np.ndarray:
        values = self._random.normal(scale=10.0, size=spec.shape)
        if not np.issubdtype(spec.dtype, np.floating):
            values = np.abs(values)
        if isinstance(spec, specs.BoundedArray):
            values = np.clip(values, spec.minimum, spec.maximum)
        return np.asarray(values, spec.dtype)

    def _remember(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        self.timesteps.append(timestep)
        return timestep


class FakeActor(core.Actor):
    """Always selects the same action. `timesteps` and `actions` hold what it observed."""

    def __init__(self, action: types.NestedArray) -> None:
        """Args: action: what it selects."""
        self.timesteps: list[dm_env.TimeStep] = []
        self.actions: list[types.NestedArray] = []
        self.num_updates = 0
        self._action = action

    def select_action(self, observation: types.NestedArray) -> types.NestedArray:
        return self._action

    def observe_first(self, timestep: dm_env.TimeStep) -> None:
        self.timesteps.append(timestep)

    def observe(self, action: types.NestedArray, next_timestep: dm_env.TimeStep) -> None:
        self.actions.append(action)
        self.timesteps.append(next_timestep)

    def update(self, wait: bool = False) -> None:
        self.num_updates += 1


class FakeLearner(core.Learner):
    """Learns to count: its only variable, `policy`, is a dict with an array of its steps."""

    def __init__(self) -> None:
        self._num_steps = 0

    def step(self) -> None:
        self._num_steps += 1

    def get_variables(self, names: Sequence[str]) -> list[types.NestedArray]:
        unknown = sorted(set(names) - {"policy"})
        if unknown:
            raise KeyError(f"Unknown variables {unknown}; there is ['policy'].")
        return [{"steps": np.full((2,), self._num_steps, np.float32)} for _ in names]

    def poll_variables(
        self, names: Sequence[str], newer_than: int | None = None
    ) -> core.VersionedVariables | None:
        if newer_than == self._num_steps:
            return None
        return core.VersionedVariables(self._num_steps, self.get_variables(names))

    def save(self) -> core.State:
        return {"num_steps": self._num_steps}

    def restore(self, state: core.State) -> None:
        self._num_steps = state["num_steps"]


class FakeLogger(loggers.Logger):
    """Keeps its rows in `rows`."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.is_closed = False

    def write(self, values: Mapping[str, Any]) -> None:
        if self.is_closed:
            raise ValueError("The logger is closed.")
        self.rows.append(dict(values))

    def close(self) -> None:
        self.is_closed = True
