"""Conversion of a task's observations to an agent's, as done by the wrappers of training."""

from collections.abc import Mapping, Sequence
from typing import Any

import tree

from minerva_acme import specs, types, wrappers
from minerva_acme.environments import task_actions, training_wrappers

_ATTRIBUTE = "_task_observations"
_OF_TRAINING = (
    wrappers.CanonicalActionWrapper,
    wrappers.ConcatObservationWrapper,
    wrappers.CriticObservationWrapper,
    wrappers.FlatActionWrapper,
    wrappers.FloatObservationWrapper,
    wrappers.NamedRewardsWrapper,
    wrappers.NumbersOnlyWrapper,
    wrappers.SinglePrecisionWrapper,
    wrappers.SpecCheckWrapper,
)


def mark(environment: Any, spec: types.NestedSpec) -> None:
    """Notes on a vector of environments the observation spec of their task."""
    setattr(environment, _ATTRIBUTE, spec)


def find(environment: Any) -> types.NestedSpec:
    """Returns the observation spec inside the wrappers of training of an environment, or of a vector."""
    while isinstance(environment, _OF_TRAINING):
        environment = environment.environment
    noted = getattr(environment, "__dict__", {}).get(_ATTRIBUTE)
    return _plain(environment.observation_spec()) if noted is None else noted


class TaskObservations:
    """Maps a task's observations to the agent's, with the wrappers used in training."""

    def __init__(
        self, agent: types.NestedSpec, task: types.NestedSpec, critic_observations: Sequence[str] = ()
    ) -> None:
        """Makes the wrappers.

        Args:
            agent: The spec of the agent's observations, without what only the critic sees.
            task: The spec of the task's observations.
            critic_observations: The entries of the task's observations that only the critic sees. They may
                be missing, and are not looked at.

        Raises:
            ValueError: `make_training_environment` makes other observations of the task's.
        """
        self._names = tuple(critic_observations)
        self.spec = specs.without(task, self._names)
        """The spec of the task's observations, without what only the critic sees."""
        self._given = task_actions.StandIn(self.spec)
        # With names, or beside an image, whether others would be concatenated changes nothing.
        is_vector = isinstance(agent, specs.Array) and len(agent.shape) == 1
        self._wrapped = training_wrappers.wrap(
            self._given, "", self._names, concatenate=is_vector or bool(self._names)
        )
        if self._wrapped.observation_spec() != agent:
            raise ValueError(
                f"The agent's observations {_describe(agent)} must result from the task's, "
                f"{_describe(task)}, by `make_training_environment`."
            )

    def without_critics(self, observation: Any) -> Any:
        """Returns a task's observation without what only the critic sees."""
        return specs.without(observation, self._names)

    def __call__(self, observation: types.NestedArray) -> types.NestedArray:
        """Returns the agent's observation for one that conforms to `spec`.

        Raises:
            SpecError: It does not.
        """
        self._given.observation = observation
        return self._wrapped.reset().observation


def _plain(nest: types.NestedSpec) -> types.NestedSpec:
    """Returns a nest with plain dicts: dm_control's are of another kind, which no file holds."""
    if isinstance(nest, Mapping):
        return {name: _plain(part) for name, part in nest.items()}
    return nest


def _describe(spec: types.NestedSpec) -> Any:
    return tree.map_structure(specs.describe, spec)
