"""Logs in which way something is computed: one line at INFO for each part and way in a process."""

import logging

_logger = logging.getLogger("minerva_acme.acceleration")
_said: set[tuple[str, str]] = set()


def say(part: str, way: str, level: int = logging.INFO) -> None:
    """Logs how a part is computed, unless this was logged before.

    Args:
        part: The name of the part, such as "target critic".
        way: The way in which it is computed, and why no faster way is taken.
        level: The level of the log.
    """
    if (part, way) not in _said:
        _said.add((part, way))
        _logger.log(level, "%s: %s", part, way)


def warn(part: str, way: str) -> None:
    """Logs like `say`, but as a warning, if something that was requested is not done."""
    say(part, way, logging.WARNING)
