"""Gymnasium's vector environments as vector environments of dm_env's timesteps."""

import contextlib
import functools
import multiprocessing.connection
import os
import queue
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import dm_env
import numpy as np
import tree
from gymnasium import spaces
from gymnasium import vector as gymnasium_vector

from minerva_acme import core, specs, types
from minerva_acme.environments import gymnasium_from_dm_env, gymnasium_spaces, vector
from minerva_acme.wrappers import single_precision

_NEXT_STEP = gymnasium_vector.AutoresetMode.NEXT_STEP
_SAME_STEP = gymnasium_vector.AutoresetMode.SAME_STEP
# Never "fork": a child of a process with threads, such as a replay server's, may hang.
_START_METHOD = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
_FAILURE = "_minerva_acme_failure"
_GRACE_SECONDS = 5.0
"""How long workers may take to end by themselves, and the report of an error to arrive."""


class EnvironmentWorkerError(RuntimeError):
    """An environment in a worker process failed, or its process ended."""


class GymnasiumVectorEnvironment(vector.VectorEnvironment):
    """Makes one of Gymnasium's vector environments speak dm_env.

        autoreset mode   an episode that ends arrives as
        NEXT_STEP        (LAST,), and (FIRST,) in the next call, which leaves the action unused
        SAME_STEP        (LAST, FIRST); the observation of LAST is Gymnasium's `final_obs`
        DISABLED         (LAST, FIRST); it is reset here, by `reset_mask`

    Termination, truncation and spaces become what `GymnasiumEnvironment` says, in 32 bits where that has
    64: a wrapper of one environment, as `SinglePrecisionWrapper`, cannot be put around a vector.
    (`environments.make_vector` makes a vector of wrapped environments.) Observations are rows of the
    batch, without copies, wherever Gymnasium makes a new batch for every call and no dtype is changed.

    After an exception of a `SyncVectorEnv` the next step begins new episodes. Of an `AsyncVectorEnv` all
    workers are ended then, and the next step says that it is closed.
    """

    def __init__(
        self,
        vector_environment: gymnasium_vector.VectorEnv[Any, Any, Any],
        *,
        seed: int | None = None,
        environment_spec: specs.EnvironmentSpec | None = None,
    ) -> None:
        """Takes over a vector environment, and closes it in the end.

        Args:
            vector_environment: a `SyncVectorEnv`, an `AsyncVectorEnv`, or one with a batch of its own.
            seed: the first reset seeds environment i with `seed + i`; the resets after it go on from
                there. None: new seeds.
            environment_spec: for `GymnasiumFromDmEnv`s inside: the specs of their dm_env environments,
                whose structures, dtypes and discounts (`info["discount"]`) are given back. Where an info
                holds no discount it is 0 for `terminated`, else 1. None: as the spaces say, in single
                precision.

        Raises:
            ValueError: a space has no dm_env spec, the autoreset mode is not said, or Gymnasium would
                reset twice.
        """
        mode = vector_environment.metadata.get("autoreset_mode")
        if mode is None:
            raise ValueError(
                "`vector_environment` must say in `metadata['autoreset_mode']` when it resets, got none. "
                "Set it to one of gymnasium.vector.AutoresetMode."
            )
        self._mode = gymnasium_vector.AutoresetMode(mode)
        inner = vector_environment.unwrapped
        self._workers = inner if isinstance(inner, gymnasium_vector.AsyncVectorEnv) else None
        if self._workers and self._mode == _NEXT_STEP and not self._workers.shared_memory:
            # Gymnasium's worker forgets to note a `reset` then, and makes another in the next step.
            raise ValueError(
                "`vector_environment` must share memory in the mode NEXT_STEP, got shared_memory=False. "
                "Leave it at True, or choose another autoreset mode."
            )
        if self._workers:
            _never_wait_for_a_lost_report(self._workers)
        self._vector = vector_environment
        self._spec = environment_spec or _spec_of_spaces(vector_environment)
        self._has_discounts = environment_spec is not None  # else an info's has a meaning of its own
        self._starts = [
            part.start if isinstance(part, spaces.Discrete) else 0
            for part in _leaves(vector_environment.single_observation_space)
        ]
        self._dtypes = [spec.dtype for spec in tree.flatten(self._spec.observations)]
        # Whether other kinds write into a batch again is not known.
        self._is_fresh = (
            isinstance(vector_environment, gymnasium_vector.SyncVectorEnv | gymnasium_vector.AsyncVectorEnv)
            and vector_environment.copy
        )
        self._is_flat = isinstance(self._spec.observations, specs.Array)
        self._next_seed = seed
        self._ended = np.zeros(self.num_environments, bool)  # in the last call
        self._infos = _Infos({}, {}, {})
        self._reset_next_step = True
        self._closed = False

    @property
    def vector_environment(self) -> gymnasium_vector.VectorEnv[Any, Any, Any]:
        """Gymnasium's vector environment."""
        return self._vector

    @property
    def num_environments(self) -> int:
        return int(self._vector.num_envs)

    def reset(self) -> list[dm_env.TimeStep]:
        self._reset_next_step = True
        batch, infos = self._call(self._vector.reset, seed=self._next_seed)
        self._next_seed = None
        self._ended = np.zeros(self.num_environments, bool)
        self._infos = _Infos(infos, {}, {})
        self._reset_next_step = False
        return [dm_env.restart(observation) for observation in self._split(batch)]

    def step(self, actions: Sequence[types.NestedArray]) -> list[tuple[dm_env.TimeStep, ...]]:
        vector.check_actions(actions, self.num_environments)
        if self._reset_next_step:
            return [(timestep,) for timestep in self.reset()]
        gymnasium_actions = _batch(self._vector.single_action_space, actions)
        self._reset_next_step = True  # until all of them have made it
        batch, rewards, terminated, truncated, infos = self._call(self._vector.step, gymnasium_actions)
        only_reset = self._ended if self._mode == _NEXT_STEP else np.zeros(self.num_environments, bool)
        self._ended = np.logical_or(terminated, truncated)
        observations = lasts = firsts = self._split(batch)
        self._infos = _Infos(infos, infos, {})
        if self._mode != _NEXT_STEP and self._ended.any():
            if self._mode == _SAME_STEP:
                lasts = self._final_observations(infos["final_obs"])
                self._infos = _Infos(infos, infos.get("final_info", {}), infos)
            else:
                mask = {"reset_mask": self._ended.copy()}
                batch, reset_infos = self._call(self._vector.reset, options=mask)
                firsts = self._split(batch)
                self._infos = _Infos(infos, infos, reset_infos)
        rewards = list(np.asarray(rewards, self._spec.rewards.dtype))
        discounts = self._discounts(terminated)
        arrived: list[tuple[dm_env.TimeStep, ...]] = []
        for index, (resets, ended) in enumerate(zip(only_reset.tolist(), self._ended.tolist(), strict=True)):
            reward, discount = rewards[index], discounts[index]
            if resets:
                arrived.append((dm_env.restart(observations[index]),))
            elif not ended:
                arrived.append((dm_env.transition(reward, observations[index], discount),))
            else:
                last = dm_env.TimeStep(dm_env.StepType.LAST, reward, discount, lasts[index])
                has_begun = self._mode != _NEXT_STEP
                arrived.append((last, dm_env.restart(firsts[index])) if has_begun else (last,))
        self._reset_next_step = False
        return arrived

    def get_infos(self, index: int) -> tuple[dict[str, Any], ...]:
        if self._ended[index] and self._mode != _NEXT_STEP:
            return (_row(self._infos.last, index), _row(self._infos.first, index))
        return (_row(self._infos.only, index),)

    def observation_spec(self) -> types.NestedSpec:
        return self._spec.observations

    def action_spec(self) -> types.NestedSpec:
        return self._spec.actions

    def reward_spec(self) -> types.NestedSpec:
        return self._spec.rewards

    def discount_spec(self) -> types.NestedSpec:
        return self._spec.discounts

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            if self._workers:
                _end(self._workers)
            self._vector.close()

    def _call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        try:
            return method(*arguments, **named)
        except Exception as error:
            if not self._workers:
                raise
            failure = _describe(self._workers, error)
            self.close()
            raise EnvironmentWorkerError(f"{failure} All processes have ended; make them anew.") from error
        except BaseException:  # an interrupt: nobody knows any more whose answers have been read
            if self._workers:
                self.close()
            raise

    def _split(self, batch: Any) -> list[types.NestedArray]:
        """The observations of a batch."""
        leaves = [batch] if self._is_flat else tree.flatten(batch)
        arrays = []
        for leaf, start, dtype in zip(leaves, self._starts, self._dtypes, strict=True):
            array = np.asarray(leaf if start == 0 else leaf - start)
            if array.dtype != dtype:
                array = single_precision.cast(array, dtype)
            arrays.append(array if self._is_fresh or array is not leaf else array.copy())
        # With the ellipsis a row of a vector is an array too.
        indices = range(self.num_environments)
        if self._is_flat:
            return [arrays[0][index, ...] for index in indices]
        structure = self._spec.observations
        return [tree.unflatten_as(structure, [array[index, ...] for array in arrays]) for index in indices]

    def _final_observations(self, observations: Any) -> list[types.NestedArray]:
        """The last observations of the episodes that ended, None for the other environments."""
        lasts: list[types.NestedArray] = [None] * self.num_environments
        space = self._vector.single_observation_space
        for index in np.flatnonzero(self._ended):
            nest = gymnasium_spaces.from_gymnasium(space, observations[index])
            leaves = [
                single_precision.cast(leaf, dtype)
                for leaf, dtype in zip(tree.flatten(nest), self._dtypes, strict=True)
            ]
            lasts[index] = tree.unflatten_as(self._spec.observations, leaves)
        return lasts

    def _discounts(self, terminated: np.ndarray) -> list[Any]:
        discounts = np.where(terminated, 0.0, 1.0).astype(self._spec.discounts.dtype)
        if self._has_discounts:
            # Of an episode that ended: in `only` may stand what the reset after it said.
            for infos, is_meant in ((self._infos.only, ~self._ended), (self._infos.last, self._ended)):
                if "discount" in infos:
                    mask = infos["_discount"] & is_meant
                    discounts[mask] = infos["discount"][mask]
        return list(discounts)


class ProcessVectorEnvironment(GymnasiumVectorEnvironment, core.Saveable):
    """dm_env environments, each in a process of its own. LAST and FIRST come in one call.

    A fork server starts them, or `spawn` where there is none: the main script is imported once more, so
    it needs the guard `if __name__ == "__main__":`. The processes ignore Ctrl-C, which is this one's to
    handle, and end when it does.
    """

    def __init__(self, environment_factories: Sequence[Callable[[], dm_env.Environment]]) -> None:
        """Starts the processes.

        Args:
            environment_factories: one for each process, with the seed of its own already in it. The first
                is called in this process too, to look at its spaces.

        Raises:
            ValueError: there is none, the specs differ, Gymnasium has no space for one, or a reward or
                discount is not one number.
            EnvironmentWorkerError: a process failed while it was started.
        """
        if not environment_factories:
            vector.check_specs([])
        self._async = _Workers([_Factory(index, make) for index, make in enumerate(environment_factories)])
        try:
            environment_specs = self._async.get_attr("environment_spec")
            vector.check_specs(environment_specs)
            super().__init__(self._async, environment_spec=environment_specs[0])
        except BaseException:
            _end(self._async)
            raise

    def _call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        result = super()._call(method, *arguments, **named)
        infos = result[-1] if isinstance(result, tuple) else None
        if isinstance(infos, dict) and _FAILURE in infos:
            self.close()
            failure = infos[_FAILURE][np.flatnonzero(infos[f"_{_FAILURE}"])[0]]
            raise EnvironmentWorkerError(f"{failure}\nAll processes have ended; make them anew.")
        return result

    def save(self) -> core.State:
        """Returns the random states of the environments that have `save`; None stands for the others'.

        The episodes in progress are no part of it.
        """
        return list(self._call(self._async.get_attr, "random_state"))

    def restore(self, state: core.State) -> None:
        """Takes over the random states and drops the episodes in progress.

        Raises:
            ValueError: the state is that of another number of environments.
        """
        vector.check_states(state, self.num_environments)
        self._call(self._async.set_attr, "random_state", list(state))
        self._reset_next_step = True


def _spec_of_spaces(environment: gymnasium_vector.VectorEnv[Any, Any, Any]) -> specs.EnvironmentSpec:
    """What the spaces of one environment say, in single precision."""
    observations = gymnasium_spaces.to_spec(environment.single_observation_space, "observation")
    actions = gymnasium_spaces.to_spec(environment.single_action_space, "action")
    return specs.EnvironmentSpec(
        observations=tree.map_structure(single_precision.narrow_spec, observations),
        actions=tree.map_structure(single_precision.narrow_spec, actions),
        rewards=specs.Array(shape=(), dtype=np.float32, name="reward"),
        discounts=specs.BoundedArray((), np.float32, 0.0, 1.0, name="discount"),
    )


class _Infos(NamedTuple):
    """Gymnasium's infos of the last call."""

    only: dict[str, Any]  # where one timestep arrived
    last: dict[str, Any]  # where an episode ended
    first: dict[str, Any]  # where the next one began in the same call


class _InWorker(gymnasium_from_dm_env.GymnasiumFromDmEnv):
    """What a worker plays in. Attributes are what the parent can ask for and set."""

    def __init__(self, index: int, environment: dm_env.Environment) -> None:
        super().__init__(environment)
        self._index = index

    @property
    def environment_spec(self) -> specs.EnvironmentSpec:
        return specs.make_environment_spec(self.environment)

    @property
    def random_state(self) -> core.State:
        return vector.save_environment(self.environment)

    @random_state.setter
    def random_state(self, state: core.State) -> None:
        vector.restore_environment(self.environment, state)

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        try:
            return super().reset(**arguments)
        except Exception as error:
            return self.observation_space.sample(), self._failure(error)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        try:
            return super().step(action)
        except Exception as error:
            return self.observation_space.sample(), 0.0, False, False, self._failure(error)

    def _failure(self, error: Exception) -> dict[str, Any]:
        # Told in the info: Gymnasium's own way loses what cannot be pickled and drops the traceback.
        return {
            _FAILURE: f"Environment {self._index} failed in its process: {type(error).__name__}: {error}.\n"
            f"{traceback.format_exc()}"
        }


class _Factory:
    """Makes the environment of a worker."""

    def __init__(self, index: int, make: Callable[[], dm_env.Environment]) -> None:
        self._index = index
        self._make = make
        self._parent = os.getpid()

    def __call__(self) -> _InWorker:
        if os.getpid() != self._parent:
            # A fork server that somebody else started has not inherited the mask.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        return _InWorker(self._index, self._make())


class _Workers(gymnasium_vector.AsyncVectorEnv):
    """Gymnasium's, which leaves no process behind where one cannot be started."""

    def __init__(self, factories: Sequence[_Factory]) -> None:
        try:
            # What is started inside inherits the mask, so a Ctrl-C does not reach the processes.
            with _blocked_interrupts():
                super().__init__(factories, context=_START_METHOD, autoreset_mode=_SAME_STEP)
        except (EOFError, ConnectionError) as error:
            failure = _describe(self, error)
            _end(self)
            raise EnvironmentWorkerError(f"{failure} What it printed says why.") from error
        except BaseException:
            _end(self)
            raise


@contextlib.contextmanager
def _blocked_interrupts() -> Iterator[None]:
    if not hasattr(signal, "pthread_sigmask"):  # not on Windows
        yield
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _describe(workers: gymnasium_vector.AsyncVectorEnv, error: Exception) -> str:
    """Says what became of the workers."""
    if isinstance(error, EOFError | ConnectionError):
        processes = workers.processes
        ready = multiprocessing.connection.wait([process.sentinel for process in processes], _GRACE_SECONDS)
        for process in processes:
            if process.sentinel in ready:
                process.join(_GRACE_SECONDS)  # its files close a moment before it has ended
        codes = [(index, process.exitcode) for index, process in enumerate(processes)]
        ended = [
            f"that of environment {index} with exit code {code}" for index, code in codes if code is not None
        ]
        return f"A process ended: {', '.join(ended) or 'none that is known'}."
    if isinstance(error, queue.Empty):
        return "An environment failed in its process with an error that cannot be sent to this one."
    return f"An environment failed in its process: {type(error).__name__}: {error}."


def _end(workers: gymnasium_vector.AsyncVectorEnv) -> None:
    """Ends all workers, by themselves if they can, whatever state they are in."""
    workers.closed = True
    pipes = [pipe for pipe in getattr(workers, "parent_pipes", []) if pipe is not None and not pipe.closed]
    processes = getattr(workers, "processes", [])
    for pipe in pipes:
        with contextlib.suppress(OSError):
            pipe.send(("close", None))
    deadline = time.monotonic() + _GRACE_SECONDS
    for pipe in pipes:
        # Until the worker closes its side: one that waits to hand over a result would never end.
        with contextlib.suppress(EOFError, OSError):
            while pipe.poll(max(0.0, deadline - time.monotonic())):
                pipe.recv()
        pipe.close()
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()
    if hasattr(workers, "error_queue"):
        workers.error_queue.close()


def _never_wait_for_a_lost_report(workers: gymnasium_vector.AsyncVectorEnv) -> None:
    # Gymnasium waits without end for the error of a worker, which never comes if it cannot be pickled.
    wait = functools.partial(workers.error_queue.get, timeout=_GRACE_SECONDS)
    workers.error_queue.get = wait  # type: ignore[method-assign]


def _leaves(space: spaces.Space[Any]) -> Iterator[spaces.Space[Any]]:
    """The parts of a space in the order of dm-tree."""
    if isinstance(space, spaces.Dict):
        for key in sorted(space.spaces):
            yield from _leaves(space.spaces[key])
    elif isinstance(space, spaces.Tuple):
        for part in space.spaces:
            yield from _leaves(part)
    else:
        yield space


def _batch(space: spaces.Space[Any], actions: Sequence[types.NestedArray]) -> Any:
    """Actions that conform to their spec as a batch of the space's."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return _stack(space, actions)
    columns = zip(*map(tree.flatten, actions), strict=True)
    stacked = [_stack(part, column) for part, column in zip(_leaves(space), columns, strict=True)]
    return _nest(space, iter(stacked))


def _stack(space: spaces.Space[Any], values: Sequence[Any]) -> np.ndarray:
    stacked = np.asarray(np.stack(values), space.dtype)
    return stacked + space.start if isinstance(space, spaces.Discrete) else stacked


def _nest(space: spaces.Space[Any], leaves: Iterator[np.ndarray]) -> Any:
    match space:
        case spaces.Dict():
            return {key: _nest(space.spaces[key], leaves) for key in sorted(space.spaces)}
        case spaces.Tuple():
            return tuple(_nest(part, leaves) for part in space.spaces)
    return next(leaves)


def _row(infos: dict[str, Any], index: int) -> dict[str, Any]:
    """The info of one environment. Gymnasium marks by `_<key>` which of them said something."""
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
