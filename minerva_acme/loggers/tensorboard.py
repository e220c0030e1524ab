"""Rows as TensorBoard events."""

import itertools
import os
import pathlib
import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any

from minerva_acme.loggers import base

_file_numbers = itertools.count()


class TensorBoardLogger(base.Logger):
    """Writes the numbers of each row as scalars of the TensorBoard run `<directory>/<label>`.

    Events are written in TensorBoard's own format without its writer, which would import TensorFlow
    (seconds, hundreds of megabytes) and hold rows back for minutes: here a row is with the operating
    system when `write` returns. The first row of a continued run hides what an earlier process wrote
    at the same step or later. Strings are left to other loggers.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        label: str,
        steps_key: str,
        group: str | None = None,
    ) -> None:
        """Makes an event file.

        Args:
            directory: what `tensorboard --logdir` is given.
            label: the run within it.
            steps_key: the value of each row that it is drawn against.
            group: begins the names that have no group of their own: `return` becomes `<group>/return`.
        """
        from tensorboard.compat.proto import event_pb2, summary_pb2

        self._events: Any = event_pb2
        self._summaries: Any = summary_pb2
        self._steps_key = steps_key
        self._group = group
        self._events_file = _EventFile(pathlib.Path(directory) / label)
        self.path = self._events_file.path
        self._is_first = True

    def write(self, values: Mapping[str, Any]) -> None:
        row = base.to_plain(values)
        if self._events_file.is_closed:
            raise ValueError(f"The logger of {self.path} is closed.")
        if self._steps_key not in row:
            raise ValueError(
                f"A row for TensorBoard must hold `{self._steps_key}`, its `steps_key`, got {sorted(row)}."
            )
        step = int(row[self._steps_key])
        if self._is_first:
            start = self._events.SessionLog(status=self._events.SessionLog.START)
            self._events_file.write(step=step, session_log=start)
            self._is_first = False
        scalars = [
            self._summaries.Summary.Value(tag=self._tag(name), simple_value=value)
            for name, value in row.items()
            if not isinstance(value, str)
        ]
        self._events_file.write(step=step, summary=self._summaries.Summary(value=scalars))

    def close(self) -> None:
        self._events_file.close()

    def _tag(self, name: str) -> str:
        return name if self._group is None or "/" in name else f"{self._group}/{name}"


def write_description(directory: str | os.PathLike[str], description: Mapping[str, Any]) -> None:
    """Writes what a run is, such as its hyperparameters, as a table for TensorBoard's TEXT page.

    Args:
        directory: what `tensorboard --logdir` is given; the table is its run `description`.
        description: values by name; a mapping within it gives names like `outer.inner`.
    """
    from tensorboard.compat.proto import summary_pb2, tensor_pb2, types_pb2

    summaries: Any = summary_pb2
    rows = [f"| {name} | {value} |" for name, value in _flat(description)]
    text = "\n".join(["| name | value |", "|---|---|", *rows])
    value = summaries.Summary.Value(
        tag="description",
        metadata=summaries.SummaryMetadata(
            plugin_data=summaries.SummaryMetadata.PluginData(plugin_name="text")
        ),
        tensor=tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=[text.encode()]),
    )
    file = _EventFile(pathlib.Path(directory) / "description")
    file.write(step=0, summary=summaries.Summary(value=[value]))
    file.close()


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


class _EventFile:
    """Events of a TensorBoard run, each with the operating system when `write` returns."""

    def __init__(self, folder: pathlib.Path) -> None:
        from tensorboard.compat.proto import event_pb2
        from tensorboard.summary.writer import record_writer

        self._events: Any = event_pb2
        folder.mkdir(parents=True, exist_ok=True)
        # TensorBoard reads the files of a run in the order of their names: the time has to come first.
        place = f"{socket.gethostname()}.{os.getpid()}.{next(_file_numbers)}"
        self.path = folder / f"events.out.tfevents.{time.time():.6f}.{place}"
        self._file = open(self.path, "xb")  # noqa: SIM115 -- held until `close`
        self._records = record_writer.RecordWriter(self._file)
        self.write(file_version="brain.Event:2")

    @property
    def is_closed(self) -> bool:
        return self._file.closed

    def write(self, **fields: Any) -> None:
        event = self._events.Event(wall_time=time.time(), **fields)
        self._records.write(event.SerializeToString())
        self._file.flush()

    def close(self) -> None:
        self._file.close()
