"""A condition that is true at a limited rate."""

import time


class EverySeconds:
    """Returns True on the first call, then on the first call at least `seconds` after the last True."""

    def __init__(self, seconds: float) -> None:
        """Args: seconds: The minimum time between two calls that return True, >= 0."""
        if not seconds >= 0:
            raise ValueError(f"`seconds` must be >= 0, got {seconds}.")
        self._seconds = seconds
        self._due_at = -float("inf")

    def __call__(self) -> bool:
        now = time.monotonic()
        is_due = now >= self._due_at
        if is_due:
            self._due_at = now + self._seconds
        return is_due
