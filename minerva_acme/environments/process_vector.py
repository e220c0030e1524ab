"""Environments in their own processes, as one vector environment."""

import contextlib
import itertools
import multiprocessing
import multiprocessing.util
import pickle
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import reduction
from typing import Any

import cloudpickle
import dm_env

from minerva_acme import core, specs, types
from minerva_acme.environments import origin, task_actions, task_observations, vector

# Never "fork": a child of a process with threads, such as a replay server's, may hang.
_START_METHOD = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
GRACE_SECONDS = 5.0
"""The time that a process may take to end by itself; after Ctrl-C a fifth of that."""
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGHUP") if hasattr(signal, name))
MAKE_ANEW = "All processes have ended; make the vector environment again."


class EnvironmentWorkerError(RuntimeError):
    """An environment in a worker process failed, or its process ended."""


class ProcessVectorEnvironment(vector.VectorEnvironment, core.Saveable):
    """A vector of dm_env environments, each in its own process. LAST and FIRST come in one call.

    The processes are started by a fork server, or by `spawn` if there is none. Both import the main script
    again, so it needs the guard `if __name__ == "__main__":`. The processes ignore Ctrl-C, SIGTERM and
    SIGHUP, which a terminal or a supervisor sends to all processes and this process handles, and end when
    this process does. An exception or an interrupt ends all of them.
    """

    def __init__(self, environment_factories: Sequence[Callable[[], dm_env.Environment]]) -> None:
        """Starts the processes.

        Args:
            environment_factories: One factory for each process, with the environment's seed already in it.

        Raises:
            ValueError: There is no factory, or the specs differ.
            EnvironmentWorkerError: An environment could not be made.
        """
        self._workers: list[_Worker] = []
        # Runs before `multiprocessing` sends SIGTERM, which the processes ignore, and waits for them.
        processes: list[Any] = []
        self._at_exit = multiprocessing.util.Finalize(self, _kill, args=(processes,), exitpriority=0)
        self._infos: list[tuple[dict[str, Any], ...]] = []
        self._closed = False
        try:
            with _blocked_signals():
                for index, make in enumerate(environment_factories):
                    self._workers.append(_Worker(index, make))
                    processes.append(self._workers[-1].process)
            made = [worker.receive()[0] for worker in self._workers]
            super().__init__(len(self._workers), vector.common_spec([spec for spec, *_ in made]))
            origin.mark(self, origin.common(found for _, found, *_ in made))
            *_, actions, observations = made[0]
            task_actions.mark(self, actions)
            task_observations.mark(self, observations)
        except BaseException:
            self.close()
            raise

    def reset(self) -> list[dm_env.TimeStep]:
        timesteps, self._infos = self._call("reset", [()] * self.num_environments)
        return timesteps

    def step(self, actions: Sequence[types.NestedArray]) -> list[tuple[dm_env.TimeStep, ...]]:
        self._check_actions(actions)
        arrived, self._infos = self._call("step", [([action],) for action in actions])
        return arrived

    def get_infos(self, index: int) -> tuple[dict[str, Any], ...]:
        return self._infos[index]

    def save(self) -> core.State:
        """Returns the random states of the environments; None for those without `save`.

        The episodes in progress are not saved.
        """
        return self._call("save", [()] * self.num_environments)[0]

    def restore(self, state: core.State) -> None:
        """Restores the random states and drops the episodes in progress.

        Raises:
            ValueError: The state has a different number of environments.
        """
        vector.check_states(state, self.num_environments)
        self._call("restore", [([environment_state],) for environment_state in state])

    def close(self) -> None:
        self._close(GRACE_SECONDS)

    def _close(self, grace_seconds: float) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            for worker in self._workers:
                worker.pipe.close()  # this ends the process
            deadline = time.monotonic() + grace_seconds
            for worker in self._workers:
                worker.process.join(max(0.0, deadline - time.monotonic()))
        finally:  # also after another Ctrl-C
            self._at_exit()  # kills the processes that have not ended

    def _call(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> tuple[list[Any], list[Any]]:
        """Calls a method in all processes at once; returns the environments' results and their infos."""
        if self._closed:
            raise EnvironmentWorkerError(f"The vector environment is closed. {MAKE_ANEW}")
        try:
            for worker, own_arguments in zip(self._workers, arguments, strict=True):
                worker.send(method, own_arguments)
            answers = [worker.receive() for worker in self._workers]
        except BaseException as error:  # after an interrupt it is unknown which answers were read
            self._close(GRACE_SECONDS / 5 if isinstance(error, KeyboardInterrupt) else GRACE_SECONDS)
            raise
        return [result and result[0] for result, _ in answers], [infos for _, infos in answers]


class _Worker:
    """The process of one environment."""

    def __init__(self, index: int, make: Callable[[], dm_env.Environment]) -> None:
        context: Any = multiprocessing.get_context(_START_METHOD)
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=_play, args=(theirs, cloudpickle.dumps(make), index), daemon=True
        )
        self.process.start()
        theirs.close()
        self._index = index

    def send(self, method: str, arguments: tuple[Any, ...]) -> None:
        # A process that has ended may have said why.
        with contextlib.suppress(ConnectionError):
            self.pipe.send((method, arguments))

    def receive(self) -> tuple[Any, tuple[dict[str, Any], ...]]:
        """Returns the result of the call and the infos.

        Raises:
            EnvironmentWorkerError: The environment failed or the process ended.
        """
        try:
            failure, result, infos = self.pipe.recv()
        except (EOFError, ConnectionError) as error:
            self.process.join(GRACE_SECONDS)  # its pipe closes a moment before it has ended
            raise EnvironmentWorkerError(
                f"The process of environment {self._index} ended with exit code {self.process.exitcode}. Its "
                f"output says why. {MAKE_ANEW}"
            ) from error
        if failure:
            raise EnvironmentWorkerError(
                f"Environment {self._index} failed in its process: {failure}\n{MAKE_ANEW}"
            )
        return result, infos


def _play(pipe: Any, make: bytes, index: int) -> None:
    """Runs in a worker: answers with specs and origin, then each call until the pipe is closed."""
    # A fork server started by other code has not inherited the mask of `_blocked_signals`.
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        # Programs that the environment starts do not inherit a handler, so that it can end them by SIGTERM.
        signal.signal(signal.SIGTERM, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    with contextlib.suppress(ConnectionError):  # the main process has gone
        try:
            with vector.InProcessVectorEnvironment([pickle.loads(make)()], first_index=index) as environment:
                spec = specs.make_environment_spec(environment)
                task = task_actions.find(environment), task_observations.find(environment)
                pipe.send(("", (spec, origin.of(environment), *task), ()))
                while True:
                    method, arguments = pipe.recv()
                    result = getattr(environment, method)(*arguments)
                    infos = environment.get_infos(0) if method in ("reset", "step") else ()
                    _answer(pipe, result, infos)
        except Exception as error:  # also the EOFError of `recv` at the end
            pipe.send((f"{type(error).__name__}: {error}.\n{traceback.format_exc()}", None, ()))


def _answer(pipe: Any, result: Any, infos: Sequence[dict[str, Any]]) -> None:
    try:
        pipe.send(("", result, infos))
    except (AttributeError, TypeError, pickle.PicklingError):
        for key, value in itertools.chain(*(info.items() for info in infos)):
            try:
                reduction.ForkingPickler.dumps(value)
            except Exception as error:  # of any kind that the value raises
                raise TypeError(
                    f"`info[{key!r}]` must be something that can be pickled, to leave this process, got a "
                    f"{type(value).__name__}: {error}. Leave it out in a wrapper of the environment, or "
                    "train without `environment_processes`"
                ) from error
        raise


def _kill(processes: Sequence[Any]) -> None:
    with contextlib.ExitStack() as stack:  # which makes all calls, also after another Ctrl-C
        for process in processes:
            stack.callback(process.join)
        for process in processes:
            stack.callback(process.kill)  # if it has not ended


@contextlib.contextmanager
def _blocked_signals() -> Iterator[None]:
    """Blocks signals while processes start: they inherit the mask, so signals to the group are ignored."""
    if not hasattr(signal, "pthread_sigmask"):  # not on Windows
        yield
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [*_SIGNALS, signal.SIGTERM])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
