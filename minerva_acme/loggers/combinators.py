"""Loggers made of loggers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from minerva_acme.loggers import base, rates, summaries


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


class NewestRow(base.Logger):
    """Keeps the newest row, for who wants to look at it."""

    def __init__(self) -> None:
        self.row: base.PlainRow = {}

    def write(self, values: Mapping[str, Any]) -> None:
        self.row = base.to_plain(values)

    def close(self) -> None:
        pass


class _LastRow(base.Logger):
    """Hands on the rows that are due, and the last one at the latest when it is closed."""

    def __init__(self, logger: base.Logger, is_due: rates.Rate) -> None:
        self._logger = logger
        self._is_due = is_due
        self._held_back: dict[str, Any] | None = None

    def write(self, values: Mapping[str, Any]) -> None:
        # Not read out yet: most rows are dropped, and reading from a GPU waits for it.
        self._held_back = dict(values)
        if self._is_due(self._held_back):
            self._write_held_back()

    def close(self) -> None:
        try:
            self._write_held_back()
        finally:
            self._logger.close()

    def _write_held_back(self) -> None:
        row, self._held_back = self._held_back, None
        if row is not None:
            self._logger.write(row)


class TimeFilter(_LastRow):
    """Hands on at most one row in a while. The last row is always written: at the latest by `close`."""

    def __init__(self, logger: base.Logger, seconds: float) -> None:
        """Args: logger: owned from here on. seconds: at least so long between rows, >= 0."""
        super().__init__(logger, rates.EverySeconds(seconds))


class StepFilter(_LastRow):
    """Hands on at most one row in so many steps. The last row is always written, as by `TimeFilter`."""

    def __init__(self, logger: base.Logger, steps_key: str, steps: int) -> None:
        """Hands on nothing yet.

        Args:
            logger: owned from here on.
            steps_key: the value of each row that counts the steps.
            steps: at least so many between rows, >= 1.
        """
        super().__init__(logger, rates.EverySteps(steps_key, steps))


class Aggregator(base.Logger):
    """Hands on one row for all that came since the last one, and what is left when it is closed.

        rows in     {"steps": 10, "loss": 1.0}   {"steps": 20, "loss": 3.0}   due now
        row out     {"steps": 20, "loss": 2.0, "loss/min": 1.0, "loss/max": 3.0}

    A number's mean goes by its own name, so that who reads the log finds it where it always is. Of
    counts and strings the last is kept. The numbers of each row are read out at once, which waits for
    a GPU: put an `AsyncLogger` around it there.
    """

    def __init__(self, logger: base.Logger, *, is_due: rates.Rate, counts: Sequence[str]) -> None:
        """Hands on nothing yet.

        Args:
            logger: owned from here on.
            is_due: when to write: `EverySeconds(..)`, `EverySteps(..)` or a function of your own.
            counts: the names whose last value is kept, such as `steps`.
        """
        self._logger = logger
        self._is_due = is_due
        self._counts = frozenset(counts)
        self._last: base.PlainRow = {}
        self._summary = summaries.Summary()

    def write(self, values: Mapping[str, Any]) -> None:
        row = base.to_plain(values)
        is_due = self._is_due(row)
        self._last |= row
        self._summary.add(
            {name: v for name, v in row.items() if not isinstance(v, str) and name not in self._counts}
        )
        if is_due:
            self._write_summary()

    def close(self) -> None:
        try:
            self._write_summary()
        finally:
            self._logger.close()

    def _write_summary(self) -> None:
        row, self._last = self._last, {}
        summary, self._summary = self._summary.result(), summaries.Summary()
        for name, series in summary.items():
            row |= {name: series.mean, f"{name}/min": series.min, f"{name}/max": series.max}
        if row:
            self._logger.write(row)
