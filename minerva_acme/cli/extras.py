"""Packages that one command alone needs."""

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def needed(name: str) -> Iterator[None]:
    """Turns the ImportError of a package that a command alone needs into a ValueError with the way out."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ValueError(
            f"`minerva {name}` needs '{error.name}', which is not installed: "
            f"pip install 'minerva-acme[{name}]'"
        ) from error
