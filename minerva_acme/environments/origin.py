"""The origin of an environment, for the record in a run's folder."""

from collections.abc import Iterable
from typing import Any, NamedTuple

_ATTRIBUTE = "_origin"


class Origin(NamedTuple):
    """The arguments with which `make_training_environment` was called."""

    environment_id: str
    settings: dict[str, Any]  # without the seed


def mark(environment: Any, origin: Origin | None) -> None:
    """Notes the origin on an environment or a vector of them."""
    setattr(environment, _ATTRIBUTE, origin)


def of(environment: Any) -> Origin | None:
    """Returns the origin of an environment, or None if it is unknown or a wrapper was added since."""
    origin: Origin | None = getattr(environment, "__dict__", {}).get(_ATTRIBUTE)
    return origin


def common(origins: Iterable[Origin | None]) -> Origin | None:
    """Returns the origin of several environments if it is the same for all, or None."""
    first, *others = origins
    return first if all(other == first for other in others) else None
