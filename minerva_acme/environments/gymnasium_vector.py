"""Gymnasium's vector environments as vector environments with dm_env's timesteps."""

import functools
import multiprocessing.connection
import queue
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import dm_env
import numpy as np
import tree
from gymnasium import vector as gymnasium_vector

from minerva_acme import specs, types, wrappers
from minerva_acme.environments import gymnasium_spaces, process_vector, vector
from minerva_acme.wrappers import single_precision

_NEXT_STEP = gymnasium_vector.AutoresetMode.NEXT_STEP
_SAME_STEP = gymnasium_vector.AutoresetMode.SAME_STEP
_GRACE_SECONDS = process_vector.GRACE_SECONDS


class GymnasiumVectorEnvironment(vector.VectorEnvironment):
    """Makes one of Gymnasium's vector environments a `VectorEnvironment`, with dm_env's timesteps.

        autoreset mode   an episode that ends arrives as
        NEXT_STEP        (LAST,), and (FIRST,) in the next call, which ignores the action
        SAME_STEP        (LAST, FIRST); the observation of LAST is Gymnasium's `final_obs`
        DISABLED         (LAST, FIRST); it is reset here, by `reset_mask`

    In the mode SAME_STEP, a missing `final_obs` at the end of an episode is an error. With
    `loses_final_obs`, LAST repeats the observation before it instead, and agents that bootstrap refuse the
    environment (`gives_last_observation`).

    EnvPool's environments with `env_type="gymnasium"` are such vectors, in the mode NEXT_STEP.

    Termination, truncation and spaces are converted as in `GymnasiumEnvironment`, but to 32 bits instead of
    64: a wrapper of one environment, such as `SinglePrecisionWrapper`, cannot wrap a vector.
    (`environments.make_vector` makes a vector of wrapped environments.)

    Timesteps are checked by `wrappers.SpecCheck`, not strictly.

    After an exception of a `SyncVectorEnv` the next step begins new episodes. An exception of an
    `AsyncVectorEnv` ends all its workers, and the next step reports that it is closed. The attribute
    `vector_environment` is Gymnasium's vector environment.
    """

    def __init__(
        self,
        vector_environment: gymnasium_vector.VectorEnv[Any, Any, Any],
        *,
        seed: int | None = None,
        loses_final_obs: bool = False,
        reward_names: Sequence[str] | None = None,
    ) -> None:
        """Takes ownership of the vector environment, and closes it in `close`.

        Args:
            vector_environment: A `SyncVectorEnv`, an `AsyncVectorEnv`, or another `VectorEnv`.
            seed: The first reset seeds environment i with `seed + i`; later resets continue from there. None
                gives new seeds.
            loses_final_obs: Whether it resets in the same step and does not keep the last observation.
            reward_names: The names of the K rewards of a vector environment whose `reward_space` is that of
                one environment, as in MO-Gymnasium, or None for 0 ... K - 1.

        Raises:
            ValueError: A space has no dm_env spec, the names do not fit, the autoreset mode is missing, or
                Gymnasium would reset twice.
        """
        self._mode = gymnasium_spaces.autoreset_mode(vector_environment)
        environment_spec = gymnasium_spaces.vector_spec(vector_environment, reward_names)
        super().__init__(int(vector_environment.num_envs), environment_spec)
        gymnasium_spaces.mark_actions(self, vector_environment.single_action_space)
        inner = vector_environment.unwrapped
        self._workers = inner if isinstance(inner, gymnasium_vector.AsyncVectorEnv) else None
        if self._workers and self._mode == _NEXT_STEP and not self._workers.shared_memory:
            # Gymnasium's worker then forgets that it was reset, and resets again in the next step.
            raise ValueError(
                "`vector_environment` must share memory in the mode NEXT_STEP, got shared_memory=False. "
                "Leave it at True, or choose another autoreset mode."
            )
        if self._workers:
            # Gymnasium waits forever for a worker's error, which never arrives if it cannot be pickled.
            wait = functools.partial(self._workers.error_queue.get, timeout=_GRACE_SECONDS)
            self._workers.error_queue.get = wait  # type: ignore[method-assign]
        self.vector_environment = vector_environment
        self.gives_last_observation = not loses_final_obs
        self._newest: list[types.NestedArray] = []  # observations
        spec = getattr(vector_environment, "spec", None)
        self._name = getattr(spec, "id", type(inner).__name__)
        self._checks = [
            wrappers.SpecCheck(environment_spec, name=self._name, strict=False)
            for _ in range(self.num_environments)
        ]
        for index, check in enumerate(self._checks):
            check.set_index(index)
        self._next_seed = seed
        self._ended = np.zeros(self.num_environments, bool)  # in the last call
        self._infos = _Infos({}, {}, {})
        self._reset_next_step = True
        self._closed = False

    def reset(self) -> list[dm_env.TimeStep]:
        self._reset_next_step = True
        batch, infos = self._call(self.vector_environment.reset, seed=self._next_seed)
        self._next_seed = None
        self._ended = np.zeros(self.num_environments, bool)
        self._infos = _Infos(infos, {}, {})
        self._newest = self._rows(batch)
        timesteps = [dm_env.restart(observation) for observation in self._newest]
        self._check([(timestep,) for timestep in timesteps])
        self._reset_next_step = False
        return timesteps

    def step(self, actions: Sequence[types.NestedArray]) -> list[tuple[dm_env.TimeStep, ...]]:
        self._check_actions(actions)
        if self._reset_next_step:
            return [(timestep,) for timestep in self.reset()]
        batch = gymnasium_spaces.to_gymnasium(self.vector_environment.single_action_space, _stack(actions))
        self._reset_next_step = True  # until all environments have made the step
        batch, rewards, terminated, truncated, infos = self._call(self.vector_environment.step, batch)
        only_reset = self._ended & (self._mode == _NEXT_STEP)
        self._ended = np.logical_or(terminated, truncated)
        observations = lasts = firsts = self._rows(batch)
        self._infos = _Infos(infos, infos, {})
        if self._mode != _NEXT_STEP and self._ended.any():
            if self._mode == _SAME_STEP:
                lasts = self._final_observations(infos)
                self._infos = _Infos(infos, infos.get("final_info", {}), infos)
            else:
                mask = {"reset_mask": self._ended.copy()}
                batch, reset_infos = self._call(self.vector_environment.reset, options=mask)
                firsts = self._rows(batch)
                self._infos = _Infos(infos, infos, reset_infos)
        self._newest = firsts
        rewards = np.asarray(rewards, np.float32)
        discounts = 1 - np.asarray(terminated, np.float32)
        arrived: list[tuple[dm_env.TimeStep, ...]] = []
        for index, (resets, ended) in enumerate(zip(only_reset.tolist(), self._ended.tolist(), strict=True)):
            reward = self._to_reward(rewards[index])
            discount = discounts[index]
            if resets:
                arrived.append((dm_env.restart(observations[index]),))
            elif not ended:
                arrived.append((dm_env.transition(reward, observations[index], discount),))
            else:
                last = dm_env.TimeStep(dm_env.StepType.LAST, reward, discount, lasts[index])
                has_begun = self._mode != _NEXT_STEP
                arrived.append((last, dm_env.restart(firsts[index])) if has_begun else (last,))
        self._check(arrived)
        self._reset_next_step = False
        return arrived

    def get_infos(self, index: int) -> tuple[dict[str, Any], ...]:
        if self._ended[index] and self._mode != _NEXT_STEP:
            return (_row(self._infos.last, index), _row(self._infos.first, index))
        return (_row(self._infos.only, index),)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.vector_environment.close()

    def _call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        try:
            return method(*arguments, **named)
        except BaseException as error:
            if not self._workers:
                raise
            failure = _describe(self._workers, error)
            # Also after an interrupt: it is unknown which answers have been read.
            self._workers._state = gymnasium_vector.async_vector_env.AsyncState.DEFAULT  # or it would wait
            self._workers.close(terminate=True)
            self.close()
            if not isinstance(error, Exception):
                raise
            message = f"{failure} {process_vector.MAKE_ANEW}"
            raise process_vector.EnvironmentWorkerError(message) from error

    def _check(self, arrived: Sequence[tuple[dm_env.TimeStep, ...]]) -> None:
        for check, timesteps in zip(self._checks, arrived, strict=True):
            for timestep in timesteps:
                check(timestep)

    def _to_reward(self, reward: Any) -> types.NestedArray:
        if isinstance(self._specs.rewards, dict):
            return single_precision.narrow(gymnasium_spaces.to_reward(self._specs.rewards, reward))
        return reward

    def _final_observations(self, infos: dict[str, Any]) -> list[types.NestedArray]:
        """Returns the last observations of the episodes that ended, by environment."""
        if not self.gives_last_observation:
            return self._newest
        final = infos.get("final_obs")
        given = [None] * self.num_environments if final is None else final
        for index, (last, ended) in enumerate(zip(given, self._ended.tolist(), strict=True)):
            if ended and last is None:
                raise specs.SpecError(
                    f"{self._name}, environment {index}: in the mode SAME_STEP `infos` must hold "
                    f"`final_obs`, the last observation of an episode, got {sorted(infos)}. `step` returns "
                    "the next episode's first one. Choose the mode NEXT_STEP or DISABLED, add "
                    "`final_obs`, or pass `loses_final_obs=True` for an agent that does not bootstrap."
                )
        return [
            None if last is None else gymnasium_spaces.from_vector(self.vector_environment, last)
            for last in given
        ]

    def _rows(self, batch: Any) -> list[types.NestedArray]:
        """Splits a batch into its observations."""
        batch = gymnasium_spaces.from_vector(self.vector_environment, batch)
        indices = range(self.num_environments)
        # With the ellipsis, a row of a vector is also an array.
        if isinstance(batch, np.ndarray):  # the usual case; `tree` takes ten times as long
            return [batch[index, ...] for index in indices]
        return [tree.map_structure(lambda leaf: leaf[index, ...], batch) for index in indices]  # noqa: B023


class _Infos(NamedTuple):
    """Gymnasium's infos of the last call."""

    only: dict[str, Any]  # where one timestep arrived
    last: dict[str, Any]  # where an episode ended
    first: dict[str, Any]  # where the next one began in the same call


def _stack(actions: Sequence[types.NestedArray]) -> types.NestedArray:
    if isinstance(actions[0], np.ndarray | np.generic):
        return np.array(actions)
    return tree.map_structure(lambda *leaves: np.array(leaves), *actions)


def _row(infos: dict[str, Any], index: int) -> dict[str, Any]:
    """Returns the info of one environment. Gymnasium's `_<key>` tells which environments have the key."""
    row = {}
    for key, value in infos.items():
        if key in ("final_obs", "final_info") or (key.startswith("_") and key[1:] in infos):
            continue
        mask = infos.get(f"_{key}")
        if mask is None or mask[index]:
            if isinstance(value, dict):
                row[key] = _row(value, index)
            else:
                row[key] = value[index] if isinstance(value, np.ndarray) else value
    return row


def _describe(workers: gymnasium_vector.AsyncVectorEnv, error: BaseException) -> str:
    """Describes the failure of the workers."""
    if isinstance(error, EOFError | ConnectionError):
        processes = workers.processes
        ready = multiprocessing.connection.wait([process.sentinel for process in processes], _GRACE_SECONDS)
        ended = [process for process in processes if process.sentinel in ready]
        for process in ended:
            process.join(_GRACE_SECONDS)  # its files close a moment before it has ended
        codes = [f"{process.name} with exit code {process.exitcode}" for process in ended]
        return f"A process ended: {', '.join(codes) or 'unknown which one'}."
    if isinstance(error, queue.Empty):
        return "An environment failed in its process with an error that cannot be sent to this process."
    return f"An environment failed in its process: {type(error).__name__}: {error}."
