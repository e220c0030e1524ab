"""Loggers made of loggers."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from minerva_acme.loggers import base


class Dispatcher(base.Logger):
    """Hands each row to several loggers. One that fails takes the row from none of the others."""

    def __init__(self, loggers: Sequence[base.Logger]) -> None:
        """Args: loggers: owned from here on."""
        self._loggers = tuple(loggers)

    def write(self, values: Mapping[str, Any]) -> None:
        """Writes one row to every logger, then raises what they raised; several errors as a group."""
        row = base.to_plain(values)
        self._for_each(lambda logger: logger.write(row), "writing a row")

    def close(self) -> None:
        """Closes every logger, then raises what they raised."""
        self._for_each(lambda logger: logger.close(), "closing")

    def _for_each(self, do: Callable[[base.Logger], None], doing: str) -> None:
        errors = []
        for logger in self._loggers:
            try:
                do(logger)
            except Exception as error:
                errors.append(error)
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise ExceptionGroup(f"{len(errors)} loggers failed {doing}", errors)


class TimeFilter(base.Logger):
    """Hands on at most one row in a while. The last row is always written: at the latest by `close`."""

    def __init__(self, logger: base.Logger, seconds: float) -> None:
        """Args: logger: owned from here on. seconds: at least so long between rows, >= 0."""
        if not seconds >= 0:
            raise ValueError(f"`seconds` must be >= 0, got {seconds}.")
        self._logger = logger
        self._seconds = seconds
        self._written_at = -float("inf")
        self._held_back: dict[str, Any] | None = None

    def write(self, values: Mapping[str, Any]) -> None:
        # Not read out yet: most rows are dropped, and reading from a GPU waits for it.
        self._held_back = dict(values)
        if time.monotonic() - self._written_at >= self._seconds:
            self._write_held_back()

    def close(self) -> None:
        try:
            self._write_held_back()
        finally:
            self._logger.close()

    def _write_held_back(self) -> None:
        row, self._held_back = self._held_back, None
        if row is not None:
            self._written_at = time.monotonic()
            self._logger.write(row)
