"""Parts that do as little as their contract allows, and record how they were used."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import dm_env
import numpy as np
import torch
import tree

from minerva_acme import core, loggers, specs, types
from minerva_acme.loggers import base as logger_base
from minerva_acme.replay import base as replay
from minerva_acme.replay import dataset as datasets

T = TypeVar("T")


_OBSERVATION = specs.Array((3,), np.float32, name="observation")
_ACTION = specs.BoundedArray((2,), np.float32, -1.0, 1.0, name="action")
_DEFAULTS = specs.EnvironmentSpec(_OBSERVATION, _ACTION)


class FakeEnvironment(specs.SpecMethods, dm_env.Environment):
    """An environment with random observations and episodes of a fixed length, which checks its actions.

    The reward of a step is its number in the episode, from 1, so that all transitions of an episode differ
    and an episode of n steps returns n * (n + 1) / 2; every leaf of a nest or an array of rewards is that
    number. `timesteps` has all returned timesteps, each checked against the specs, and `actions` all
    accepted actions. An action that violates its spec is refused.

        FakeEnvironment.continuous()    vectors without bounds
        FakeEnvironment.bounded()       vectors with different bounds for each element
        FakeEnvironment.discrete()      one of five actions, an integer as observation
        FakeEnvironment.nested()        a dict with an image, an integer and a tuple; a two-leaf action
    """

    def __init__(
        self,
        *,
        episode_length: int = 5,
        observation_spec: types.NestedSpec = _OBSERVATION,
        action_spec: types.NestedSpec = _ACTION,
        reward_spec: types.NestedSpec = _DEFAULTS.rewards,
        discount_spec: types.NestedSpec = _DEFAULTS.discounts,
        truncates: bool = False,
        seed: int = 0,
    ) -> None:
        """Makes an environment.

        Args:
            episode_length: The number of steps until LAST, >= 1.
            observation_spec: A spec or nest of specs; by default a float32 vector of 3.
            action_spec: A spec or nest of specs; by default a float32 vector of 2 in [-1, 1].
            reward_spec: A spec or nest of specs; by default a float32 scalar.
            discount_spec: A spec or nest of specs; by default a float32 scalar in [0, 1].
            truncates: Whether episodes end by a time limit (discount 1) instead of a true end (discount 0).
            seed: The seed of the observations.
        """
        if episode_length < 1:
            raise ValueError(f"`episode_length` must be >= 1 step, got {episode_length}.")
        self.timesteps: list[dm_env.TimeStep] = []
        self.actions: list[types.NestedArray] = []
        self._episode_length = episode_length
        self._specs = specs.EnvironmentSpec(observation_spec, action_spec, reward_spec, discount_spec)
        self._last_discount = 1 if truncates else 0
        self._random = np.random.default_rng(seed)
        self._step_number: int | None = None  # None: no episode is open

    @classmethod
    def continuous(
        cls, *, observation_size: int = 3, action_size: int = 2, **settings: Any
    ) -> "FakeEnvironment":
        """Makes an environment whose observations and actions are float32 vectors without bounds."""
        observation_spec = specs.Array((observation_size,), np.float32, name="observation")
        action_spec = specs.Array((action_size,), np.float32, name="action")
        return cls(observation_spec=observation_spec, action_spec=action_spec, **settings)

    @classmethod
    def bounded(
        cls, *, observation_size: int = 3, action_size: int = 2, **settings: Any
    ) -> "FakeEnvironment":
        """Makes an environment with float32 vectors, whose element i is in [-i - 1, 2 i + 1]."""

        def vector(size: int, name: str) -> specs.BoundedArray:
            element = np.arange(size, dtype=np.float32)
            return specs.BoundedArray((size,), np.float32, -element - 1, 2 * element + 1, name=name)

        observation_spec, action_spec = vector(observation_size, "observation"), vector(action_size, "action")
        return cls(observation_spec=observation_spec, action_spec=action_spec, **settings)

    @classmethod
    def discrete(
        cls, *, num_observations: int = 7, num_actions: int = 5, **settings: Any
    ) -> "FakeEnvironment":
        """Makes an environment with `num_actions` actions and int32 observations in [0, num_observations)."""
        observation_spec = specs.DiscreteArray(num_observations, name="observation")
        action_spec = specs.DiscreteArray(num_actions, name="action")
        return cls(observation_spec=observation_spec, action_spec=action_spec, **settings)

    @classmethod
    def nested(cls, **settings: Any) -> "FakeEnvironment":
        """Makes an environment whose observations are a dict and whose actions have two leaves."""
        return cls(
            observation_spec={
                "camera": specs.BoundedArray((4, 4, 3), np.uint8, 0, 255, name="camera"),
                "gear": specs.DiscreteArray(6, name="gear"),
                "joints": (
                    specs.Array((3,), np.float32, name="position"),
                    specs.BoundedArray((2,), np.float32, -1.0, 1.0, name="touch"),
                ),
            },
            action_spec={
                "arm": specs.BoundedArray((2,), np.float32, -1.0, 1.0, name="arm"),
                "grip": specs.DiscreteArray(3, name="grip"),
            },
            **settings,
        )

    def reset(self) -> dm_env.TimeStep:
        self._step_number = 0
        return self._remember(dm_env.restart(self._observation()))

    def step(self, action: types.NestedArray) -> dm_env.TimeStep:
        if self._step_number is None:
            return self.reset()
        specs.check_conforms("action", action, self._specs.actions)
        self.actions.append(tree.map_structure(np.copy, action))
        self._step_number += 1
        is_last = self._step_number == self._episode_length
        timestep = dm_env.TimeStep(
            step_type=dm_env.StepType.LAST if is_last else dm_env.StepType.MID,
            reward=_fill(self._specs.rewards, self._step_number),
            discount=_fill(self._specs.discounts, self._last_discount if is_last else 1),
            observation=self._observation(),
        )
        if is_last:
            self._step_number = None
        return self._remember(timestep)

    def _observation(self) -> types.NestedArray:
        return tree.map_structure(self._draw, self._specs.observations)

    def _draw(self, spec: specs.Array) -> np.ndarray:
        values = self._random.normal(scale=10.0, size=spec.shape)
        if not np.issubdtype(spec.dtype, np.floating):
            values = np.abs(values)
        if isinstance(spec, specs.BoundedArray):
            values = np.clip(values, spec.minimum, spec.maximum)
        return np.asarray(values, spec.dtype)

    def _remember(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        specs.check_timestep(timestep, specs.make_environment_spec(self))  # a subclass may change specs
        self.timesteps.append(timestep)
        return timestep


class FakeActor(core.Actor):
    """An actor that always selects the same action. `timesteps` and `actions` have what it observed."""

    def __init__(
        self, action: types.NestedArray, environment_spec: specs.EnvironmentSpec | None = None
    ) -> None:
        """Makes an actor.

        Args:
            action: The action that it selects.
            environment_spec: The spec that every observation, timestep and action must conform to; a
                ValueError names a leaf that does not. None disables these checks.
        """
        self.timesteps: list[dm_env.TimeStep] = []
        self.actions: list[types.NestedArray] = []
        self.num_updates = 0
        self._action = action
        self._environment_spec = environment_spec

    def select_action(self, observation: types.NestedArray) -> types.NestedArray:
        if self._environment_spec is not None:
            specs.check_conforms("observation", observation, self._environment_spec.observations)
        return self._action

    def observe_first(self, timestep: dm_env.TimeStep) -> None:
        if self._environment_spec is not None:
            specs.check_timestep(timestep, self._environment_spec)
        self.timesteps.append(timestep)

    def observe(self, action: types.NestedArray, next_timestep: dm_env.TimeStep) -> None:
        if self._environment_spec is not None:
            specs.check_conforms("action", action, self._environment_spec.actions)
            specs.check_timestep(next_timestep, self._environment_spec)
        self.actions.append(action)
        self.timesteps.append(next_timestep)

    def update(self, wait: bool = False) -> None:
        self.num_updates += 1


class FakeLearner(core.Learner):
    """A learner that counts: its only variable, `policy`, is a dict with an array of its step count."""

    def __init__(
        self, dataset: Iterator[types.NestedTensor] | None = None, batch_spec: types.NestedSpec = None
    ) -> None:
        """Makes a learner.

        Args:
            dataset: The dataset, from which each step takes a batch, or None for no dataset.
            batch_spec: The spec that every batch must conform to, including its leading axis; a ValueError
                names a leaf that does not. None disables this check.
        """
        self._dataset = dataset
        self._batch_spec = batch_spec
        self._num_steps = 0

    def step(self) -> None:
        if self._dataset is not None:
            batch = next(self._dataset)
            if self._batch_spec is not None:
                specs.check_conforms("batch", tree.map_structure(np.asarray, batch), self._batch_spec)
        self._num_steps += 1

    def get_variables(self, names: Sequence[str]) -> list[types.NestedArray]:
        return self._variables(names, self._num_steps)

    def poll_variables(
        self, names: Sequence[str], newer_than: int | None = None
    ) -> core.VersionedVariables | None:
        version = self._num_steps  # read once: another thread may make a step
        if newer_than == version:
            return None
        return core.VersionedVariables(version, self._variables(names, version))

    def _variables(self, names: Sequence[str], num_steps: int) -> list[types.NestedArray]:
        unknown = sorted(set(names) - {"policy"})
        if unknown:
            raise KeyError(f"Unknown variables {unknown}; there are ['policy'].")
        return [{"steps": np.full((2,), num_steps, np.float32)} for _ in names]

    def save(self) -> core.State:
        return {"num_steps": self._num_steps}

    def restore(self, state: core.State) -> None:
        self._num_steps = state["num_steps"]


class RepeatedBatch(Iterator[datasets.ReplaySample[T]], Generic[T]):
    """A dataset that repeats one batch, as `LearnerConformance` requires."""

    def __init__(self, batch: T, batch_size: int = 1) -> None:
        """Makes a dataset.

        Args:
            batch: The learner's `data`, such as a `types.Transition` of tensors.
            batch_size: The number of items in `info`, which describes a table of these items with uniform
                sampling.
        """
        ones = np.ones(batch_size)
        self._sample = datasets.ReplaySample(
            info=replay.SampleInfo(
                key=np.arange(batch_size, dtype=np.uint64),
                probability=ones / batch_size,
                table_size=np.full(batch_size, batch_size, np.int64),
                priority=ones,
                times_sampled=np.ones(batch_size, np.int32),
            ),
            data=batch,
        )

    def __next__(self) -> datasets.ReplaySample[T]:
        return self._sample

    def close(self) -> None:
        """Does nothing, since there are no resources to release."""


class FakeLogger(loggers.Logger):
    """A logger that keeps its rows in `rows`, as they were given. It refuses values that no row can have."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.is_closed = False

    def write(self, values: Mapping[str, Any]) -> None:
        if self.is_closed:
            raise ValueError("The logger is closed.")
        # Tensors of one number are not read: reading waits for a GPU.
        logger_base.to_plain({name: value for name, value in values.items() if not _is_one_number(value)})
        self.rows.append(dict(values))

    def close(self) -> None:
        self.is_closed = True


def _is_one_number(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.numel() == 1


def _fill(nested_spec: types.NestedSpec, value: float) -> types.NestedArray:
    # Scalars are numpy scalars, as in environments.
    return tree.map_structure(lambda spec: np.full(spec.shape, value, spec.dtype)[()], nested_spec)
