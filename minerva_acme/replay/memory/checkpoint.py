"""Checkpoints of replay in memory: one file of numpy arrays, with a description in JSON."""

import json
import math
import os
import pathlib
import shutil
import time
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from minerva_acme.machine import reading, writing
from minerva_acme.replay import base, messages
from minerva_acme.replay.memory.table import Tables

_FORMAT = 3


class Checkpoints:
    """The checkpoints of one server, of which only the newest is kept."""

    def __init__(self, directory: str | None) -> None:
        """Initialises the checkpoints.

        Args:
            directory: The folder for checkpoints, in a subfolder for this server; None for no checkpoints.
        """
        self._folder = directory and pathlib.Path(directory).resolve() / f"server-{time.time_ns()}"
        self._newest: pathlib.Path | None = None

    def save(self, tables: Tables) -> str:
        """Writes a checkpoint and returns its folder, which is written completely or not at all.

        Raises:
            ReplayError: There is no folder for checkpoints, or it cannot be written to.
        """
        if not self._folder:
            raise base.ReplayError(messages.no_checkpoint(messages.IN_MEMORY, messages.NO_DIRECTORY))
        folder = pathlib.Path(self._folder)
        final = folder / str(time.time_ns())
        unfinished = folder / f".unfinished-{final.name}"
        try:
            unfinished.mkdir(parents=True)
            with writing.Output(unfinished / messages.MEMORY_FILE) as file:
                np.savez(file, **_dump(tables))
            unfinished.rename(final)
        except OSError as error:
            shutil.rmtree(unfinished, ignore_errors=True)
            reason = f"{writing.cannot_write(final, error)}. Free some space or check the permissions there"
            raise base.ReplayError(messages.no_checkpoint(messages.IN_MEMORY, reason)) from error
        if self._newest is not None:
            shutil.rmtree(self._newest, ignore_errors=True)  # It may have been moved.
        self._newest = final
        return str(final)


def load(tables: Tables, path: str | os.PathLike[str], configs: Sequence[base.TableConfig]) -> None:
    """Fills new tables with the contents of a checkpoint.

    The file need not be trusted: nothing in it is executed, nothing larger than the file is allocated, and
    every number that refers to a place is checked.

    Raises:
        ReplayError: The checkpoint is missing, damaged, of another format or backend, or of other tables.
    """
    folder = pathlib.Path(path).resolve()
    messages.check_finished(folder, "memory")
    with messages.explain_damage(folder):
        arrays = _read(folder / messages.MEMORY_FILE)
        described = reading.json_text(str(arrays.pop("described")))
        version = float(described["format"])
    if version != _FORMAT:
        age = "a newer" if version > _FORMAT else "an older"
        raise base.ReplayError(
            f"The checkpoint '{folder}' must have format {_FORMAT}, got {version:g}: {age} version of this "
            "library wrote it. Restore it with that version."
        )
    with messages.explain_damage(folder):
        found = {name: dict(table["settings"]) for name, table in described["tables"].items()}
        numbers = {name: dict(table["numbers"]) for name, table in described["tables"].items()}
        stores = list(described["stores"])
    messages.check_checkpoint(folder, found, map(messages.describe, configs))
    if sorted(stores) != sorted(tables.stores):
        raise base.ReplayMismatch(
            f"The checkpoint '{folder}' must hold rows of the columns {sorted(tables.stores)}, but holds "
            f"{sorted(stores)}."
        )

    def part(prefix: str) -> dict[str, np.ndarray]:
        return {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}

    with messages.explain_damage(folder):
        for index, key in enumerate(stores):
            tables.stores[key].restore(part(f"rows/{index}/"))
        for index, name in enumerate(found):
            tables.tables[name].restore(numbers[name], part(f"items/{index}/"))
        for store in tables.stores.values():
            store.free_unheld()


def _read(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Reads the arrays of a file, after a check that their headers match the file.

    Raises:
        Exception: The file is damaged; the error may be of many types.
    """
    with reading.open_file(path) as file, zipfile.ZipFile(file) as archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        # The arrays are not compressed, so they take no more memory than the file takes on the disk.
        if sum(info.file_size for info in members.values()) > path.stat().st_size:
            raise ValueError("its arrays are larger than the file")
        return {name: _read_array(archive, name, info) for name, info in members.items()}


def _read_array(archive: zipfile.ZipFile, name: str, info: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(info) as member:
        np.lib.format.read_magic(member)
        shape, _, dtype = np.lib.format.read_array_header_1_0(member)
        num_bytes, found = math.prod(shape) * dtype.itemsize, info.file_size - member.tell()
        if dtype.hasobject:
            raise ValueError(f"'{name}' must hold numbers or text, got Python objects")
        if num_bytes != found:
            raise ValueError(f"'{name}' must be {num_bytes} bytes as its header says, got {found}")
    with archive.open(info) as member:
        array: np.ndarray = np.lib.format.read_array(member, allow_pickle=False)
        return array


def _dump(tables: Tables) -> dict[str, np.ndarray]:
    described: dict[str, Any] = {"format": _FORMAT, "tables": {}, "stores": list(tables.stores)}
    arrays: dict[str, np.ndarray] = {}
    # By number: the name of one table may be the beginning of another's.
    for index, store in enumerate(tables.stores.values()):
        arrays |= {f"rows/{index}/{name}": array for name, array in store.save().items()}
    for index, (name, table) in enumerate(tables.tables.items()):
        numbers, items = table.save()
        described["tables"][name] = {"settings": table.description().settings(), "numbers": numbers}
        arrays |= {f"items/{index}/{field}": array for field, array in items.items()}
    return arrays | {"described": np.array(json.dumps(described))}
