"""What is due now and then."""

import time


class EverySeconds:
    """True on the first call, then on the first that comes `seconds` or more after the last true one."""

    def __init__(self, seconds: float) -> None:
        """Args: seconds: The time between two true answers at least, >= 0."""
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
