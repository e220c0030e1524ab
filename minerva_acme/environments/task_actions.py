"""Conversion of an agent's actions to the task's, as done by the wrappers of training."""

import itertools
from typing import Any

import dm_env
import numpy as np
import tree

from minerva_acme import specs, types, wrappers
from minerva_acme.wrappers import flat_action

UNKNOWN = (
    "The action spec of the task is unknown: a wrapper that does not belong to this library changes the "
    "actions, or there are only recorded episodes. Load the policy without `actions='task'`, and convert its "
    "actions as that wrapper does, or as the wrappers of the recorded environment do."
)

_ATTRIBUTE = "_task_actions"
_KNOWN = (wrappers.CanonicalActionWrapper, wrappers.FlatActionWrapper, wrappers.SinglePrecisionWrapper)


def mark(environment: Any, spec: types.NestedSpec | None) -> None:
    """Notes on an environment, or a vector of them, the action spec of its task."""
    setattr(environment, _ATTRIBUTE, spec)


def find(environment: Any) -> types.NestedSpec | None:
    """Returns the action spec of the task inside an environment's wrappers.

    Args:
        environment: An environment, or a vector of them.

    Returns:
        The spec, or None if a wrapper that is not this library's changes the actions.
    """
    while _ATTRIBUTE not in getattr(environment, "__dict__", {}):
        if not isinstance(environment, wrappers.EnvironmentWrapper):
            return environment.action_spec()
        inner = environment.environment
        if type(environment) not in _KNOWN and (
            isinstance(environment, wrappers.ActionTransformWrapper)
            or environment.action_spec() != inner.action_spec()
        ):
            return None
        environment = inner
    return getattr(environment, _ATTRIBUTE)


def of_bare(environment: dm_env.Environment) -> types.NestedSpec:
    """Returns the action spec of the task for an environment without the wrappers of training."""
    return getattr(environment, _ATTRIBUTE, environment.action_spec())


def to_own(task: types.NestedSpec, counted: types.NestedSpec, action: types.NestedArray) -> types.NestedArray:
    """Adds to discrete actions that are counted from 0 the smallest one of the task.

    Args:
        task: The task's spec, which has a bounded integer in place of a discrete one with another start.
        counted: The same spec with discrete actions counted from 0.
        action: An action of `counted`, or a batch of them.
    """
    if task == counted:
        return action

    def add(own: Any, other: specs.Array, leaf: Any) -> Any:
        return leaf if own == other else leaf + own.minimum

    return tree.map_structure(add, task, counted, action)


def _from_zero(spec: specs.Array) -> specs.Array:
    if not isinstance(spec, specs.BoundedArray) or isinstance(spec, specs.DiscreteArray):
        return spec
    if spec.shape or spec.dtype.kind not in "iu":
        return spec
    return specs.DiscreteArray(int(spec.maximum - spec.minimum) + 1, spec.dtype, spec.name)


class TaskActions:
    """Maps an agent's actions to the task's, with the wrappers used in training."""

    spec: types.NestedSpec
    """The spec of the task's actions."""
    counted: types.NestedSpec
    """The same with discrete actions counted from 0, as agents count them."""
    scales: bool
    """Whether the agent's continuous actions are scaled from [-1, 1] to the task's bounds."""

    def __init__(self, agent: types.NestedSpec, task: types.NestedSpec) -> None:
        """Finds the wrappers that convert one spec to the other.

        Args:
            agent: The spec of the agent's actions.
            task: The spec of the task's actions.

        Raises:
            ValueError: No combination of this library's wrappers does.
        """
        self.spec = task
        for starts, scales, is_flat, is_narrow in itertools.product((False, True), repeat=4):
            self.scales = scales
            self.counted = tree.map_structure(_from_zero, task) if starts else task
            self._taken = StandIn(actions=self.counted)
            environment: dm_env.Environment = self._taken
            try:
                if scales:
                    environment = wrappers.CanonicalActionWrapper(environment)
                if is_flat and flat_action.is_nested(environment.action_spec()):
                    environment = wrappers.FlatActionWrapper(environment)
                if is_narrow:
                    environment = wrappers.SinglePrecisionWrapper(environment)
            except ValueError:  # such actions cannot be scaled
                continue
            if environment.action_spec() == agent:
                self._wrapped = environment
                return
        raise ValueError(
            f"The agent's actions {_describe(agent)} must result from the task's, {_describe(task)}, by "
            "`make_training_environment` or its wrappers. Convert them yourself."
        )

    def __call__(self, action: types.NestedArray) -> types.NestedArray:
        """Returns the task's action for one of the agent's."""
        self._wrapped.step(action)
        return to_own(self.spec, self.counted, self._taken.action)


class StandIn(specs.SpecMethods, dm_env.Environment):
    """An environment without a task, for wrappers: it shows what it is given, and keeps its last action."""

    observation: types.NestedArray = np.float32(0)
    action: types.NestedArray = None

    def __init__(
        self,
        observations: types.NestedSpec = specs.Array((), np.float32),  # noqa: B008
        actions: types.NestedSpec = specs.DiscreteArray(1),  # noqa: B008
    ) -> None:
        self._specs = specs.EnvironmentSpec(observations, actions)

    def reset(self) -> dm_env.TimeStep:
        return dm_env.restart(self.observation)

    def step(self, action: types.NestedArray) -> dm_env.TimeStep:
        self.action = action
        return self.reset()


def _describe(spec: types.NestedSpec) -> Any:
    return tree.map_structure(specs.describe, spec)
