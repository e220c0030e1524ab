"""When a row is due: by time or by steps."""

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Rate: TypeAlias = Callable[[Mapping[str, Any]], bool]
"""Says of each row, in the order in which they come, whether it is time to write."""


class _Every:
    def __init__(self, period: float) -> None:
        self._period = period
        self._due_at = -float("inf")

    def _is_due(self, now: float) -> bool:
        is_due = now >= self._due_at
        if is_due:
            self._due_at = now + self._period
        return is_due


class EverySeconds(_Every):
    """The first row is due, then the first that comes `seconds` or more after the last due one."""

    def __init__(self, seconds: float) -> None:
        """Args: seconds: between due rows at least, >= 0."""
        if not seconds >= 0:
            raise ValueError(f"`seconds` must be >= 0, got {seconds}.")
        super().__init__(seconds)

    def __call__(self, row: Mapping[str, Any]) -> bool:
        return self._is_due(time.monotonic())


class EverySteps(_Every):
    """The first row is due, then the first whose count is `steps` or more above the last due one's."""

    def __init__(self, steps_key: str, steps: int) -> None:
        """Args: steps_key: the value of each row that counts. steps: between due rows at least, >= 1."""
        if steps < 1:
            raise ValueError(f"`steps` must be >= 1, got {steps}.")
        super().__init__(steps)
        self._steps_key = steps_key

    def __call__(self, row: Mapping[str, Any]) -> bool:
        """Says whether the row is due.

        Raises:
            ValueError: the row has no such count.
        """
        if self._steps_key not in row:
            raise ValueError(
                f"A row must hold `{self._steps_key}`, the count that its rate goes by, got {sorted(row)}. "
                "Log it, or use EverySeconds."
            )
        return self._is_due(int(row[self._steps_key]))
