"""How an actor follows the weights of a learner."""

import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from minerva_acme import core, types

_logger = logging.getLogger(__name__)


_Poll = Callable[[Sequence[str], int | None], core.VersionedVariables | None]


class GetsVariables(Protocol):
    """A variable source as Acme has it: without versions."""

    def get_variables(self, names: Sequence[str]) -> list[types.NestedArray]:
        """Returns one nest of arrays per name."""


class VariableClient:
    """Pulls variables from a source periodically.

    New values are passed to `on_update` inside `update`, on its caller's thread: weights never change
    in the middle of choosing an action. The client belongs to one thread, that of its actor; several clients
    may ask one source at once. `update` waits for the source's answer, and a source does not wait for a
    learner's step. A source in another process should answer at once with what has come: one thread fetches
    in the background, as that of `distributed`. The version only grows: if a source answers with an older
    one, as a replica that lags behind may, the answer is ignored.

    Attributes:
        version: The version last passed to `on_update`; None before the first, and if the source has none.
        num_ignored: The number of answers ignored because they were older than that.
    """

    def __init__(
        self,
        source: "core.RemoteVariableSource | GetsVariables",
        names: Sequence[str],
        on_update: Callable[[list[types.NestedArray]], None],
        *,
        update_period: int,
    ) -> None:
        """Nothing is fetched yet: the first `update` does that.

        Args:
            source: Where the variables are: a learner, or what asks one in another process. Of one that has
                `get_variables` alone, as Acme's sources have, every request fetches all variables.
            names: The names of the variables.
            on_update: A function that takes one nest of arrays per name.
            update_period: The number of calls of `update` from one request to the next.

        Raises:
            ValueError: The period is below 1, or the source has neither `poll_variables` nor `get_variables`.
        """
        if update_period < 1:
            raise ValueError(f"`update_period` must be >= 1 call of update, got {update_period}.")
        self._poll: _Poll = _poll_of(source)
        self._names = list(names)
        self._on_update = on_update
        self._period = update_period
        self._calls = update_period - 1  # of `update` since the last request
        self.version: int | None = None
        self.num_ignored = 0

    def update(self, wait: bool = False) -> None:
        """Passes on newer variables, if a request is due.

        Args:
            wait: Whether to ask now, regardless of the period.

        Raises:
            Exception: What the source raised.
        """
        self._calls += 1
        if not wait and self._calls < self._period:
            return
        self._calls = 0
        try:
            answer = self._poll(self._names, self.version)
        except Exception as error:
            error.add_note(f"Raised while fetching variables {self._names}.")
            raise
        version = None if answer is None else answer.version
        if version is not None and self.version is not None and version < self.version:
            self.num_ignored += 1
            _logger.warning("ignored variables of version %s, %s are here", version, self.version)
        elif answer is not None and (version is None or version != self.version):
            self._on_update(answer.values)
            self.version = version


def _poll_of(source: Any) -> _Poll:
    """The source's `poll_variables`, or one made of its `get_variables`.

    Raises:
        ValueError: It has neither.
    """
    if hasattr(source, "poll_variables"):
        poll: _Poll = source.poll_variables
        return poll
    if not hasattr(source, "get_variables"):
        raise ValueError(
            f"`source` must have `poll_variables` or `get_variables`, got a {type(source).__name__}. Pass a "
            "learner, or a `core.VariableSource` of your own."
        )
    return lambda names, _: core.VersionedVariables(version=None, values=source.get_variables(names))
