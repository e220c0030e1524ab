"""Replay in memory on disk: one file of numpy arrays, and what its numbers mean as JSON."""

import json
import os
import pathlib
import shutil
import time
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from minerva_acme.replay import base, messages
from minerva_acme.replay.memory.table import Tables

_FORMAT = 2


class Checkpoints:
    """Writes the checkpoints of one server; only the newest is kept."""

    def __init__(self, directory: str | None) -> None:
        """Args: directory: where they go, into a folder of the server's own; None for nowhere."""
        self._folder = directory and pathlib.Path(directory).resolve() / f"server-{time.time_ns()}"
        self._newest: pathlib.Path | None = None

    def save(self, tables: Tables) -> str:
        """Writes a checkpoint and returns its folder, which is there whole or not at all.

        Raises:
            ReplayError: there is no place for it.
        """
        if not self._folder:
            raise base.ReplayError(messages.no_checkpoint(messages.IN_MEMORY, messages.NO_DIRECTORY))
        folder = pathlib.Path(self._folder)
        final = folder / str(time.time_ns())
        unfinished = folder / f".unfinished-{final.name}"
        try:
            unfinished.mkdir(parents=True)
            with open(unfinished / messages.MEMORY_FILE, "wb") as file:
                np.savez(file, **_dump(tables))
                file.flush()
                os.fsync(file.fileno())
            unfinished.rename(final)
        except OSError as error:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise base.ReplayError(messages.no_checkpoint(messages.IN_MEMORY, str(error))) from error
        if self._newest is not None:
            shutil.rmtree(self._newest, ignore_errors=True)  # It may have been moved.
        self._newest = final
        return str(final)


def load(tables: Tables, path: str | os.PathLike[str], configs: Sequence[base.TableConfig]) -> None:
    """Fills new tables with what `Checkpoints.save` wrote.

    Raises:
        ReplayError: it is missing, damaged, of another backend or of other tables.
    """
    folder = pathlib.Path(path).resolve()
    messages.check_finished(folder, "memory")
    try:
        # Opened here: of a damaged file numpy would leave it open.
        with open(folder / messages.MEMORY_FILE, "rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        described = json.loads(str(arrays.pop("described")))
        version = described["format"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise base.ReplayError(
            f"The checkpoint '{folder}' is damaged: {error}. Restore an older one."
        ) from error
    if version != _FORMAT:
        raise base.ReplayError(
            f"The checkpoint '{folder}' must have format {_FORMAT}, got {version}. Restore it with the "
            "version of this library that wrote it."
        )
    found = {name: table["settings"] for name, table in described["tables"].items()}
    messages.check_checkpoint(folder, found, map(messages.describe, configs))
    if sorted(described["stores"]) != sorted(tables.stores):
        raise base.ReplayError(
            f"The checkpoint '{folder}' must hold rows of the columns {sorted(tables.stores)}, but holds "
            f"{sorted(described['stores'])}."
        )

    def part(prefix: str) -> dict[str, np.ndarray]:
        return {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}

    for key, store in tables.stores.items():
        store.restore(part(f"rows/{key}/"))
    for name, table in tables.tables.items():
        table.restore(described["tables"][name]["numbers"], part(f"items/{name}/"))
    for store in tables.stores.values():
        store.free_unheld()


def _dump(tables: Tables) -> dict[str, np.ndarray]:
    described: dict[str, Any] = {"format": _FORMAT, "tables": {}, "stores": list(tables.stores)}
    arrays: dict[str, np.ndarray] = {}
    for key, store in tables.stores.items():
        arrays |= {f"rows/{key}/{name}": array for name, array in store.save().items()}
    for name, table in tables.tables.items():
        numbers, items = table.save()
        described["tables"][name] = {"settings": table.description().settings(), "numbers": numbers}
        arrays |= {f"items/{name}/{field}": array for field, array in items.items()}
    return arrays | {"described": np.array(json.dumps(described))}
