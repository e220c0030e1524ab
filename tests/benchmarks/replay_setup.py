"""Replay stores with the same steps, here and in another process, and a bare ring buffer in numpy."""

import contextlib
import multiprocessing
import time
from collections.abc import Callable, Iterator
from typing import Any

import dm_env
import numpy as np
import torch

from minerva_acme import adders, specs
from minerva_acme.agents import acting
from minerva_acme.replay import base as replay
from minerva_acme.replay import layouts, memory, reverb

from . import frame

TABLE = "replay"
BATCH_SIZE = 256
SEQUENCE_LENGTH = 5
CAPACITY = 20_000
OBSERVATION_SIZE, ACTION_SIZE = 24, 6  # of dm_control's walker


def make_spec() -> specs.EnvironmentSpec:
    return specs.EnvironmentSpec(
        observations=specs.Array((OBSERVATION_SIZE,), np.float32, name="observation"),
        actions=specs.BoundedArray((ACTION_SIZE,), np.float32, -1.0, 1.0, name="action"),
        rewards=specs.Array((), np.float32, name="reward"),
        discounts=specs.BoundedArray((), np.float32, 0.0, 1.0, name="discount"),
    )


def make_layout() -> layouts.TrajectoryLayout:
    spec = make_spec()
    return layouts.TrajectoryLayout(spec, SEQUENCE_LENGTH, acting.extras_spec(spec))


def make_table(max_size: int = CAPACITY) -> replay.TableConfig:
    return replay.TableConfig(
        name=TABLE, signature=make_layout().signature, max_size=max_size, rate_limiter=replay.MinSize(1)
    )


class Steps:
    """A stream of steps through an adder, with an item per step, in episodes of 1000."""

    def __init__(self, client: replay.ReplayClient) -> None:
        self._adder = adders.SequenceAdder(client=client, table=TABLE, layout=make_layout(), period=1)
        random = np.random.default_rng(0)
        self._observations = random.standard_normal((64, OBSERVATION_SIZE), np.float32)
        # Noise, which Reverb cannot compress.
        self._actions = random.standard_normal((64, ACTION_SIZE), np.float32)
        self._extras = [acting.BehaviourExtras(np.float32(-1.0), action) for action in self._actions]
        self._signal = np.float32(1.0)
        self._number = 0

    def add(self) -> None:
        observation = self._observations[self._number % 64]
        place = self._number % 1001
        if place == 0:
            self._adder.add_first(dm_env.TimeStep(dm_env.StepType.FIRST, None, None, observation))
        else:
            kind = dm_env.StepType.LAST if place == 1000 else dm_env.StepType.MID
            timestep = dm_env.TimeStep(kind, self._signal, self._signal, observation)
            index = self._number % 64
            self._adder.add(self._actions[index], timestep, self._extras[index])
        self._number += 1

    def fill(self, num_steps: int) -> None:
        for _ in range(num_steps):
            self.add()
        self._adder.flush()

    def close(self) -> None:
        self._adder.close()


class Ring:
    """A minimal replay: packed rows in one array, without checks, threads or limits."""

    def __init__(self) -> None:
        self._unpack = make_layout().unpack
        (self._name,) = make_layout().signature.columns
        (column,) = make_layout().signature.columns.values()
        self._rows = np.zeros((CAPACITY + SEQUENCE_LENGTH, *column.shape), column.dtype)
        self._row = np.ones(column.shape, column.dtype)
        self._window = np.arange(SEQUENCE_LENGTH + 1)
        self._random = np.random.default_rng(0)
        self._next = 0

    def add(self) -> None:
        self._rows[self._next] = self._row
        self._next = (self._next + 1) % CAPACITY

    def sample(self) -> object:
        starts = self._random.integers(CAPACITY, size=BATCH_SIZE)
        rows = self._rows[starts[:, None] + self._window]
        return self._unpack({self._name: torch.from_numpy(rows)})


def _serve(connection: Any, max_size: int) -> None:
    """Runs a Reverb server in this process, until the other end of the connection is closed."""
    with reverb.ReverbServer([make_table(max_size)]) as server:
        connection.send(server.address)
        with contextlib.suppress(EOFError):
            connection.recv()


@contextlib.contextmanager
def server_process(max_size: int = CAPACITY) -> Iterator[tuple[str, int]]:
    """Starts a Reverb server in another process; yields its address and process id."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, max_size), daemon=True)
    process.start()
    theirs.close()
    try:
        assert process.pid is not None
        yield ours.recv(), process.pid
    finally:
        ours.close()
        process.join(10)


class Clock:
    """Returns the CPU seconds of this process and of others that take part. Only on Linux."""

    def __init__(self) -> None:
        self.others: list[int] = []

    def __call__(self) -> float:
        # The id of a process's CPU clock on Linux, see clock_getcpuclockid(3).
        others = sum(time.clock_gettime((~pid << 3) | 2) for pid in self.others)
        return time.process_time() + others


CLOCK = Clock()


@contextlib.contextmanager
def stores() -> Iterator[dict[str, replay.ReplayClient]]:
    """Yields clients of a memory store, of Reverb in this process and of Reverb in another.

    Raises:
        frame.Skip: Reverb is not installed.
    """
    with contextlib.ExitStack() as stack:
        in_memory = stack.enter_context(memory.MemoryServer([make_table()], seed=0))
        try:
            local = stack.enter_context(reverb.ReverbServer([make_table()]))
        except ImportError as error:
            raise frame.Skip(str(error)) from error
        address, pid = stack.enter_context(server_process())
        CLOCK.others.append(pid)
        stack.callback(CLOCK.others.remove, pid)
        yield {
            "memory": stack.enter_context(in_memory.client()),
            "Reverb, in process": stack.enter_context(local.client()),
            "Reverb, another process": stack.enter_context(reverb.ReverbClient(address)),
        }


def bare_sampler(client: replay.ReplayClient) -> Callable[[], object]:
    """Returns a function that only reads the items of a batch from Reverb's sampler: a lower bound."""
    assert isinstance(client, reverb.ReverbClient)
    sampler = client._connection.client.NewSampler(TABLE, -1, 512)

    def sample() -> None:
        for _ in range(BATCH_SIZE):
            sampler.GetNextTrajectory()

    return sample


def datasets(
    clients: dict[str, replay.ReplayClient], stack: contextlib.ExitStack
) -> dict[str, Callable[[], object]]:
    """Fills each store, and returns the functions that take a batch from it."""
    from minerva_acme.replay.dataset import Dataset

    functions: dict[str, Callable[[], object]] = {}
    for name, client in clients.items():
        with contextlib.closing(Steps(client)) as steps:
            steps.fill(CAPACITY)
        dataset = stack.enter_context(
            Dataset(client.sampler(TABLE), unpack=make_layout().unpack, batch_size=BATCH_SIZE)
        )
        functions[name] = dataset.next
    return functions
