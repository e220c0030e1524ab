"""The client by which an actor follows a learner's weights."""

import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from minerva_acme import core, types

_logger = logging.getLogger(__name__)


_Poll = Callable[[Sequence[str], int | None], core.VersionedVariables | None]


class GetsVariables(Protocol):
    """A variable source without versions, as in Acme."""

    def get_variables(self, names: Sequence[str]) -> list[types.NestedArray]:
        """Returns one nest of arrays per name."""


class VariableClient:
    """Pulls variables from a source periodically.

    New values are passed to `on_update` inside `update`, on its caller's thread: weights never change while
    an action is being chosen. The client belongs to its actor's thread; several clients may ask one source at
    the same time. `update` waits for the source's answer, and a source does not wait for a learner's step. A
    source in another process should answer immediately with the newest values received, while a background
    thread fetches, as in `distributed`. The version only increases: an answer with an older version, for
    example from a replica that lags behind, is ignored.

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
        """Makes the client. The first `update` fetches the first values.

        Args:
            source: The source of the variables: a learner, or a client of a learner in another process. If it
                only has `get_variables`, like Acme's sources, every request fetches all variables.
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
            Exception: Any exception of the source.
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
            _logger.warning("ignored variables of version %s, already at version %s", version, self.version)
        elif answer is not None and (version is None or version != self.version):
            self._on_update(answer.values)
            self.version = version


def _poll_of(source: Any) -> _Poll:
    """Returns the source's `poll_variables`, or one made from its `get_variables`.

    Raises:
        ValueError: It has neither.
    """
    if hasattr(source, "poll_variables"):
        poll: _Poll = source.poll_variables
        return poll
    if not hasattr(source, "get_variables"):
        raise ValueError(
            f"`source` must have `poll_variables` or `get_variables`, got a {type(source).__name__}. Pass a "
            "learner, or your own `core.VariableSource`."
        )
    return lambda names, _: core.VersionedVariables(version=None, values=source.get_variables(names))
