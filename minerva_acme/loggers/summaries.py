"""Summary statistics of rows of numbers."""

import math
from collections.abc import Mapping
from typing import NamedTuple


class SeriesSummary(NamedTuple):
    """Statistics of a series of n numbers."""

    mean: float
    stddev: float  # of these n numbers, with a divisor of n
    min: float
    max: float
    last: float
    sum: float


class Summary:
    """Summarises each name of the rows added to it, in memory that does not grow with the number of rows.

    A name need not be in every row. The mean and the sum of squared deviations are updated number by
    number, which loses no digits if the deviations are small compared to the mean:

        mean_n = mean_{n-1} + (x_n - mean_{n-1}) / n
        squares_n = squares_{n-1} + (x_n - mean_{n-1}) (x_n - mean_n)

    Source: Welford, "Note on a method for calculating corrected sums of squares and products", 1962.
    """

    def __init__(self) -> None:
        self._series: dict[str, _Series] = {}

    def add(self, row: Mapping[str, float]) -> None:
        """Adds one row."""
        for name, value in row.items():
            if name not in self._series:
                self._series[name] = _Series()
            self._series[name].add(float(value))

    def result(self) -> dict[str, SeriesSummary]:
        """Returns the statistics of each name, in the order in which the names first appeared."""
        return {name: series.summary() for name, series in self._series.items()}


class _Series:
    def __init__(self) -> None:
        self._count = 0
        self._mean = self._squares = self._sum = 0.0
        self._min, self._max, self._last = math.inf, -math.inf, math.nan

    def add(self, value: float) -> None:
        self._count += 1
        self._sum += value
        deviation = value - self._mean
        self._mean += deviation / self._count
        self._squares += deviation * (value - self._mean)
        # Compared in this order, a nan is kept: a diverged number must not be hidden by the others.
        self._min = self._min if self._min <= value or math.isnan(self._min) else value
        self._max = self._max if self._max >= value or math.isnan(self._max) else value
        self._last = value

    def summary(self) -> SeriesSummary:
        stddev = math.sqrt(self._squares / self._count)
        return SeriesSummary(self._mean, stddev, self._min, self._max, self._last, self._sum)
