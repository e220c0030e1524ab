"""Names that people type, and the ones they meant."""

import difflib
from collections.abc import Iterable

_MIN_STEM = 3  # letters, below which a beginning says little


def choose(what: str, name: str, choices: Iterable[str], *, advice: str = "") -> str:
    """Returns `name` if it is one of the choices.

    Args:
        what: what is chosen, for the message.
        name: what was typed.
        choices: what there is.
        advice: ends the message.

    Raises:
        ValueError: it is none of them; the message lists them and suggests the nearest.
    """
    choices = list(choices)
    if name in choices:
        return name
    parts = [f"There is no {what} '{name}'; there are {', '.join(choices)}.", near(name, choices), advice]
    raise ValueError(" ".join(part for part in parts if part))


def near(name: str, choices: Iterable[str], *, at_most: int = 1) -> str:
    """Returns "Did you mean ...?" with the choices that look like `name`; "" if none does.

    Those that begin with it come first, without its plural's s: "envs" means "environments".
    """
    choices = list(choices)
    stem = name.lower().rstrip("s")
    begun = [choice for choice in choices if len(stem) >= _MIN_STEM and choice.lower().startswith(stem)]
    close = difflib.get_close_matches(name, choices, n=at_most)
    found = list(dict.fromkeys([*begun, *close]))[:at_most]
    return f"Did you mean {' or '.join(map(repr, found))}?" if found else ""
