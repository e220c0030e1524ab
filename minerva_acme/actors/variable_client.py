"""How an actor follows the weights of a learner."""

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any, NamedTuple, Protocol

from minerva_acme import core, types

_logger = logging.getLogger(__name__)


_Poll = Callable[[Sequence[str], int | None], core.VersionedVariables | None]


class GetsVariables(Protocol):
    """A variable source as Acme has it: without versions."""

    def get_variables(self, names: Sequence[str]) -> list[types.NestedArray]:
        """Returns one nest of arrays per name."""


class _Request(NamedTuple):
    asked_at: float  # time.monotonic()
    answer: "futures.Future[core.VersionedVariables | None]"


class VariableClient:
    """Pulls variables from a source periodically.

    New values are passed to `on_update` inside `update`, on its caller's thread: weights never change
    in the middle of choosing an action. The client belongs to one thread, that of its actor; several clients
    may ask one source at once. `update` waits for the source's answer (not with `asynchronous`), and a
    source does not wait for a learner's step. The version only grows: if a source answers with an older
    one, as a replica that lags behind may, the answer is ignored.

    Attributes:
        version: the version last passed to `on_update`; None before the first, and if the source has none.
        num_ignored: answers ignored because they were older than that.
        num_failures: requests that failed.
    """

    def __init__(
        self,
        source: "core.RemoteVariableSource | GetsVariables",
        names: Sequence[str],
        on_update: Callable[[list[types.NestedArray]], None],
        *,
        update_period: int | None = None,
        update_period_seconds: float | None = None,
        asynchronous: bool = False,
        max_failures: int = 0,
    ) -> None:
        """Nothing is fetched yet: the first `update` does that.

        Args:
            source: Where the variables are: a learner, or what asks one in another process. Of one that has
                `get_variables` alone, as Acme's sources have, every request fetches all variables.
            names: which of them.
            on_update: takes one nest of arrays per name.
            update_period: calls of `update` from one request to the next. Either this one or
                `update_period_seconds`.
            update_period_seconds: seconds from one request to the next.
            asynchronous: ask in the background, one request at a time, so that `update` does not wait
                for a remote source. A later `update` passes on what arrived.
            max_failures: requests in a row that may fail before `update` raises. Those that may are
                logged.

        Raises:
            ValueError: not exactly one period is given, a number is out of range, or the source has neither
                `poll_variables` nor `get_variables`.
        """
        if (update_period is None) == (update_period_seconds is None):
            raise ValueError(
                "Exactly one of `update_period` and `update_period_seconds` must be given, got "
                f"{update_period} and {update_period_seconds}."
            )
        if update_period is not None and update_period < 1:
            raise ValueError(f"`update_period` must be >= 1 call of update, got {update_period}.")
        if update_period_seconds is not None and not update_period_seconds > 0:
            raise ValueError(f"`update_period_seconds` must be > 0, got {update_period_seconds}.")
        if max_failures < 0:
            raise ValueError(f"`max_failures` must be >= 0, got {max_failures}.")
        self._poll_source: _Poll = _poll_of(source)
        self._names = list(names)
        self._on_update = on_update
        self._period = math.inf if update_period is None else update_period
        self._period_seconds = math.inf if update_period_seconds is None else update_period_seconds
        self._asynchronous = asynchronous
        self._max_failures = max_failures

        self._calls = math.inf  # calls of `update` since the last request
        self._asked_at = -math.inf
        self._current_at = -math.inf
        self._in_flight: _Request | None = None
        self.version: int | None = None
        self.num_ignored = 0
        self.num_failures = 0
        self._num_failures_in_a_row = 0
        self._closed = False

    @property
    def staleness_seconds(self) -> float:
        """Seconds since the current variables were last known to be the newest; infinite before the first."""
        return time.monotonic() - self._current_at

    def update(self, wait: bool = False) -> None:
        """Passes on newer variables if a request is due, or one in the background has been answered.

        Args:
            wait: ask now, regardless of the period, and return once the newest variables are passed on.

        Raises:
            ValueError: the client is closed.
            Exception: what the source raised, now or in the background: always with `wait`, otherwise
                if more than `max_failures` requests in a row failed.
        """
        if self._closed:
            raise ValueError("The variable client is closed.")
        self._calls += 1
        if self._in_flight is not None and (wait or self._in_flight.answer.done()):
            self._take(self._in_flight, tolerant=not wait)
        if wait or (self._in_flight is None and self._is_due()):
            self._calls, self._asked_at = 0, time.monotonic()
            if self._asynchronous and not wait:
                self._in_flight = self._ask_in_background()
            else:
                self._accept(self._poll, self._asked_at, tolerant=not wait)

    def close(self) -> None:
        """Ends the updates, without waiting: an answer that is still to come is dropped."""
        self._closed = True
        self._in_flight = None

    def _is_due(self) -> bool:
        return self._calls >= self._period or time.monotonic() - self._asked_at >= self._period_seconds

    def _poll(self) -> core.VersionedVariables | None:
        return self._poll_source(self._names, self.version)

    def _ask_in_background(self) -> _Request:
        request = _Request(self._asked_at, futures.Future())

        def answer() -> None:
            try:
                request.answer.set_result(self._poll())
            except BaseException as error:
                request.answer.set_exception(error)

        # A daemon: a source that never answers must not keep the process from ending.
        threading.Thread(target=answer, name="variables", daemon=True).start()
        return request

    def _take(self, request: _Request, tolerant: bool) -> None:
        self._in_flight = None
        self._accept(request.answer.result, request.asked_at, tolerant)

    def _accept(
        self, get: Callable[[], core.VersionedVariables | None], asked_at: float, tolerant: bool
    ) -> None:
        """Passes on an answer that was asked for at a time, if it is newer."""
        try:
            answer = get()
        except Exception as error:
            self.num_failures += 1
            self._num_failures_in_a_row += 1
            if not tolerant or self._num_failures_in_a_row > self._max_failures:
                error.add_note(
                    f"Raised while fetching variables {self._names}; failures in a row: "
                    f"{self._num_failures_in_a_row}, `max_failures` is {self._max_failures}."
                )
                raise
            _logger.warning(
                "fetching variables %s failed (%d in a row, %d tolerated): %r",
                self._names,
                self._num_failures_in_a_row,
                self._max_failures,
                error,
            )
            return
        self._num_failures_in_a_row = 0
        version = None if answer is None else answer.version
        if version is not None and self.version is not None and version < self.version:
            self.num_ignored += 1
            _logger.warning("ignored variables of version %s, %s are here", version, self.version)
            return
        if answer is not None and (version is None or version != self.version):
            self._on_update(answer.values)
            self.version = version
        self._current_at = asked_at


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
