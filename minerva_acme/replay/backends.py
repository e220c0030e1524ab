"""Which store holds a run's replay."""

import importlib.util
import logging
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from minerva_acme.replay import base, sizes
from minerva_acme.replay.memory import store as memory_store
from minerva_acme.replay.memory.store import MemoryServer
from minerva_acme.replay.reverb import store as reverb_store
from minerva_acme.replay.reverb.store import ReverbServer

_logger = logging.getLogger(__name__)

Backend: TypeAlias = Literal["auto", "reverb", "memory"]
"""`reverb`: can be reached from other processes. `memory`: in this process alone, seeded. `auto`: Reverb
where it is installed and knows how to sample the tables."""

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
        tables: the tables to hold.
        backend: which store holds them, see `choose`; the log says in one line where "auto" is memory.
        seed: determines what memory draws; Reverb's draws cannot be determined.
        checkpoint_directory: see `ReverbServer` and `MemoryServer`, which agree.
        restore_from: likewise; a checkpoint can be restored into the store that wrote it alone.
        device: of the learner. Memory keeps the rows there, so that batches need not be sent to it;
            Reverb is always on the host.

    Raises:
        ReplayError: Reverb is asked for and not installed or cannot sample a table as it says, or the
            checkpoint cannot be restored.
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
    """Returns which store holds tables: with "auto" Reverb where it is installed and can, else memory.

    Raises:
        ReplayError: Reverb is asked for and not installed, or cannot sample a table as it says.
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
            "x86-64 Linux: use an environment with that, or replay in memory, backend='memory'."
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
    """Makes a server; it begins empty, with a warning, if the checkpoint is of another store or other tables.

    Args:
        make: Makes a server that begins with a checkpoint; None: empty.
        restore_from: The checkpoint to begin with, if any.

    Raises:
        ReplayError: The checkpoint is missing or damaged.
    """
    if restore_from is not None:
        try:
            return make(restore_from)
        except base.ReplayMismatch as error:
            _logger.warning("replay begins empty: %s", error)
    return make(None)


def describe_size(tables: Sequence[base.TableConfig], backend: Backend) -> str:
    """Says how much memory tables take when they are full, and how much there is."""
    chosen = memory_store if choose(tables, backend) == "memory" else reverb_store
    return sizes.describe(tables, chosen.ITEM_BYTES)


def is_reverb_installed() -> bool:
    """Whether Reverb can be imported here, found out without importing it."""
    try:
        return all(importlib.util.find_spec(name) is not None for name in ("reverb", "tensorflow"))
    except (ImportError, ValueError):
        return False
