"""What adders have in common: one episode at a time, a writer made when it is first needed."""

import abc

import dm_env

from minerva_acme import core, types
from minerva_acme.replay import base as replay


class EpisodeAdder(core.Adder):
    """Keeps the order of calls; subclasses say what is written at each of them."""

    def __init__(self, *, client: replay.ReplayClient, table: str, max_window: int, priority: float) -> None:
        if not 0.0 <= priority < float("inf"):
            raise ValueError(f"`priority` must be finite and >= 0, got {priority}.")
        self._client = client
        self._table = table
        self._max_window = max_window
        self._priority = priority
        self._writer: replay.Writer | None = None
        self._num_inserted = 0
        self._is_open = False
        self._is_closed = False

    @property
    def num_inserted(self) -> int:
        return self._num_inserted

    def add_first(self, timestep: dm_env.TimeStep) -> None:
        if self._is_closed:
            raise ValueError("The adder is closed. Make a new one.")
        if not timestep.first():
            raise ValueError(
                f"`timestep` must be FIRST, got {timestep.step_type.name}. Begin an episode with what the "
                "environment's `reset` returns."
            )
        if self._is_open:
            raise ValueError(
                "An episode is still open. `add` its LAST timestep, or `reset` to end it where it stands."
            )
        if self._writer is None:
            self._writer = self._client.writer(self._max_window)
        self._write_first(self._writer, timestep)
        self._is_open = True

    def add(
        self,
        action: types.NestedArray,
        next_timestep: dm_env.TimeStep,
        extras: types.NestedArray = (),
    ) -> None:
        if not self._is_open or self._writer is None:
            raise ValueError("No episode is open. Call `add_first` with a FIRST timestep before `add`.")
        if next_timestep.first():
            raise ValueError(
                "`next_timestep` must be MID or LAST, got FIRST. Hand the first of an episode to `add_first`."
            )
        self._write_step(self._writer, action, next_timestep, extras)
        if next_timestep.last():
            self.reset()

    def flush(self) -> None:
        if self._writer is not None:
            self._writer.flush()

    def reset(self) -> None:
        if self._is_open and self._writer is not None:
            self._write_end(self._writer)
            self._writer.end_episode()
            self._is_open = False

    def close(self) -> None:
        self._is_closed = True
        if self._writer is None:
            return
        try:
            self.reset()
            self._writer.flush()
        finally:
            self._writer.close()
            self._writer, self._is_open = None, False

    def _create_item(self, writer: replay.Writer, fields: dict[str, replay.Window]) -> None:
        # Counted first: an item that the writer had to give up waiting for is sent later.
        self._num_inserted += 1
        writer.create_item(self._table, self._priority, fields)

    @abc.abstractmethod
    def _write_first(self, writer: replay.Writer, timestep: dm_env.TimeStep) -> None:
        """Begins an episode, or raises and changes nothing."""

    @abc.abstractmethod
    def _write_step(
        self,
        writer: replay.Writer,
        action: types.NestedArray,
        next_timestep: dm_env.TimeStep,
        extras: types.NestedArray,
    ) -> None:
        """Writes a step and the items that it completes, or raises and changes nothing."""

    @abc.abstractmethod
    def _write_end(self, writer: replay.Writer) -> None:
        """Writes the items that end with the episode; called again if it raised."""
