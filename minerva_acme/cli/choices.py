"""Checks of what was typed: names, with suggestions for misspelt ones, and optional packages."""

import contextlib
import difflib
from collections.abc import Iterable, Iterator

from minerva_acme.names import foreign_names, readable

_MIN_STEM = 3  # letters; shorter beginnings match too much


def choose(what: str, name: str, choices: Iterable[str], *, advice: str = "") -> str:
    """Returns `name` if it is one of the choices.

    Args:
        what: The kind of thing that is chosen, for the message.
        name: The typed name.
        choices: The valid names.
        advice: The end of the message.

    Raises:
        ValueError: The name is not among the choices; the message lists them and suggests the nearest, also
            for what other libraries have.
    """
    choices = list(choices)
    if name in choices:
        return name
    nearest = foreign_names.table("nearest").get(name, name)
    meant = near(nearest if nearest in choices else name, choices)
    parts = [f"There is no {what} '{name}'; there are {', '.join(choices)}.", meant, advice]
    raise ValueError(" ".join(part for part in parts if part))


def near(name: str, choices: Iterable[str], *, at_most: int = 1) -> str:
    """Returns "Did you mean ...?" with the choices that look like `name`; "" if there are none.

    Choices that begin with the name, without a plural s, come first: "envs" means "environments".
    """
    choices = list(choices)
    stem = name.lower().rstrip("s")
    begun = [choice for choice in choices if len(stem) >= _MIN_STEM and choice.lower().startswith(stem)]
    close = difflib.get_close_matches(name, choices, n=at_most)
    found = list(dict.fromkeys([*begun, *close]))[:at_most]
    return f"Did you mean {' or '.join(map(repr, found))}?" if found else ""


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
