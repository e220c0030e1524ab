"""Actors without memory of the episode."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import dm_env
import numpy as np
import tree

from minerva_acme import core, types
from minerva_acme.actors import variable_client


class PolicyOutput(NamedTuple):
    """A policy's decision for one observation."""

    action: types.NestedArray  # conforms to the action spec, no batch axis
    extras: types.NestedArray = ()  # information on the choice for the learner, written by the adder


class Policy(Protocol):
    """Chooses actions."""

    def __call__(self, observation: types.NestedArray) -> PolicyOutput:
        """Chooses the action for one observation, which has no batch axis."""


class FeedForwardActor(core.Actor):
    """An actor with a policy that sees only the current observation."""

    def __init__(
        self,
        *,
        policy: Policy,
        adder: core.Adder | None = None,
        variable_client: variable_client.VariableClient | None = None,
    ) -> None:
        """Initialises the actor.

        Args:
            policy: Chooses the actions.
            adder: Writes the experience, including the policy's extras; None writes nothing.
            variable_client: Keeps the policy's weights up to date; None keeps them fixed.
        """
        self._policy = policy
        self._adder = adder
        self._variable_client = variable_client
        self._extras: types.NestedArray = ()

    def select_action(self, observation: types.NestedArray) -> types.NestedArray:
        action, self._extras = self._policy(observation)
        return action

    def observe_first(self, timestep: dm_env.TimeStep) -> None:
        if self._adder is not None:
            self._adder.add_first(timestep)

    def observe(self, action: types.NestedArray, next_timestep: dm_env.TimeStep) -> None:
        # Used once: an action that was not selected here must not get the extras of an earlier one.
        extras, self._extras = self._extras, ()
        if self._adder is not None:
            self._adder.add(action, next_timestep, extras)

    def update(self, wait: bool = False) -> None:
        if self._variable_client is not None:
            self._variable_client.update(wait)


class VectorPolicy(Protocol):
    """Chooses actions for several environments in one call."""

    def batch(self, observations: types.NestedArray) -> PolicyOutput:
        """Chooses E actions for E observations; actions, observations and extras have a leading axis E."""


class FeedForwardVectorActor(core.VectorActor):
    """An actor for E environments, with one call of a policy that sees only the current observations.

    Every environment has its own adder, so that episodes never mix.
    """

    def __init__(
        self,
        *,
        policy: VectorPolicy,
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
        self._policy = policy
        self._adders = tuple(adders)
        self._variable_client = variable_client
        self._extras: list[types.NestedArray] = []  # [E], of the newest choice

    def select_action(self, observations: Sequence[types.NestedArray]) -> list[types.NestedArray]:
        """Returns the E actions.

        Raises:
            ValueError: There are adders, but not one for each observation.
        """
        if self._adders and len(self._adders) != len(observations):
            raise ValueError(
                "`adders` must be empty or hold one adder for each environment, got "
                f"{len(self._adders)} for {len(observations)} environments."
            )
        actions, extras = self._policy.batch(_stack(observations))
        self._extras = rows(extras, len(observations))
        return rows(actions, len(observations))

    def observe_first(self, index: int, timestep: dm_env.TimeStep) -> None:
        if self._adders:
            self._adders[index].add_first(timestep)

    def observe(self, index: int, action: types.NestedArray, next_timestep: dm_env.TimeStep) -> None:
        if self._adders:
            # Used once, as in FeedForwardActor.
            extras, self._extras[index] = self._extras[index], ()
            self._adders[index].add(action, next_timestep, extras)

    def update(self, wait: bool = False) -> None:
        if self._variable_client is not None:
            self._variable_client.update(wait)


def _stack(nests: Sequence[types.NestedArray]) -> types.NestedArray:
    """Stacks nests of arrays into one nest of arrays with a leading axis."""
    # np.array stacks small arrays in a quarter of the time of np.stack.
    if isinstance(nests[0], np.ndarray):
        return np.array(nests)
    return tree.map_structure(lambda *leaves: np.array(leaves), *nests)


def rows(nest: types.NestedArray, number: int) -> list[types.NestedArray]:
    """Returns the rows of a nest of arrays [number, ...], without copies, in a fraction of dm-tree's time."""
    if isinstance(nest, np.ndarray):
        if len(nest) != number:
            raise ValueError(
                f"`policy.batch` must return a row for each of the {number} observations, got {nest.shape}."
            )
        return list(nest)
    if not nest:
        return [nest] * number
    if isinstance(nest, Mapping):
        columns = [rows(part, number) for part in nest.values()]
        return [dict(zip(nest, row, strict=True)) for row in zip(*columns, strict=True)]
    make = getattr(type(nest), "_make", type(nest))  # a named tuple takes its parts one by one
    return [make(row) for row in zip(*(rows(part, number) for part in nest), strict=True)]
