"""Several environments that take their steps together, so that one policy call serves them all."""

import abc
from collections.abc import Sequence
from typing import Any

import dm_env

from minerva_acme import core, specs, types


class VectorEnvironment(core.Closeable):
    """E environments of the same specs. A context manager that closes itself.

    A call hands out, for each environment, the timesteps that arrived in it:

        (MID,)          its episode goes on
        (LAST, FIRST)   its episode ended, and the environment was reset in the same call
        (LAST,)         its episode ended; the environment is reset in the next call, ...
        (FIRST,)        ... which leaves the action of that call unused
        (FIRST,)        of all environments where no episode was open, as in dm_env

    An action led to a timestep unless that is FIRST, so no transition reaches across a reset. As in
    dm_env the observation of LAST is the true last one, and a time limit leaves its discount at 1.
    Arrays that were handed out are not written into later.
    """

    @property
    @abc.abstractmethod
    def num_environments(self) -> int:
        """E."""

    @abc.abstractmethod
    def reset(self) -> list[dm_env.TimeStep]:
        """Begins a new episode in every environment and returns the E FIRST timesteps."""

    @abc.abstractmethod
    def step(self, actions: Sequence[types.NestedArray]) -> list[tuple[dm_env.TimeStep, ...]]:
        """Makes one step in every environment, and resets those whose episode ended.

        Args:
            actions: one for each environment, also for those that only reset.

        Returns:
            For each environment the timesteps that arrived, in order.

        Raises:
            ValueError: there are not E actions.
        """

    def get_infos(self, index: int) -> tuple[dict[str, Any], ...]:
        """Returns what `get_info()` of environment `index` said at each timestep of the last call.

        Observers get it, the first at a step and the last at the beginning of an episode. By default there
        is nothing to say.
        """
        del index
        return ({}, {})

    @abc.abstractmethod
    def observation_spec(self) -> types.NestedSpec:
        """Returns the spec of one environment's observation; likewise the other three."""

    @abc.abstractmethod
    def action_spec(self) -> types.NestedSpec: ...

    @abc.abstractmethod
    def reward_spec(self) -> types.NestedSpec: ...

    @abc.abstractmethod
    def discount_spec(self) -> types.NestedSpec: ...

    @abc.abstractmethod
    def close(self) -> None:
        """Closes every environment; calling it again does nothing."""


class InProcessVectorEnvironment(VectorEnvironment, core.Saveable):
    """Environments of this process, one after the other. LAST and FIRST come in one call.

    An exception of one of them drops all open episodes: the next step begins new ones.
    """

    def __init__(self, environments: Sequence[dm_env.Environment]) -> None:
        """Takes over the environments, and closes them in the end.

        Args:
            environments: at least one, all of the same specs, each an object of its own.

        Raises:
            ValueError: there is none, one is there twice, or their specs differ.
        """
        check_specs([specs.make_environment_spec(environment) for environment in environments])
        if len({id(environment) for environment in environments}) < len(environments):
            raise ValueError("`environments` must be objects of their own, got one twice. Make each anew.")
        self._environments = tuple(environments)
        # The info of LAST, for the environments that were reset since.
        self._last_infos: dict[int, dict[str, Any]] = {}
        self._reset_next_step = True
        self._closed = False

    @property
    def num_environments(self) -> int:
        return len(self._environments)

    def reset(self) -> list[dm_env.TimeStep]:
        self._reset_next_step = True
        self._last_infos.clear()
        timesteps = [environment.reset() for environment in self._environments]
        self._reset_next_step = False
        return timesteps

    def step(self, actions: Sequence[types.NestedArray]) -> list[tuple[dm_env.TimeStep, ...]]:
        check_actions(actions, self.num_environments)
        if self._reset_next_step:
            return [(timestep,) for timestep in self.reset()]
        self._reset_next_step = True  # until all of them have made it
        self._last_infos.clear()
        arrived: list[tuple[dm_env.TimeStep, ...]] = []
        for index, environment in enumerate(self._environments):
            timestep = environment.step(actions[index])
            if timestep.last():
                self._last_infos[index] = _get_info(environment)
                arrived.append((timestep, environment.reset()))
            else:
                arrived.append((timestep,))
        self._reset_next_step = False
        return arrived

    def get_infos(self, index: int) -> tuple[dict[str, Any], ...]:
        newest = _get_info(self._environments[index])
        return (self._last_infos[index], newest) if index in self._last_infos else (newest,)

    def observation_spec(self) -> types.NestedSpec:
        return self._environments[0].observation_spec()

    def action_spec(self) -> types.NestedSpec:
        return self._environments[0].action_spec()

    def reward_spec(self) -> types.NestedSpec:
        return self._environments[0].reward_spec()

    def discount_spec(self) -> types.NestedSpec:
        return self._environments[0].discount_spec()

    def save(self) -> core.State:
        """Returns the random states of the environments that have `save`; None stands for the others'.

        The episodes in progress are no part of it.
        """
        return [save_environment(environment) for environment in self._environments]

    def restore(self, state: core.State) -> None:
        """Takes over the random states and drops the episodes in progress.

        Raises:
            ValueError: the state is that of another number of environments.
        """
        check_states(state, self.num_environments)
        for environment, environment_state in zip(self._environments, state, strict=True):
            restore_environment(environment, environment_state)
        self._reset_next_step = True

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            for environment in self._environments:
                environment.close()


def check_specs(environment_specs: Sequence[specs.EnvironmentSpec]) -> None:
    """Checks that there are environments, and that they can be batched.

    Raises:
        ValueError: otherwise.
    """
    if not environment_specs:
        raise ValueError("`environments` must hold at least one environment, got none.")
    for index, spec in enumerate(environment_specs[1:], start=1):
        for name, first, other in zip(spec._fields, environment_specs[0], spec, strict=True):
            if first != other:
                raise ValueError(
                    f"`environments` must all have the same {name.removesuffix('s')}_spec, got {other!r} of "
                    f"environment {index} and {first!r} of environment 0. Wrap them until they agree."
                )


def check_actions(actions: Sequence[types.NestedArray], num_environments: int) -> None:
    """Checks that every environment gets its action.

    Raises:
        ValueError: otherwise.
    """
    if len(actions) != num_environments:
        raise ValueError(
            f"`actions` must hold one action for each of the {num_environments} environments, "
            f"got {len(actions)}."
        )


def check_states(states: Sequence[core.State], num_environments: int) -> None:
    """Checks that a saved state is that of as many environments.

    Raises:
        ValueError: otherwise.
    """
    if len(states) != num_environments:
        raise ValueError(
            f"`state` must be that of {num_environments} environments, got one of {len(states)}. "
            "Resume with as many environments as were saved."
        )


def save_environment(environment: dm_env.Environment) -> core.State:
    """Returns the environment's random state, or None where it has no `save`."""
    # dm_env has no such method; those of `environments.make` do.
    return environment.save() if hasattr(environment, "save") else None


def restore_environment(environment: dm_env.Environment, state: core.State) -> None:
    """Undoes `save_environment`."""
    if state is not None:
        environment.restore(state)  # type: ignore[attr-defined]


def _get_info(environment: dm_env.Environment) -> dict[str, Any]:
    return environment.get_info() if hasattr(environment, "get_info") else {}
