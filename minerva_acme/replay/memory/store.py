"""Replay in this process's memory: no other library, any Python, sampling that a seed determines."""

import functools
import pathlib
from collections.abc import Callable, Sequence

from minerva_acme.replay import base, messages, sizes
from minerva_acme.replay.memory import checkpoint, rows, table
from minerva_acme.replay.memory.client import MemoryClient

ITEM_BYTES = 32  # about, without rows: where these are, priority, how often it was sampled


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
            tables: the tables to hold; none where nothing will be written.
            seed: determines what is drawn, >= 0; a checkpoint continues with its own generators.
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
        if tables:
            messages.check_names(tables)
        if seed < 0:
            raise ValueError(f"`seed` must be >= 0, got {seed}.")
        if device is None:
            sizes.report(tables, ITEM_BYTES)
        make_store: Callable[..., rows.RowStore] = rows.RowStore
        if device is not None:
            from minerva_acme.replay.memory.tensors import TensorRowStore

            make_store = functools.partial(TensorRowStore, device)
        self._tables = table.Tables(tables, seed, make_store)
        if restore_from is not None:
            checkpoint.load(self._tables, restore_from, tables)
        folder = checkpoint_directory or (restore_from and str(pathlib.Path(restore_from).resolve().parent))
        self._checkpoints = checkpoint.Checkpoints(folder)

    @property
    def address(self) -> str:
        return messages.IN_MEMORY

    def client(self, timeout_seconds: float = base.TIMEOUT_SECONDS) -> MemoryClient:
        return MemoryClient(self._tables, self._checkpoints.save, timeout_seconds)

    def close(self) -> None:
        self._tables.close()
