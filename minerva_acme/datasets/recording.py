"""Recording episodes while they are played."""

import io
import logging
import os
import struct
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import dm_env

from minerva_acme import core, specs, types
from minerva_acme.datasets import episodes as episode_forms
from minerva_acme.datasets import minari
from minerva_acme.machine import reading, writing
from minerva_acme.replay import base as replay
from minerva_acme.wrappers import leafwise

_logger = logging.getLogger(__name__)

_LENGTH = struct.Struct("<Q")  # before each episode


class RecordingAdder(core.Adder):
    """Hands each episode on when it has ended; with an inner adder, writes what that writes too.

        FIRST  MID  MID  LAST        one `Episode` of 3 steps, terminated if the discount of LAST is 0
        FIRST  MID  MID  reset       one of 2 steps, which was cut off, as by a time limit
        FIRST  MID  MID  FIRST       the same, and a new episode begins

    An episode without a step is none. The state is the inner adder's.
    """

    def __init__(
        self, record: Callable[[episode_forms.Episode], None], adder: core.Adder | None = None
    ) -> None:
        """Takes ownership of the adder: closing this adder closes it.

        Args:
            record: Called with each episode.
            adder: The adder to write with, or None for none.
        """
        self._record = record
        self._adder = adder
        self._steps: list[Any] = []  # (action, timestep, extras); the first has only a timestep

    def __getattr__(self, name: str) -> Any:
        # `save` and `restore`, if the inner adder has them. Private names are looked up before it is set.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._adder, name)

    @property
    def num_inserted(self) -> int:
        return 0 if self._adder is None else self._adder.num_inserted

    def add_first(self, timestep: dm_env.TimeStep) -> None:
        if self._adder is not None:
            self._adder.add_first(timestep)
        self._end()
        self._steps = [leafwise.copy((None, timestep))]

    def add(
        self,
        action: types.NestedArray,
        next_timestep: dm_env.TimeStep,
        extras: types.NestedArray = (),
    ) -> None:
        """Adds one transition.

        Raises:
            ValueError: The inner adder refuses it, or its discount cannot be recorded.
        """
        episode_forms.check_discount(next_timestep)
        # In new memory, since some environments write each observation into the same array.
        step = leafwise.copy((action, next_timestep, extras))
        try:
            if self._adder is not None:
                self._adder.add(action, next_timestep, extras)
        except replay.ReplayTimeout:  # The step is added, and its item is sent later.
            self._steps.append(step)
            raise
        self._steps.append(step)
        if next_timestep.last():
            self._end()

    def flush(self) -> None:
        if self._adder is not None:
            self._adder.flush()

    def reset(self) -> None:
        if self._adder is not None:
            self._adder.reset()
        self._end()

    def close(self) -> None:
        if self._adder is not None:
            self._adder.close()
        self._end()

    def _end(self) -> None:
        steps, self._steps = self._steps, []
        if len(steps) > 1:
            try:
                self._record(episode_forms.as_episode(steps))
            except OSError:  # `reset` or `close` tries again, as when the run is saved after the error
                self._steps = steps
                raise


class Recorder(core.Closeable, core.Saveable):
    """Collects the episodes of a run, which may be stopped and resumed, and writes them when it has ended.

    Until then they are in one file that is only appended to. The state is where in the file they are. A run
    that is resumed from a checkpoint continues after the episodes of that checkpoint, so that a recording
    holds each step of the run once. What was recorded since then stays in the file, for later checkpoints.
    The file stays too, so that the run can be made longer.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        log: str | os.PathLike[str],
        spec: specs.EnvironmentSpec,
        settings: Mapping[str, Any],
    ) -> None:
        """Begins or continues a recording.

        Args:
            path: The dataset's folder, to be made by `finish`.
            log: The file for the episodes until then.
            spec: The specs of the environment.
            settings: As for `minari.Writer`.

        Raises:
            ValueError: The dataset cannot hold such an environment's episodes, or the settings.
        """
        minari.check_spec(spec, settings)
        self._path = path
        self._spec = spec
        self._settings = settings
        self._log = writing.Appended(log)
        self._earlier: list[tuple[int, int]] = []  # the bytes from and to which earlier processes recorded
        self._start = self._num_bytes()
        self._is_due = True

    def record(self, episode: episode_forms.Episode) -> None:
        """Appends an episode.

        Raises:
            SpecError: It has numbers that are not finite or actions out of bounds.
            OSError: It could not be written, and the file is unchanged.
        """
        image = minari.to_bytes(episode_forms.conform(episode, self._spec))
        self._log.write(_LENGTH.pack(len(image)) + image)

    def save(self) -> core.State:
        """Returns where the episodes are, once they are on the disk.

        Raises:
            OSError: They could not be written.
        """
        self._log.sync()
        return {"spans": self._spans()}

    def restore(self, state: core.State) -> None:
        """Continues after the episodes of a checkpoint; with None, records from here on.

        Raises:
            ValueError: Episodes are missing.
        """
        if state is None:
            _logger.warning("the checkpoint was made without recording: only new episodes are recorded")
        spans = [(int(start), int(end)) for start, end in (state or {"spans": []})["spans"]]
        found, expected = self._num_bytes(), max((end for _, end in spans), default=0)
        if found < expected:
            raise ValueError(
                f"{self._log.path} must hold the {expected:,} bytes that were recorded until the checkpoint, "
                f"got {found:,}. Put the file back, or record no more: `record=None`, --record none."
            )
        # The last span continues if nothing was recorded after it.
        self._start = spans.pop()[0] if spans and spans[-1][1] == found else found
        self._earlier = spans

    def begin(self, goes_on: bool) -> None:
        """Begins to record, and makes the folder that the dataset's folder will be in.

        Args:
            goes_on: Whether the run has steps to make.

        Raises:
            ValueError: The dataset's folder exists, and the run goes on.
            OSError: The dataset's folder cannot be made.
        """
        self._is_due = goes_on or not os.path.lexists(self._path)
        if not self._is_due:
            return
        parent = minari.check_free(self._path).parent
        minari.warn_of_name(self._path)
        with writing.explain(self._path):
            parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=parent, prefix=".record-"):
                pass

    def finish(self) -> None:
        """Writes the dataset, unless an earlier process has and nothing was played since.

        Without an episode there is none, which is logged as a warning.

        Raises:
            OSError: It could not be written.
            ValueError: The folder exists.
        """
        if not self._is_due:
            return
        if all(start == end for start, end in self._spans()):
            _logger.warning("no episode was recorded, so that %s is not made", self._path)
            return
        _logger.info("writing the recorded episodes to %s", self._path)
        try:
            minari.write(self._path, self._episodes(), self._spec, settings=self._settings)
        except (OSError, ValueError) as error:
            kind = OSError if isinstance(error, OSError) else ValueError
            raise kind(
                f"{error} The episodes are kept in {self._log.path}: repeat the same command, with another "
                "`record` if need be."
            ) from error

    def _spans(self) -> list[tuple[int, int]]:
        """Returns the bytes from and to which the file holds the recording, in order."""
        return [*self._earlier, (self._start, self._num_bytes())]

    def _num_bytes(self) -> int:
        return self._log.path.stat().st_size

    def _episodes(self) -> Iterator[episode_forms.Episode]:
        with reading.open_file(self._log.path) as file:
            for start, end in self._spans():
                file.seek(start)
                while file.tell() < end:
                    (size,) = _LENGTH.unpack(file.read(_LENGTH.size))
                    yield minari.from_bytes(io.BytesIO(file.read(size)))

    def close(self) -> None:
        self._log.close()
