"""Sampling from tables in memory."""

import collections
import logging
import time
from typing import Any, NamedTuple

import numpy as np

from minerva_acme.replay import base, messages
from minerva_acme.replay.memory.state import State

_logger = logging.getLogger(__name__)

_ASK_SECONDS = 2.0  # a shorter wait is not worth a line in the log


class _Piece(NamedTuple):
    """A part of a batch."""

    info: base.SampleInfo
    fields: dict[str, Any]  # [n, length, *row shape]
    lengths: dict[str, np.ndarray]  # of the variable fields: [n]


class MemorySampler(base.Sampler):
    """Takes items from one table, in the caller's thread and no more than asked for."""

    def __init__(self, state: State, table: str, report_seconds: float = 10.0) -> None:
        """See `MemoryClient.sampler`. Raises: ReplayError: there is no such table."""
        self._state = state
        with state.lock:
            self._table = state.table(table)
        self._report_seconds = report_seconds
        self._is_closed = False
        # What came before a timeout; the table has given it away.
        self._pieces: collections.deque[_Piece] = collections.deque()

    @property
    def prefetch(self) -> int:
        return 0

    def sample_batch(
        self, batch_size: int, timeout_seconds: float | None = None
    ) -> tuple[base.SampleInfo, dict[str, Any]]:
        if batch_size < 1:
            raise ValueError(f"`batch_size` must be >= 1 item, got {batch_size}.")
        with self._state.lock:
            self._check_open()
            if not self._pieces:
                piece = self._sample(batch_size)
                if piece is not None and len(piece.info.key) == batch_size:
                    return piece.info, piece.fields
                if piece is not None:
                    self._pieces.append(piece)
            self._collect(batch_size, timeout_seconds)
            return self._join(batch_size)

    def close(self) -> None:
        with self._state.lock:
            self._is_closed = True
            self._state.changed.notify_all()

    def _check_open(self) -> None:
        if self._is_closed:
            raise base.ReplayError(messages.sampler_closed(self._table.config.name))
        self._state.check_open()

    def _sample(self, wanted: int) -> _Piece | None:
        """Takes what the table gives now, up to `wanted` items."""
        table = self._table
        drawn = table.draw(wanted)
        if drawn is None:
            return None
        fields, long = {}, {}
        for field, starts, lengths in zip(table.fields, drawn.starts, drawn.lengths, strict=True):
            length = field.length if lengths is None else int(lengths.max())
            fields[field.name] = field.store.gather(starts, length, lengths)
            if lengths is not None:
                long[field.name] = lengths
        self._state.draw_done(table)
        return _Piece(drawn.info, fields, long)

    def _collect(self, batch_size: int, timeout_seconds: float | None) -> None:
        """Waits until the pieces are enough for a batch."""
        start = time.monotonic()
        deadline = None if timeout_seconds is None else start + timeout_seconds
        reported = start - self._report_seconds + _ASK_SECONDS
        while (num_taken := sum(len(piece.info.key) for piece in self._pieces)) < batch_size:
            piece = self._sample(batch_size - num_taken)
            if piece is not None:
                self._pieces.append(piece)
                continue
            self._state.wait(lambda: self._is_done_waiting(), deadline)
            self._check_open()
            now = time.monotonic()
            if self._table.samples_allowed(1):
                continue
            reason = messages.sampling_waits(self._table.description(), batch_size, num_taken)
            if deadline is not None and now >= deadline:
                raise base.ReplayTimeout(reason)
            if now - reported >= self._report_seconds:
                reported = now
                _logger.info("%s", reason)

    def _is_done_waiting(self) -> bool:
        return self._is_closed or self._state.is_closed or self._table.samples_allowed(1) > 0

    def _join(self, batch_size: int) -> tuple[base.SampleInfo, dict[str, Any]]:
        """Makes one batch of the first pieces and keeps the rest."""
        taken: list[_Piece] = []
        missing = batch_size
        while missing:
            piece = self._pieces.popleft()
            size = len(piece.info.key)
            if size > missing:
                self._pieces.appendleft(_cut(piece, missing, size))
                piece = _cut(piece, 0, missing)
            taken.append(piece)
            missing -= len(piece.info.key)
        info = base.SampleInfo(*map(np.concatenate, zip(*(piece.info for piece in taken), strict=True)))
        fields = {}
        for field in self._table.fields:
            parts = [piece.fields[field.name] for piece in taken]
            length = field.length
            if field.variable:
                length = max(int(piece.lengths[field.name].max()) for piece in taken)
            batch = fields[field.name] = field.store.batch(batch_size, length)
            start = 0
            for part in parts:
                stop, end = start + len(part), min(length, part.shape[1])
                batch[start:stop, :end] = part[:, :end]
                start = stop
        return info, fields


def _cut(piece: _Piece, start: int, stop: int) -> _Piece:
    """Some of a piece's items."""
    return _Piece(
        base.SampleInfo(*(array[start:stop] for array in piece.info)),
        {name: field[start:stop] for name, field in piece.fields.items()},
        {name: lengths[start:stop] for name, lengths in piece.lengths.items()},
    )
