"""Replay in this process's memory: no other library, any Python, sampling that a seed determines."""

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from minerva_acme.replay import base, messages
from minerva_acme.replay.memory import checkpoint
from minerva_acme.replay.memory.rows import Arrays, NumpyArrays
from minerva_acme.replay.memory.sampler import MemorySampler
from minerva_acme.replay.memory.state import State
from minerva_acme.replay.memory.writer import MemoryWriter


class MemoryServer(base.ReplayServer):
    """Holds tables in this process; its threads share them, other processes cannot reach them.

    Steps are stored once, in packed arrays, and an item is a range of them. With one seed and calls in
    one order every batch is the same, to the bit, also after `restore_from`.
    """

    def __init__(
        self,
        tables: Sequence[base.TableConfig],
        *,
        seed: int,
        checkpoint_directory: str | None = None,
        restore_from: str | None = None,
        device: str | None = None,
    ) -> None:
        """Makes the tables.

        Args:
            tables: the tables to hold.
            seed: determines what is drawn, >= 0; a checkpoint goes on with its own generators.
            checkpoint_directory: where `ReplayClient.checkpoint` writes, each server into a folder of
                its own, of which it keeps the newest checkpoint; None for the folder that
                `restore_from` lies in or, without one, for no checkpoints.
            restore_from: a checkpoint to begin with, as `ReplayClient.checkpoint` returned it; None
                to begin empty.
            device: where rows are kept as torch tensors, as "cuda"; samplers then return tensors there.
                None for numpy arrays, which are quickest for a learner on the CPU.

        Raises:
            ReplayError: the checkpoint is missing, damaged, Reverb's or of other tables.
        """
        messages.check_names(tables)
        for table in tables:
            for name, spec in messages.field_specs(table.signature).items():
                messages.check_dtype(name, spec.dtype)
        if seed < 0:
            raise ValueError(f"`seed` must be >= 0, got {seed}.")
        self._state = State(tables, seed, _arrays(device))
        if restore_from is not None:
            checkpoint.load(self._state, restore_from, tables)
        folder = checkpoint_directory or (restore_from and str(pathlib.Path(restore_from).resolve().parent))
        self._checkpoints = checkpoint.Checkpoints(folder)

    @property
    def address(self) -> str:
        return messages.IN_MEMORY

    def client(self, timeout_seconds: float = base.TIMEOUT_SECONDS) -> "MemoryClient":
        return MemoryClient(self._state, self._checkpoints, timeout_seconds)

    def close(self) -> None:
        self._state.close()


class MemoryClient(base.ReplayClient):
    """Reads and writes the tables of a `MemoryServer`."""

    def __init__(self, state: State, checkpoints: checkpoint.Checkpoints, timeout_seconds: float) -> None:
        """See `MemoryServer.client`."""
        base.check_timeout(timeout_seconds)
        self._state = state
        self._checkpoints = checkpoints
        self._timeout_seconds = timeout_seconds

    def __reduce__(self) -> Any:
        raise base.ReplayError(
            "A store in memory cannot be reached from another process. Use Reverb for that, "
            "backend='reverb', or a thread."
        )

    def writer(self, max_window: int) -> MemoryWriter:
        with self._state.lock:
            self._state.check_open()
        return MemoryWriter(self._state, max_window, self._timeout_seconds)

    def sampler(self, table: str, report_seconds: float = 10.0) -> MemorySampler:
        """Returns a sampler of one table.

        Args:
            table: the table's name.
            report_seconds: how often the log says what a wait is for.
        """
        return MemorySampler(self._state, table, report_seconds)

    def check_table(self, config: base.TableConfig) -> None:
        with self._state.lock:
            found = self._state.table(config.name).description()
        messages.check_same(messages.IN_MEMORY, found, messages.describe(config))

    def table_info(self, table: str) -> base.TableInfo:
        with self._state.lock:
            return self._state.table(table).description().info()

    def memory_bytes(self) -> int:
        with self._state.lock:
            return self._state.nbytes

    def update_priorities(self, table: str, keys: np.ndarray, priorities: np.ndarray) -> None:
        messages.check_priorities(keys, priorities)
        with self._state.lock:
            self._state.table(table).update_priorities(keys.ravel(), priorities.ravel())

    def checkpoint(self) -> str:
        with self._state.lock:
            self._state.check_open()
            return self._checkpoints.save(self._state)

    def close(self) -> None:
        """Does nothing: writers and samplers close by themselves."""


def _arrays(device: str | None) -> Arrays:
    if device is None:
        return NumpyArrays()
    from minerva_acme.replay.memory.tensors import TensorArrays

    return TensorArrays(device)
