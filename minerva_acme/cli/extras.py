"""Optional packages that a single command needs."""

import contextlib
from collections.abc import Iterator

from minerva_acme.names import readable


@contextlib.contextmanager
def needed(name: str, extra: str = "") -> Iterator[None]:
    """Turns the ImportError of a command's optional package into a ValueError that says how to install it.

    Args:
        name: The command's name.
        extra: The extra of minerva-acme that installs the package; by default it has the command's name.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        fix = f"pip install 'minerva-acme[{extra or name}]'"
        raise ValueError(f"`minerva {name}` needs {readable.missing(error, fix)}") from error
