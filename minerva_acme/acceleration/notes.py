"""Says which way something is computed: one line at INFO for each part and way in a process."""

import logging

_logger = logging.getLogger("minerva_acme.acceleration")
_said: set[tuple[str, str]] = set()


def say(part: str, way: str) -> None:
    """Logs how a part is computed, unless that was said before.

    Args:
        part: what is computed, such as "target critic".
        way: how, and why no faster way is taken.
    """
    if (part, way) not in _said:
        _said.add((part, way))
        _logger.info("%s: %s", part, way)


def warn(part: str, way: str) -> None:
    """`say`, as a warning: something that was asked for is not done."""
    if (part, way) not in _said:
        _said.add((part, way))
        _logger.warning("%s: %s", part, way)
