"""Several environments that step together, so that one policy call serves them all."""

import abc
from collections.abc import Sequence
from typing import Any

import dm_env

from minerva_acme import core, specs, types
from minerva_acme.environments import origin, task_actions, task_observations
from minerva_acme.wrappers import calls

VECTORS_OF_GYMNASIUM = (
    "`GymnasiumVectorEnvironment` and `make_gymnasium_batch` of minerva_acme.environments take Gymnasium's."
)
"""The end of error messages for vectors, with the way out."""


class VectorEnvironment(specs.SpecMethods, core.Closeable):
    """E environments with the same specs. A context manager that closes itself.

    A call returns, for each environment, the timesteps that arrived in it:

        (MID,)          its episode continues
        (LAST, FIRST)   its episode ended, and the environment was reset in the same call
        (LAST,)         its episode ended; the environment is reset in the next call, ...
        (FIRST,)        ... which ignores the action of that call
        (FIRST,)        for all environments if no episode was open, as in dm_env

    The action led to the timestep unless that is FIRST, so no transition crosses a reset. As in dm_env, the
    observation of LAST is the true last one, and a time limit leaves its discount at 1. Returned arrays are
    never written to again. The specs describe one environment; the attribute `num_environments` is E.
    """

    gives_last_observation: bool = True
    """Whether the observation of LAST is the true one. It is not for a simulator that resets by itself and
    keeps only the next episode's observation: agents that bootstrap refuse such an environment."""

    def __init__(self, num_environments: int, environment_spec: specs.EnvironmentSpec) -> None:
        """Args: num_environments: E. environment_spec: The specs of one environment."""
        self.num_environments = num_environments
        self._specs = environment_spec

    @abc.abstractmethod
    def reset(self) -> list[dm_env.TimeStep]:
        """Begins a new episode in every environment and returns the E FIRST timesteps."""

    @abc.abstractmethod
    def step(self, actions: Sequence[types.NestedArray]) -> list[tuple[dm_env.TimeStep, ...]]:
        """Makes one step in every environment, and resets those whose episode ended.

        Args:
            actions: One action for each environment, even if it only resets.

        Returns:
            The timesteps that arrived in each environment, in order.

        Raises:
            ValueError: The number of actions is not E.
        """

    def get_infos(self, index: int) -> tuple[dict[str, Any], ...]:
        """Returns the `get_info()` of environment `index` at each timestep of the last call.

        Observers get the first info at a step, and the last one at the beginning of an episode. By default
        they are empty.
        """
        del index
        return ({}, {})

    def _check_actions(self, actions: Sequence[types.NestedArray]) -> None:
        if len(actions) != self.num_environments:
            raise ValueError(
                f"`actions` must hold one action for each of the {self.num_environments} environments, "
                f"got {len(actions)}."
            )


class InProcessVectorEnvironment(VectorEnvironment, core.Saveable):
    """A vector of environments in this process, stepped one after the other. LAST and FIRST come in one call.

    An exception in one of them drops all open episodes: the next step begins new ones.
    """

    def __init__(self, environments: Sequence[dm_env.Environment], *, first_index: int = 0) -> None:
        """Takes ownership of the environments, and closes them in `close`.

        Args:
            environments: At least one environment, all with the same specs, each a separate object. Those
                with `set_index`, such as a `SpecCheckWrapper`, are told their index.
            first_index: The index of the first environment.

        Raises:
            ValueError: There is no environment, one appears twice, or their specs differ.
        """
        environment_spec = common_spec([specs.make_environment_spec(each) for each in environments])
        super().__init__(len(environments), environment_spec)
        if len({id(environment) for environment in environments}) < len(environments):
            raise ValueError("`environments` must be separate objects, got one twice. Make each separately.")
        for index, environment in enumerate(environments, start=first_index):
            if hasattr(environment, "set_index"):
                environment.set_index(index)
        self._environments = tuple(environments)
        self._first_index = first_index
        origin.mark(self, origin.common(map(origin.of, environments)))
        task_actions.mark(self, task_actions.find(environments[0]))
        task_observations.mark(self, task_observations.find(environments[0]))
        # The info of LAST, for environments that have been reset since.
        self._last_infos: dict[int, dict[str, Any]] = {}
        self._reset_next_step = True
        self._closed = False

    def reset(self) -> list[dm_env.TimeStep]:
        self._reset_next_step = True
        self._last_infos.clear()
        timesteps = [self._call(index, "reset") for index in range(self.num_environments)]
        self._reset_next_step = False
        return timesteps

    def step(self, actions: Sequence[types.NestedArray]) -> list[tuple[dm_env.TimeStep, ...]]:
        self._check_actions(actions)
        if self._reset_next_step:
            return [(timestep,) for timestep in self.reset()]
        self._reset_next_step = True  # until all environments have made the step
        self._last_infos.clear()
        arrived: list[tuple[dm_env.TimeStep, ...]] = []
        for index, environment in enumerate(self._environments):
            timestep = self._call(index, "step", actions[index])
            if timestep.last():
                self._last_infos[index] = _get_info(environment)
                arrived.append((timestep, self._call(index, "reset")))
            else:
                arrived.append((timestep,))
        self._reset_next_step = False
        return arrived

    def get_infos(self, index: int) -> tuple[dict[str, Any], ...]:
        newest = _get_info(self._environments[index])
        return (self._last_infos[index], newest) if index in self._last_infos else (newest,)

    def save(self) -> core.State:
        """Returns the random states of the environments; None for those without `save`.

        The episodes in progress are not saved.
        """
        return [core.save_if_saveable(environment) for environment in self._environments]

    def restore(self, state: core.State) -> None:
        """Restores the random states and drops the episodes in progress.

        Raises:
            ValueError: The state has a different number of environments.
        """
        check_states(state, self.num_environments)
        for environment, environment_state in zip(self._environments, state, strict=True):
            core.restore_if_saved(environment, environment_state)
        self._reset_next_step = True

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            for environment in self._environments:
                environment.close()

    def _call(self, index: int, method: str, *arguments: Any) -> dm_env.TimeStep:
        environment = self._environments[index]
        try:
            return calls.call(environment, method, *arguments)
        except Exception as error:
            if not hasattr(environment, "set_index"):  # otherwise its own note has the index
                error.add_note(f"Raised by environment {self._first_index + index}.")
            raise


def common_spec(environment_specs: Sequence[specs.EnvironmentSpec]) -> specs.EnvironmentSpec:
    """Returns the spec that all environments have.

    Raises:
        ValueError: There is no environment, or their specs differ.
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
    return environment_specs[0]


def check_is_single(environment: Any) -> None:
    """Checks that something is an environment by itself, and no class and no vector or batch of several.

    Raises:
        ValueError: It is one of these.
    """
    if isinstance(environment, type):
        raise ValueError(
            f"`environment` must be an environment, got the class {environment.__name__}. Call it: "
            f"{environment.__name__}(...)."
        )
    for name in ("num_envs", "num_environments"):
        if hasattr(environment, name):
            raise ValueError(
                f"`environment` must be a single one, got a {type(environment).__name__} of "
                f"{getattr(environment, name)}. Make one, and set `num_environments` of the agent. Or give a "
                f"run the vector: {VECTORS_OF_GYMNASIUM}"
            )


def check_states(states: Sequence[core.State], num_environments: int) -> None:
    """Checks that a saved state has the right number of environments.

    Raises:
        ValueError: It does not.
    """
    if len(states) != num_environments:
        raise ValueError(
            f"`state` must hold {num_environments} environments, got {len(states)}. Resume with the same "
            "number of environments as were saved."
        )


def _get_info(environment: dm_env.Environment) -> dict[str, Any]:
    return environment.get_info() if hasattr(environment, "get_info") else {}
