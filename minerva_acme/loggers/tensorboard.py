"""Rows as TensorBoard events."""

import io
import itertools
import os
import pathlib
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, Self

import numpy as np

from minerva_acme.loggers import base
from minerva_acme.machine import reading, writing

_file_numbers = itertools.count()
_GIF_SIZE_AT = 6  # bytes from the start of a gif
_RGB = 3  # TensorBoard's number for this colour space
_FILES = "events.out.tfevents"
_HEADER, _FOOTER_SIZE = struct.Struct("<QI"), 4  # of a record: its length and checksum, and a checksum


class TensorBoardLogger(base.Logger):
    """Writes the numbers of each row as scalars of the TensorBoard run `<directory>/<label>`.

    Events are written in TensorBoard's own format, but not with its writer, which would import TensorFlow
    (seconds, hundreds of megabytes) and hold rows back for minutes: here the operating system has a row
    when `write` returns. The first row of a continued run hides everything that an earlier process wrote
    at the same step or later; `purge` does so before the first row. Strings are not logged.

    Hyperparameters are written to the same run, for TensorBoard's HPARAMS page: each row of its table has
    the hyperparameters of one run and the last value of each number logged here, to compare runs. The
    table's columns are left to TensorBoard, which uses those of all runs together; if they were written, as
    by torch's `add_hparams`, they would be those of one run and hide additional columns of other runs.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        label: str,
        steps_key: str,
        group: str | None = None,
        hyperparameters: Mapping[str, Any] | None = None,
        run: "TensorBoardRun | None" = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Makes an event file, or shares the file of a run.

        Args:
            directory: The folder that `tensorboard --logdir` is given.
            label: The name of the run within the folder.
            steps_key: The name of the value in each row that is its step.
            group: The group of names without one: `return` becomes `<group>/return`.
            hyperparameters: The hyperparameters that distinguish this run from others, written with the
                first row; values other than numbers and strings are shown as text. TensorBoard shows the
                first ones that it reads, so values that may change when the run is resumed do not belong
                here.
            run: The run whose file is used, instead of `<directory>/<label>`. Its owner purges it; a row
                without `steps_key` gets the step of the run's newest row.
            tags: The tags of names that have neither their own group nor `group`.
        """
        self._steps_key = steps_key
        self._group = group
        self._tags = dict(tags or {})
        self._hyperparameters = dict(hyperparameters or {})
        self._run = run
        self._file = _EventFile(pathlib.Path(directory) / label) if run is None else run.file
        self.path = self._file.path
        self._has_purged = run is not None
        self._has_session = False

    def write(self, values: Mapping[str, Any]) -> None:
        row = base.to_plain(values)
        if self._steps_key not in row and self._run is None:
            raise ValueError(
                f"A row for TensorBoard must have its `steps_key`, `{self._steps_key}`, got {sorted(row)}."
            )
        step = int(row.get(self._steps_key, self._file.newest_step))
        self._begin(step)
        numbers = {name: value for name, value in row.items() if not isinstance(value, str)}
        self._file.write_values(
            step, *({"tag": self._tag(name), "simple_value": value} for name, value in numbers.items())
        )

    def write_film(self, name: str, gif: bytes, *, step: int) -> None:
        """Writes a video, which TensorBoard's IMAGES page plays.

        Args:
            name: The video's name, which gets the logger's group if it has none.
            gif: The bytes of an animated gif.
            step: The step at which it is shown.

        Raises:
            ValueError: `gif` is not a gif, or the logger is closed.
        """
        if not gif.startswith(b"GIF8"):
            raise ValueError(f"`gif` must be the bytes of a gif, got {gif[:4]!r}. `video.Filmer` makes gifs.")
        self._begin(step)
        width, height = struct.unpack_from("<HH", gif, _GIF_SIZE_AT)
        image = {"width": width, "height": height, "colorspace": _RGB, "encoded_image_string": gif}
        self._file.write_values(step, {"tag": self._tag(name), "image": image})

    def purge(self, step: int) -> None:
        """Hides everything that earlier processes wrote at this step or later."""
        self._has_purged = True
        self._file.purge(step)

    def close(self) -> None:
        if self._run is None:
            self._file.close()

    def _begin(self, step: int) -> None:
        if not self._has_purged:
            self.purge(step)
        if self._hyperparameters and not self._has_session:
            # After the purge, which hides everything that was written at this step before.
            self._file.write_values(step, _session(self._hyperparameters))
        self._has_session = True

    def _tag(self, name: str) -> str:
        if name in self._tags:
            return self._tags[name]
        return name if self._group is None or "/" in name else f"{self._group}/{name}"


class TensorBoardRun:
    """A context manager for all events of a training run, as one run of TensorBoard.

    TensorBoard reads the files of a run one after the other, so the loggers of a run share a file. All its
    numbers use the same step count, because a purge, which hides the steps that a continued run repeats,
    applies to that count.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        """Makes an event file. Args: directory: The run's folder, in or below `tensorboard --logdir`."""
        self.file = _EventFile(pathlib.Path(directory))
        """The file to which the loggers write."""

    def cut(self, last: Mapping[str, int], *, step: int) -> None:
        """Removes rows that will be made again from the files of earlier processes.

        A running TensorBoard hides those that it has already read, at steps after `step`.

        Args:
            last: The highest value that is kept, by tag. A row with a higher value of a tag is removed as a
                whole; for a video, its step counts.
            step: The last step that was made.
        """
        for path in sorted(self.file.path.parent.glob(f"{_FILES}*")):
            if path != self.file.path:
                _cut(path, last)
        self.file.purge(step + 1)

    def write_description(self, description: Mapping[str, Any]) -> None:
        """Writes a description of the run, such as its hyperparameters, as a table on the TEXT page.

        Args:
            description: Values by name; the names of a nested mapping become `outer.inner`.
        """
        rows = [f"| {name} | {value} |" for name, value in _flat(description)]
        text = "\n".join(["| name | value |", "|---|---|", *rows])
        table = {
            "tag": "description",
            "metadata": {"plugin_data": {"plugin_name": "text"}},
            "tensor": {"dtype": "DT_STRING", "string_val": [text.encode()]},
        }
        self.file.write_values(0, table)

    def close(self) -> None:
        """Closes the file; its loggers refuse rows from now on."""
        self.file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _cut(path: pathlib.Path, last: Mapping[str, int]) -> None:
    """Rewrites a file without the events in which a tag is above its last value."""
    from google.protobuf import message
    from tensorboard.compat.proto import event_pb2

    def is_kept(record: bytes) -> bool:
        try:
            event: Any = event_pb2.Event.FromString(record[_HEADER.size : -_FOOTER_SIZE])
        except message.DecodeError:  # damaged: TensorBoard stops there with a message
            return True
        return not any(
            value.tag in last and _is_above(last[value.tag], event.step, value)
            for value in event.summary.value
        )

    with reading.open_file(path) as file:
        records = list(_records(file.read()))
    kept = [record for record in records if is_kept(record)]
    if len(kept) < len(records):
        writing.replace(path, kept)


def _is_above(last: int, step: int, value: Any) -> bool:
    """Returns whether a value, of an event at a step, is above the last one: a video's step, or a number.

    Numbers are stored as float32, which is exact up to 2 ** 24. The step is always exact, and is often the
    number.
    """
    if value.HasField("image") or value.simple_value == np.float32(step):
        return step > last
    return bool(value.simple_value > np.float32(last))


def _records(content: bytes) -> Iterator[bytes]:
    """Yields the complete records: the length and its checksum, the data and its checksum."""
    start = 0
    while start + _HEADER.size <= len(content):
        (size, _) = _HEADER.unpack_from(content, start)
        end = start + _HEADER.size + size + _FOOTER_SIZE
        if end > len(content):  # incomplete, after a kill
            return
        yield content[start:end]
        start = end


def _session(hyperparameters: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the value that makes a run a row of the table on the HPARAMS page."""
    from tensorboard.plugins.hparams import metadata, plugin_data_pb2

    info = plugin_data_pb2.SessionStartInfo(start_time_secs=time.time())
    for name, value in _flat(hyperparameters):
        if isinstance(value, bool):  # before int, of which bool is a subclass
            info.hparams[name].bool_value = value
        elif isinstance(value, int | float):
            info.hparams[name].number_value = value
        else:
            info.hparams[name].string_value = str(value)
    data = plugin_data_pb2.HParamsPluginData(session_start_info=info)
    return {
        "tag": metadata.SESSION_START_INFO_TAG,
        "metadata": metadata.create_summary_metadata(data),
        "tensor": metadata.NULL_TENSOR,
    }


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


class _EventFile:
    """A file of events of a TensorBoard run; the operating system has each event when `write` returns."""

    def __init__(self, folder: pathlib.Path) -> None:
        from tensorboard.compat.proto import event_pb2
        from tensorboard.summary.writer import record_writer

        self._events: Any = event_pb2
        with writing.explain(folder):
            folder.mkdir(parents=True, exist_ok=True)
        # TensorBoard reads the files of a run in the order of their names, so the time comes first.
        place = f"{socket.gethostname()}.{os.getpid()}.{next(_file_numbers)}"
        self.path = folder / f"{_FILES}.{time.time():.6f}.{place}"
        self._file = writing.Appended(self.path)
        self._record = io.BytesIO()
        self._records = record_writer.RecordWriter(self._record)
        self._lock = threading.Lock()  # a record is written in parts, by any thread that logs
        self.newest_step = 0
        self.write(file_version="brain.Event:2")

    def write_values(self, step: int, *values: Mapping[str, Any]) -> None:
        """Writes values of a summary, each with the fields of its protocol buffer."""
        self.write(step=step, summary={"value": values})

    def purge(self, step: int) -> None:
        """Hides everything that was written at this step or later, including in this file."""
        self.write(step=step, session_log={"status": "START"})

    def write(self, **fields: Any) -> None:
        event = self._events.Event(wall_time=time.time(), **fields)
        with self._lock:
            if self._file.closed:
                raise ValueError(f"The logger of {self.path} is closed.")
            self._record.seek(0)
            self._record.truncate()
            self._records.write(event.SerializeToString())
            self._file.write(self._record.getvalue())
            self.newest_step = max(self.newest_step, event.step)

    def close(self) -> None:
        self._file.close()
