"""Actors with memory of the episode."""

from collections.abc import Sequence
from typing import Protocol

import dm_env
import numpy as np
import tree

from minerva_acme import core, types
from minerva_acme.actors import feed_forward, variable_client


class RecurrentPolicy(Protocol):
    """Chooses actions from observations and a state of each environment's episode, which the caller keeps."""

    def initial_state(self, num_environments: int) -> types.NestedArray:
        """Returns the state at the beginning of episodes, a nest of new arrays [E, ...]."""

    def step(
        self, observations: types.NestedArray, state: types.NestedArray
    ) -> tuple[feed_forward.PolicyOutput, types.NestedArray]:
        """Chooses the E actions, and updates the state with the observations.

        Args:
            observations: The observations of all environments, with a leading axis E.
            state: The state of each episode before them, a nest of arrays [E, ...], which is not changed.

        Returns:
            The output, whose actions and extras have a leading axis E, and the new state in new arrays.
        """


class RecurrentVectorActor(feed_forward.FeedForwardVectorActor):
    """An actor for E environments, with one call of a policy that remembers each environment's episode.

    `observe_first` resets the state of its environment.
    """

    def __init__(
        self,
        *,
        policy: RecurrentPolicy,
        adders: Sequence[core.Adder] = (),
        variable_client: variable_client.VariableClient | None = None,
    ) -> None:
        """Initialises the actor.

        Args:
            policy: Chooses the actions.
            adders: The adders that write each environment's experience, including the policy's extras; E
                adders, or none to write nothing.
            variable_client: Keeps the policy's weights up to date; None keeps them fixed.
        """
        self._episodes = _Episodes(policy)
        super().__init__(policy=self._episodes, adders=adders, variable_client=variable_client)

    def observe_first(self, index: int, timestep: dm_env.TimeStep) -> None:
        self._episodes.begin(index)
        super().observe_first(index, timestep)


class RecurrentActor(core.Actor):
    """An actor with a policy that remembers the episode; `observe_first` resets the state."""

    def __init__(
        self,
        *,
        policy: RecurrentPolicy,
        adder: core.Adder | None = None,
        variable_client: variable_client.VariableClient | None = None,
    ) -> None:
        """Initialises the actor.

        Args:
            policy: Chooses the actions.
            adder: Writes the experience, including the policy's extras; None writes nothing.
            variable_client: Keeps the policy's weights up to date; None keeps them fixed.
        """
        self._actor = RecurrentVectorActor(
            policy=policy, adders=[] if adder is None else [adder], variable_client=variable_client
        )

    def select_action(self, observation: types.NestedArray) -> types.NestedArray:
        (action,) = self._actor.select_action([observation])
        return action

    def observe_first(self, timestep: dm_env.TimeStep) -> None:
        self._actor.observe_first(0, timestep)

    def observe(self, action: types.NestedArray, next_timestep: dm_env.TimeStep) -> None:
        self._actor.observe(0, action, next_timestep)

    def update(self, wait: bool = False) -> None:
        self._actor.update(wait)


class _Episodes:
    """A recurrent policy, with the state of each environment's open episode."""

    def __init__(self, policy: RecurrentPolicy) -> None:
        self._policy = policy
        self._state: types.NestedArray = None  # until the first observations give the number of environments

    def begin(self, index: int) -> None:
        """Resets the state of an environment."""
        if self._state is not None:
            new = self._policy.initial_state(1)
            self._state = tree.map_structure(lambda *leaves: _replace_row(index, *leaves), self._state, new)

    def batch(self, observations: types.NestedArray) -> feed_forward.PolicyOutput:
        if self._state is None:
            num_environments = len(tree.flatten(observations)[0])
            self._state = self._policy.initial_state(num_environments)
        output, self._state = self._policy.step(observations, self._state)
        return output


def _replace_row(index: int, leaf: np.ndarray, new: np.ndarray) -> np.ndarray:
    # Not in place: extras of the step may be views of the array.
    return np.concatenate([leaf[:index], new, leaf[index + 1 :]])
