"""Actors that remember the episode."""

from collections.abc import Sequence
from typing import Protocol

import dm_env
import numpy as np
import tree

from minerva_acme import core, types
from minerva_acme.actors import feed_forward, variable_client


class RecurrentPolicy(Protocol):
    """Chooses actions by what it remembers of the episode of each environment; it keeps no state itself."""

    def initial_state(self, num_environments: int) -> types.NestedArray:
        """Returns what is remembered where an episode begins, a nest of arrays [E, ...], not shared."""

    def step(
        self, observations: types.NestedArray, state: types.NestedArray
    ) -> tuple[feed_forward.PolicyOutput, types.NestedArray]:
        """Chooses the E actions, and takes the observations in.

        Args:
            observations: with a leading axis E, of all environments.
            state: what is remembered of each episode before them, a nest of arrays [E, ...]; left as it is.

        Returns:
            The output with a leading axis E, also of the extras, and the state after the step in new arrays.
        """


class RecurrentVectorActor(feed_forward.FeedForwardVectorActor):
    """Acts in E environments by one call of a policy that remembers the episode of each.

    What is remembered of an environment begins anew in `observe_first`.
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
            policy: chooses the actions.
            adders: where to write what happened in each environment, the policy's extras included; E of
                them, or none to write nowhere.
            variable_client: keeps the policy's weights up to date; None: they stay.
        """
        self._episodes = _Episodes(policy)
        super().__init__(policy=self._episodes, adders=adders, variable_client=variable_client)

    def observe_first(self, index: int, timestep: dm_env.TimeStep) -> None:
        self._episodes.begin(index)
        super().observe_first(index, timestep)


class RecurrentActor(core.Actor):
    """Acts by a policy that remembers the episode, which begins anew in `observe_first`."""

    def __init__(
        self,
        *,
        policy: RecurrentPolicy,
        adder: core.Adder | None = None,
        variable_client: variable_client.VariableClient | None = None,
    ) -> None:
        """Initialises the actor.

        Args:
            policy: chooses the actions.
            adder: where to write what happened, the policy's extras included; None: nowhere.
            variable_client: keeps the policy's weights up to date; None: they stay.
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
    """A recurrent policy, and what it remembers of the open episode of each environment."""

    def __init__(self, policy: RecurrentPolicy) -> None:
        self._policy = policy
        self._state: types.NestedArray = None  # before the first observations nobody knows how many there are

    def begin(self, index: int) -> None:
        """Forgets what was before in an environment."""
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
