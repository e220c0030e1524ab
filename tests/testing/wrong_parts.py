"""Parts that break their contract, noted together with what a conformance class says of them."""

from collections.abc import Callable
from typing import Any, TypeVar

Part = TypeVar("Part")
Row = tuple[Any, ...]


def noted_in(rows: list[Row]) -> Callable[..., Callable[[Part], Part]]:
    """Returns a decorator of wrong parts: it adds a row of the part and of the decorator's arguments.

    The arguments are the suite if there are several, the test that finds the part, and how this says so.
    """

    def breaks(*found: Any) -> Callable[[Part], Part]:
        def note(part: Part) -> Part:
            rows.append((part, *found))
            return part

        return note

    return breaks
