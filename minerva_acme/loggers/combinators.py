"""Loggers made of loggers."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from minerva_acme.loggers import base, rates, summaries


class Dispatcher(base.Logger):
    """Writes each row to several loggers. If one fails, the others still get the row."""

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
        base.raise_all(errors, f"{len(errors)} loggers failed {doing}")


class NewestRow(base.Logger):
    """Keeps the newest row in `row`."""

    def __init__(self) -> None:
        self.row: base.PlainRow = {}

    def write(self, values: Mapping[str, Any]) -> None:
        self.row = base.to_plain(values)

    def close(self) -> None:
        pass


class _WhenDue(base.Logger):
    """Holds a row back until it is due, or the logger is closed, and then passes it on."""

    def __init__(self, logger: base.Logger, is_due: rates.Rate) -> None:
        self._logger = logger
        self._is_due = is_due
        self._row: dict[str, Any] = {}

    def write(self, values: Mapping[str, Any]) -> None:
        # Not read out yet: most rows are dropped, and reading from a GPU waits for it.
        self._row = dict(values)
        if self._is_due(self._row):
            self._pass_on()

    def close(self) -> None:
        try:
            self._pass_on()
        finally:
            self._logger.close()

    def _pass_on(self) -> None:
        row, self._row = self._row, {}
        if row:
            self._logger.write(row)


class TimeFilter(_WhenDue):
    """Passes on at most one row in a given time. The last row is always written, at the latest by `close`."""

    def __init__(self, logger: base.Logger, seconds: float) -> None:
        """Args: logger: owned from here on. seconds: between rows at least, >= 0."""
        super().__init__(logger, rates.EverySeconds(seconds))


class KeyFilter(base.Logger):
    """Passes on some of each row's values: those named in `keep`, or all but those in `drop`.

    A row of which nothing is left is not passed on. A name in `keep` that a row does not have is left out.
    """

    def __init__(
        self, logger: base.Logger, *, keep: Collection[str] | None = None, drop: Collection[str] | None = None
    ) -> None:
        """Takes the names.

        Args:
            logger: owned from here on.
            keep: names to pass on, in the order of the row; or
            drop: names to leave out.

        Raises:
            ValueError: not exactly one of `keep` and `drop` is given, or a string in its place.
        """
        if (keep is None) == (drop is None):
            raise ValueError(
                f"Exactly one of `keep` and `drop` must be given, got {keep} and {drop}. For both, put one "
                "filter around another."
            )
        names = keep if keep is not None else drop
        if isinstance(names, str):
            raise ValueError(f"The names must be a list, got '{names}': write ['{names}'].")
        self._logger = logger
        self._names, self._keeps = frozenset(names or ()), keep is not None

    def write(self, values: Mapping[str, Any]) -> None:
        row = {name: value for name, value in values.items() if (name in self._names) == self._keeps}
        if row:
            self._logger.write(row)

    def close(self) -> None:
        self._logger.close()


class StepFilter(_WhenDue):
    """Passes on at most one row in a number of steps. The last row is always written, as by `TimeFilter`."""

    def __init__(self, logger: base.Logger, steps_key: str, steps: int) -> None:
        """Passes on nothing yet.

        Args:
            logger: owned from here on.
            steps_key: the value of each row that counts the steps.
            steps: between rows at least, >= 1.
        """
        super().__init__(logger, rates.EverySteps(steps_key, steps))


class Aggregator(_WhenDue):
    """Passes on one row for all rows since the last one, and what is left when it is closed.

        rows in     {"steps": 10, "loss": 1.0}   {"steps": 20, "loss": 3.0}   due now
        row out     {"steps": 20, "loss": 2.0, "loss/min": 1.0, "loss/max": 3.0}

    A number's mean keeps the number's name, so that readers of the log find it where it always is. Of
    counts and strings the last value is kept. The numbers of each row are read out at once, which waits
    for a GPU: put an `AsyncLogger` around it there.
    """

    def __init__(self, logger: base.Logger, *, is_due: rates.Rate, counts: Sequence[str]) -> None:
        """Passes on nothing yet.

        Args:
            logger: owned from here on.
            is_due: when to write: `EverySeconds(..)`, `EverySteps(..)` or a function of your own.
            counts: the names whose last value is kept, such as `steps`.
        """
        super().__init__(logger, is_due)
        self._counts = frozenset(counts)
        self._summary = summaries.Summary()

    def write(self, values: Mapping[str, Any]) -> None:
        row = base.to_plain(values)
        is_due = self._is_due(row)
        self._row |= row
        self._summary.add(
            {name: v for name, v in row.items() if not isinstance(v, str) and name not in self._counts}
        )
        if is_due:
            self._pass_on()

    def _pass_on(self) -> None:
        summary, self._summary = self._summary.result(), summaries.Summary()
        for name, series in summary.items():
            self._row |= {name: series.mean, f"{name}/min": series.min, f"{name}/max": series.max}
        super()._pass_on()
