"""The replay server in this process's memory: no other library, any Python, seeded sampling."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minerva_acme.replay import base, messages, sizes
from minerva_acme.replay.memory import checkpoint, table
from minerva_acme.replay.memory.client import MemoryClient

ITEM_BYTES = 32  # approximately, without rows: their places, the priority and the number of samples


class MemoryServer(base.ReplayServer):
    """A server whose tables are in this process. Its threads share them; other processes cannot reach them.

    Steps are stored once, in packed arrays, and an item is a range of steps. With the same seed and the same
    order of calls, every batch is the same, bit for bit, also after `restore_from`.
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
            tables: The tables to hold; empty if nothing will be written.
            seed: The seed of all draws, >= 0; a restored checkpoint continues with its own generators.
            checkpoint_directory: The folder for `ReplayClient.checkpoint`. Each server writes into its own
                subfolder and keeps only the newest checkpoint. None for the parent folder of
                `restore_from`; without either, no checkpoints are written.
            restore_from: The checkpoint to start from, as `ReplayClient.checkpoint` returned it; None
                to start empty.
            device: The device on which rows are kept as PyTorch tensors, such as "cuda"; samplers then return
                tensors there. None for numpy arrays, which are fastest for a learner on the CPU.

        Raises:
            ReplayError: The checkpoint is missing, damaged, from Reverb, or of other tables.
        """
        if tables:
            messages.check_names(tables)
        if seed < 0:
            raise ValueError(f"`seed` must be >= 0, got {seed}.")
        if device is None:
            sizes.report(tables, ITEM_BYTES)

        def make_ring(config: base.TableConfig, generator: np.random.Generator) -> table.AnyTable:
            from minerva_acme.replay.memory import ring  # imports torch

            return ring.RingTable(config, generator, device or "cpu")

        self._tables = table.Tables(tables, seed, device, make_ring)
        if restore_from is not None:
            checkpoint.load(self._tables, restore_from, tables)
        folder = checkpoint_directory or (restore_from and str(pathlib.Path(restore_from).resolve().parent))
        self._checkpoints = checkpoint.Checkpoints(folder)

    @property
    def address(self) -> str:
        return messages.IN_MEMORY

    def client(self, timeout_seconds: float = base.TIMEOUT_SECONDS) -> MemoryClient:
        return MemoryClient(self._tables, self._checkpoints.save, timeout_seconds)

    def save_draws(self) -> dict[str, dict[str, Any]]:
        """Returns what later draws depend on, other than items and rows, by table: numbers and arrays.

        A server whose tables were filled in the same way continues from it; see `checkpoint` for a state that
        holds everything.
        """
        with self._tables.lock:
            return {name: table.save_draws() for name, table in self._tables.tables.items()}

    def restore_draws(self, state: Mapping[str, Mapping[str, Any]]) -> None:
        """Restores what `save_draws` returned.

        Raises:
            ValueError: The tables or the numbers of their items differ.
        """
        with self._tables.lock:
            if state.keys() != self._tables.tables.keys():
                raise ValueError(f"The tables must be {sorted(state)}, got {sorted(self._tables.tables)}.")
            for name, table in self._tables.tables.items():
                table.restore_draws(state[name])

    def close(self) -> None:
        self._tables.close()
