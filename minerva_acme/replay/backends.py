"""The choice of the store that holds a run's replay."""

import importlib.util
import logging
import math
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from minerva_acme.replay import base, sizes
from minerva_acme.replay.memory import store as memory_store
from minerva_acme.replay.memory.store import MemoryServer
from minerva_acme.replay.reverb import store as reverb_store
from minerva_acme.replay.reverb.store import ReverbServer

_logger = logging.getLogger(__name__)

Backend: TypeAlias = Literal["auto", "reverb", "memory"]
"""The store: `reverb` can be reached from other processes, `memory` is in this process only and seeded, and
`auto` is Reverb if it is installed and can sample the tables, else memory."""

BACKENDS = ("auto", "reverb", "memory")


def make_server(
    tables: Sequence[base.TableConfig],
    backend: Backend = "auto",
    *,
    seed: int,
    checkpoint_directory: str | None = None,
    restore_from: str | None = None,
    device: str = "cpu",
) -> base.ReplayServer:
    """Starts a server.

    Args:
        tables: The tables to hold.
        backend: The store that holds them, see `choose`. If "auto" is memory, a line in the log says so.
        seed: The seed of the draws in memory. Reverb's draws cannot be seeded.
        checkpoint_directory: The folder for checkpoints; see `ReverbServer` and `MemoryServer`.
        restore_from: The checkpoint to start from, likewise. Only the store that wrote it can restore it.
        device: The learner's device. The memory store keeps its rows there, so that batches need not be
            copied; Reverb is always on the host.

    Raises:
        ReplayError: Reverb is requested but not installed or cannot sample a table as its config says, or
            the checkpoint cannot be restored.
    """
    chosen = choose(tables, backend)
    if chosen == "reverb":
        return ReverbServer(tables, checkpoint_directory=checkpoint_directory, restore_from=restore_from)
    if backend == "auto":
        _logger.info(
            "Reverb %s: replay is kept in this process's memory, where other processes cannot reach it",
            "cannot sample as the config says" if is_reverb_installed() else "is not installed",
        )
    return MemoryServer(
        tables,
        seed=seed,
        checkpoint_directory=checkpoint_directory,
        restore_from=restore_from,
        device=None if device == "cpu" else device,
    )


def choose(tables: Sequence[base.TableConfig], backend: Backend) -> Literal["reverb", "memory"]:
    """Returns which store holds tables: with "auto", Reverb if it is installed and can, else memory.

    Raises:
        ReplayError: Reverb is requested but not installed, or cannot sample a table as its config says.
    """
    if backend not in BACKENDS:
        raise ValueError(f"`backend` must be one of {', '.join(BACKENDS)}, got {backend!r}.")
    if backend == "memory":
        return "memory"
    if not is_reverb_installed():
        if backend == "auto":
            return "memory"
        raise base.ReplayError(
            "Replay on Reverb needs Reverb, which is not installed. It has wheels for Python 3.11 on "
            "x86-64 Linux: use such an environment, or replay in memory with backend='memory'."
        )
    try:
        reverb_store.check_selectors(tables)
    except base.ReplayError:
        if backend == "auto":
            return "memory"
        raise
    return "reverb"


def restore_or_begin_empty(
    make: Callable[[str | None], base.ReplayServer], restore_from: str | None
) -> base.ReplayServer:
    """Makes a server. If the checkpoint is of another store or other tables, it starts empty, with a warning.

    Args:
        make: The function that makes a server from a checkpoint, or an empty one from None.
        restore_from: The checkpoint to start from; None for an empty server.

    Raises:
        ReplayError: The checkpoint is missing or damaged.
    """
    if restore_from is not None:
        try:
            return make(restore_from)
        except base.ReplayMismatch as error:
            _logger.warning("replay begins empty: %s", error)
    return make(None)


def describe_size(
    tables: Sequence[base.TableConfig], backend: Backend, *, most_items: float = math.inf
) -> str:
    """Describes how much memory tables take when they are full, and how much there is.

    Args:
        tables: The tables.
        backend: The store that holds them, see `choose`.
        most_items: The most items that are ever written to a table.
    """
    return sizes.describe(tables, _item_bytes(tables, backend), most_items=most_items)


def check_batch(
    tables: Sequence[base.TableConfig], backend: Backend, batch_size: int, *, most_items: float = math.inf
) -> None:
    """Checks that a batch fits into memory beside the replay; the arguments are those of `describe_size`.

    Raises:
        ValueError: It does not; the message gives its size.
    """
    sizes.check_batch(tables, _item_bytes(tables, backend), batch_size, most_items=most_items)


def _item_bytes(tables: Sequence[base.TableConfig], backend: Backend) -> int:
    chosen = memory_store if choose(tables, backend) == "memory" else reverb_store
    return chosen.ITEM_BYTES


def is_reverb_installed() -> bool:
    """Returns whether Reverb can be imported, without importing it."""
    try:
        return all(importlib.util.find_spec(name) is not None for name in ("reverb", "tensorflow"))
    except (ImportError, ValueError):
        return False
