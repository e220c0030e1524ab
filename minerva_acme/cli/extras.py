"""Packages that one command alone needs."""

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def needed(name: str, extra: str = "") -> Iterator[None]:
    """Turns the ImportError of a package that a command alone needs into a ValueError with the way out.

    Args:
        name: the command's.
        extra: of this package, which installs what is missing; by default it is called as the command.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ValueError(
            f"`minerva {name}` needs '{error.name}', which is not installed: "
            f"pip install 'minerva-acme[{extra or name}]'"
        ) from error
