"""Loggers that pass rows to other loggers, or keep them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from minerva_acme.loggers import base, rates


class Dispatcher(base.Logger):
    """Writes each row to several loggers. If one fails, the others still get the row."""

    def __init__(self, loggers: Sequence[base.Logger]) -> None:
        """Args: loggers: The loggers, which this one owns and closes."""
        self._loggers = tuple(loggers)

    def write(self, values: Mapping[str, Any]) -> None:
        """Writes one row to every logger, then raises their errors; several are raised as a group."""
        row = base.to_plain(values)
        self._for_each(lambda logger: logger.write(row), "writing a row")

    def close(self) -> None:
        """Closes every logger, then raises their errors."""
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


class InMemoryLogger(base.Logger):
    """Keeps all rows in `rows`, for notebooks and tests.

    Of a run, one for each label:

        logs = collections.defaultdict(loggers.InMemoryLogger)
        experiments.run_experiment(experiments.ExperimentConfig(..., logger_factory=logs.__getitem__))
        logs["evaluator"].rows[-1]["episode_return"]
    """

    def __init__(self) -> None:
        self.rows: list[base.PlainRow] = []
        self._is_closed = False

    def write(self, values: Mapping[str, Any]) -> None:
        if self._is_closed:
            raise ValueError("The logger is closed, as a run closes its loggers. Make another one.")
        self.rows.append(base.to_plain(values))

    def close(self) -> None:
        """Ends writing; the rows stay."""
        self._is_closed = True


class TimeFilter(base.Logger):
    """Passes on at most one row per time interval. The last row is always passed on, at least by `close`."""

    def __init__(self, logger: base.Logger, seconds: float) -> None:
        """Args: logger: The logger, which this one owns. seconds: The minimum time between rows, >= 0."""
        self._logger = logger
        self._is_due = rates.EverySeconds(seconds)
        self._row: dict[str, Any] = {}

    def write(self, values: Mapping[str, Any]) -> None:
        # The numbers are not read yet: most rows are dropped, and reading a number from a GPU waits for it.
        self._row = dict(values)
        if self._is_due():
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
