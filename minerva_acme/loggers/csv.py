"""Rows in a CSV file."""

import csv
import io
import logging
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from minerva_acme.loggers import base

_logger = logging.getLogger(__name__)


class CSVLogger(base.Logger):
    """Appends rows to `<directory>/<label>.csv`; none is lost when the process is killed.

    A row is with the operating system when `write` returns. A file that exists is continued: if a kill
    left half a row at its end, that half is cut off with a warning. A row with new columns widens the
    file, which is replaced as a whole or not at all; cells without a value are empty.
    """

    def __init__(self, directory: str | os.PathLike[str], label: str) -> None:
        """Args: directory: created if missing. label: names the file, which nobody else may write."""
        self.path = pathlib.Path(directory) / f"{label}.csv"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._columns: list[str] = []
        self._file: BinaryIO | None = open(self.path, "ab")  # noqa: SIM115 -- held until `close`
        self._continue()

    def write(self, values: Mapping[str, Any]) -> None:
        row = base.to_plain(values)
        if self._file is None:
            raise ValueError(f"The logger of {self.path} is closed.")
        new = [name for name in row if name not in self._columns]
        if new:
            self._widen(new)
        self._file.write(_encode([row.get(name, "") for name in self._columns]))
        self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _continue(self) -> None:
        assert self._file is not None
        whole = 0
        with open(self.path, "rb") as file:
            for record in _records(file):
                if whole == 0:
                    text = io.StringIO(record.decode(errors="replace"), newline="")
                    try:
                        self._columns = next(csv.reader(text))
                    except csv.Error as error:
                        raise ValueError(
                            f"{self.path} must begin with the names of its columns, but cannot be read: {error}. "
                            "Move it away to begin another."
                        ) from error
                whole += len(record)
            size = file.tell()
        if size > whole:
            _logger.warning("%s ended in half a row; its %d bytes are cut off", self.path, size - whole)
            self._file.truncate(whole)

    def _widen(self, new: Sequence[str]) -> None:
        assert self._file is not None
        columns = self._columns + list(new)
        wider = self.path.with_name(f".{self.path.name}.wider")
        with open(self.path, "rb") as old, open(wider, "wb") as file:
            next(records := _records(old), None)  # the header
            file.write(_encode(columns))
            for record in records:
                file.write(record.rstrip(b"\r\n") + b"," * len(new) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self._file.close()
        try:
            os.replace(wider, self.path)
            self._columns = columns
        finally:
            self._file = open(self.path, "ab")  # noqa: SIM115


def _encode(cells: Iterable[int | float | str]) -> bytes:
    text = io.StringIO()
    # A lone carriage return would not be quoted.
    plain = (cell.replace("\r", "\n") if isinstance(cell, str) else cell for cell in cells)
    csv.writer(text, lineterminator="\n").writerow(plain)
    return text.getvalue().encode()


def _records(file: BinaryIO) -> Iterator[bytes]:
    """Yields the whole records: a line break between quotes belongs to a cell and ends none."""
    record = b""
    for line in file:
        record += line
        if record.endswith(b"\n") and record.count(b'"') % 2 == 0:
            yield record
            record = b""
