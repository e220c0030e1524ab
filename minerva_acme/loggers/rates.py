"""When a row is due: by time or by steps."""

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Rate: TypeAlias = Callable[[Mapping[str, Any]], bool]
"""Says of each row, in the order in which they come, whether it is time to write."""


class EverySeconds:
    """The first row is due, then the first that comes `seconds` or more after the last due one."""

    def __init__(self, seconds: float) -> None:
        """Args: seconds: at least so long between rows, >= 0."""
        if not seconds >= 0:
            raise ValueError(f"`seconds` must be >= 0, got {seconds}.")
        self._seconds = seconds
        self._due_at = -float("inf")

    def __call__(self, row: Mapping[str, Any]) -> bool:
        now = time.monotonic()
        is_due = now >= self._due_at
        if is_due:
            self._due_at = now + self._seconds
        return is_due


class EverySteps:
    """The first row is due, then the first whose count is `steps` or more above the last due one's."""

    def __init__(self, steps_key: str, steps: int) -> None:
        """Args: steps_key: the value of each row that counts. steps: at least so many between rows, >= 1."""
        if steps < 1:
            raise ValueError(f"`steps` must be >= 1, got {steps}.")
        self._steps_key = steps_key
        self._steps = steps
        self._due_at = -float("inf")

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
        count = int(row[self._steps_key])
        is_due = count >= self._due_at
        if is_due:
            self._due_at = count + self._steps
        return is_due
