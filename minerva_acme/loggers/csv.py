"""Rows in a CSV file."""

import csv
import io
import itertools
import logging
import math
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from minerva_acme.loggers import base
from minerva_acme.machine import reading, writing

_logger = logging.getLogger(__name__)


class CSVLogger(base.Logger):
    """Appends rows to `<directory>/<label>.csv`; none is lost when the process is killed.

    When `write` returns, the operating system has the row. An existing file is continued: if a kill left an
    incomplete row at its end, this row is cut off with a warning. A row with new columns widens the file,
    which is replaced as a whole or not at all; cells without a value are empty.
    """

    def __init__(self, directory: str | os.PathLike[str], label: str) -> None:
        """Opens the file.

        Args:
            directory: The folder; created if missing.
            label: The name of the file, which nothing else may write to.

        Raises:
            OSError: The file cannot be written to.
            ValueError: The file is a symbolic link, or does not begin with the names of columns.
        """
        self.path = pathlib.Path(directory) / f"{label}.csv"
        with writing.explain(self.path.parent):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        self._columns: list[str] = []
        self._file: writing.Appended | None = writing.Appended(self.path)
        self._continue()

    def write(self, values: Mapping[str, Any]) -> None:
        row = base.to_plain(values)
        if self._file is None:
            raise ValueError(f"The logger of {self.path} is closed.")
        new = [name for name in row if name not in self._columns]
        if new:
            self._widen(new)
        self._file.write(_encode([row.get(name, "") for name in self._columns]))

    def cut(self, column: str, last: int) -> int:
        """Removes the rows whose number in a column is above `last`, all of them or none.

        The other rows, including those without a number in this column, are unchanged byte for byte.

        Returns:
            The number of removed rows.
        """
        if column not in self._columns:
            return 0
        index = self._columns.index(column)
        with reading.open_file(self.path) as file:
            header, *rows = _records(file)
        kept = [row for row in rows if not _number(row, index) > last]
        if len(kept) < len(rows):
            self._replace([header, *kept])
        return len(rows) - len(kept)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _continue(self) -> None:
        assert self._file is not None
        whole = 0
        with reading.open_file(self.path) as file:
            for record in _records(file):
                if whole == 0:
                    text = io.StringIO(record.decode(errors="replace"), newline="")
                    try:
                        self._columns = next(csv.reader(text))
                    except csv.Error as error:
                        self._file.close()
                        raise ValueError(
                            f"{self.path} must begin with the names of its columns, but cannot be read: "
                            f"{error}. Move it away to start a new file."
                        ) from error
                whole += len(record)
            size = file.tell()
        if size > whole:
            _logger.warning("%s ended in a partial row; its %d bytes are cut off", self.path, size - whole)
            self._file.truncate(whole)

    def _widen(self, new: Sequence[str]) -> None:
        columns = self._columns + list(new)
        with reading.open_file(self.path) as file:
            next(records := _records(file), None)  # the header
            wider = (record.rstrip(b"\r\n") + b"," * len(new) + b"\n" for record in records)
            self._replace(itertools.chain([_encode(columns)], wider))
        self._columns = columns

    def _replace(self, records: Iterable[bytes]) -> None:
        assert self._file is not None
        writing.replace(self.path, records)
        self._file.close()
        self._file = writing.Appended(self.path)


def _encode(cells: Iterable[int | float | str]) -> bytes:
    text = io.StringIO()
    # The csv module does not quote a lone carriage return.
    plain = (cell.replace("\r", "\n") if isinstance(cell, str) else cell for cell in cells)
    csv.writer(text, lineterminator="\n").writerow(plain)
    return text.getvalue().encode()


def _number(record: bytes, index: int) -> float:
    """Returns the number in a cell of a record, or -inf if the cell has none."""
    try:
        return float(next(csv.reader(io.StringIO(record.decode(errors="replace"), newline="")))[index])
    except (csv.Error, IndexError, ValueError):
        return -math.inf


def _records(file: BinaryIO) -> Iterator[bytes]:
    """Yields the complete records; a line break between quotes is part of a cell, not the end of a record."""
    record = b""
    for line in file:
        record += line
        if record.endswith(b"\n") and record.count(b'"') % 2 == 0:
            yield record
            record = b""
