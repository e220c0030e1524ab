"""The one place where HDF5 files are opened. To read one takes no more memory than it has bytes, and some.

A file may say of itself what it does not hold: an array of terabytes without a byte of data, data that
unpacks to a thousand times its size, data in another file, a group that contains itself. So the declared
bytes of all that is read are counted before anything is read, and only what is in the file itself is taken.
"""

import io
import math
import os
from collections.abc import Iterator, Mapping
from typing import Any, Self, TypeAlias

import numpy as np

from minerva_acme import core
from minerva_acme.machine import memory, reading

Nest: TypeAlias = np.ndarray | Mapping[str, Any]
"""An array, or a dict of nests by name."""

SPARE_BYTES = 10**9
"""How many bytes more than a file has may be read from it by default."""

# HDF5 keeps some 27 kB of each episode that was read, of five nests or more, until its file is closed.
_NESTS_OPEN = 5000


def module() -> Any:
    """Returns h5py.

    Raises:
        ModuleNotFoundError: It is not installed.
    """
    try:
        import h5py
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "Recorded episodes are stored with h5py, which is not installed: pip install "
            "'minerva-acme[datasets]'",
            name="h5py",
        ) from error
    return h5py


class Reader(core.Closeable):
    """Reads nests of arrays from a file, each array as often as it is asked for within the file's budget."""

    def __init__(
        self, file: str | os.PathLike[str] | io.BytesIO, *, spare_bytes: float = SPARE_BYTES
    ) -> None:
        """Opens a file.

        Args:
            file: Its path, or its content.
            spare_bytes: How many bytes more than the file has may be read from it, as from a compressed one.

        Raises:
            OSError: It is no regular file, or no HDF5.
            ModuleNotFoundError: h5py is not installed.
        """
        self._source = file
        if isinstance(file, io.BytesIO):
            self._size = file.getbuffer().nbytes
        else:
            with reading.open_file(file) as opened:
                self._size = os.fstat(opened.fileno()).st_size
        self._most = self._left = self._size + spare_bytes
        self._num_read = 0
        self._file: Any = module().File(file, "r")

    def __enter__(self) -> Self:
        return self

    def close(self) -> None:
        self._file.close()

    def dtype(self, *path: str) -> np.dtype[Any]:
        """Returns the dtype of an array, by the names of the groups and its own.

        Raises:
            KeyError: There is none.
            ValueError: It is not one that `nest` reads.
        """
        found = self._find(path)
        if hasattr(found, "keys"):
            raise ValueError(f"{found.name} must be an array, got a group")
        dtype: np.dtype[Any] = found.dtype
        return dtype

    def names(self, *path: str) -> list[str]:
        """Returns the names in a group.

        Raises:
            KeyError: There is none.
            ValueError: It is no group.
        """
        found = self._find(path)
        if not hasattr(found, "keys"):
            raise ValueError(f"{found.name} must be a group, got an array")
        return list(found)

    def nest(self, *path: str) -> Nest:
        """Reads an array, or a group with all that is in it.

        Raises:
            KeyError: There is none.
            OSError: It cannot be read.
            ValueError: It is larger than the file allows, is not in the file itself, or contains itself.
        """
        if self._num_read >= _NESTS_OPEN and not isinstance(self._source, io.BytesIO):
            self._file.close()
            self._file, self._num_read = module().File(self._source, "r"), 0
        self._num_read += 1
        return self._read(self._find(path), set(), 0)

    def _find(self, path: tuple[str, ...]) -> Any:
        found = self._file
        for name in path:
            found = _member(found, name)
        return found

    def _read(self, stored: Any, seen: set[Any], depth: int) -> Nest:
        info = module().h5o.get_info(stored.id)
        if (where := (info.fileno, info.addr)) in seen or depth == reading.MAX_DEPTH:
            raise ValueError(
                f"{stored.name} must be in one place, and at most {reading.MAX_DEPTH} groups deep, got it "
                "again or deeper"
            )
        seen.add(where)
        if hasattr(stored, "keys"):
            return {name: self._read(_member(stored, name), seen, depth + 1) for name in stored}
        num_bytes = math.prod(stored.shape) * stored.dtype.itemsize
        self._take(num_bytes, stored.name)
        if stored.dtype.kind != "O":
            array: np.ndarray = stored[()]
            return array
        return self._read_text(stored)

    def _read_text(self, stored: Any) -> np.ndarray:
        """Reads text of different lengths, each of which may be much longer than what declares it."""

        def rows() -> Iterator[Any]:
            for row in np.ndindex(stored.shape):
                text = stored[row]
                self._take(len(text), stored.name)
                yield text

        texts = np.empty(math.prod(stored.shape), object)
        for index, text in enumerate(rows()):
            texts[index] = text
        return texts.reshape(stored.shape)

    def _take(self, num_bytes: int, name: str) -> None:
        """Counts bytes that are about to be read.

        Raises:
            ValueError: They are more than the file allows.
        """
        self._left -= num_bytes
        if self._left < 0:
            size, most, declared = map(memory.describe, (self._size, self._most, num_bytes))
            raise ValueError(
                f"it has {size}, of which at most {most} may be unpacked, got {declared} more in {name}. If "
                "you trust it and they fit into memory, allow more: --max-unpacked-gigabytes N "
                "(`max_unpacked_gigabytes`)"
            )


def _member(group: Any, name: str) -> Any:
    """Returns what a group holds itself under a name.

    Raises:
        KeyError: There is nothing.
        ValueError: It is a link, or an array whose data is elsewhere or missing.
    """
    h5py = module()
    if "/" in name or name in ("", "."):
        raise ValueError(f"{group.name} must hold names without '/', got {name!r}")
    if not hasattr(group, "keys"):
        raise ValueError(f"{group.name} must be a group, got an array")
    link = group.get(name, getlink=True)
    if not isinstance(link, h5py.HardLink):
        raise ValueError(f"'{name}' in {group.name} must be in the file itself, got a link")
    found = group[name]
    if isinstance(found, h5py.Group):
        return found
    if not isinstance(found, h5py.Dataset) or found.shape is None:
        raise ValueError(f"{found.name} must be an array or a group, got neither")
    if found.dtype.kind == "O" and h5py.check_string_dtype(found.dtype) is None:
        raise ValueError(f"{found.name} must hold numbers or text, got {found.dtype}")
    created = found.id.get_create_plist()
    if created.get_external_count() or created.get_layout() == h5py.h5d.VIRTUAL:
        raise ValueError(f"the data of {found.name} must be in the file itself, got another file")
    num_bytes, stored = math.prod(found.shape) * found.dtype.itemsize, found.id.get_storage_size()
    if stored < num_bytes and (not created.get_nfilters() or not stored):
        raise ValueError(f"{found.name} must hold its {num_bytes:,} bytes, got {stored:,}")
    return found
