"""The learner's weights in another process: fetched in the background, read by a `VariableClient`."""

import logging
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import tree

from minerva_acme import core, types
from minerva_acme.agents.on_policy import rounds
from minerva_acme.distributed import graph

_logger = logging.getLogger(__name__)

_MAX_SILENCE_SECONDS = 600.0
_WARN_SECONDS = 20.0


def version(incarnation: int, learner_steps: int) -> int:
    """Returns a version of weights, which grows even if a restarted learner has made fewer steps."""
    return (incarnation << rounds.STEP_BITS) | learner_steps


class Follower(core.VariableSource):
    """Fetches the newest weights in the background, so that acting never waits for the network.

    A thread repeatedly asks the learner's node for newer weights; `poll_variables` returns the newest ones
    that have arrived.

    Attributes:
        taken: The version that `poll_variables` last returned; -1 before the first.
        num_failures: The number of requests without an answer.
    """

    def __init__(
        self, handle: graph.Handle, names: Sequence[str], *, period_seconds: float, stop: threading.Event
    ) -> None:
        """Starts the thread.

        Args:
            handle: A handle to the learner's node.
            names: The names of the variables.
            period_seconds: The time between two requests.
            stop: An event that ends the requests, as `close` does.
        """
        self.taken = -1
        self.num_failures = 0
        self._handle = handle
        self._names = list(names)
        self._period_seconds = period_seconds
        self._stop = stop
        self._closed = threading.Event()
        self._newest: core.VersionedVariables | None = None
        self._newest_at = time.monotonic()  # when the newest weights were last confirmed
        self._came = threading.Condition()
        self._error: Exception | None = None
        threading.Thread(target=self._run, name="weights", daemon=True).start()

    @property
    def version(self) -> int:
        """The version of the newest weights that have arrived; -1 before the first."""
        newest = self._newest
        return -1 if newest is None or newest.version is None else newest.version

    @property
    def age_seconds(self) -> float:
        """The seconds since the newest weights were last confirmed to be the newest."""
        return time.monotonic() - self._newest_at

    def close(self) -> None:
        """Stops the requests."""
        self._closed.set()

    def wait(self, newer_than: int, timeout_seconds: float) -> bool:
        """Waits for weights of a newer version. Returns whether they arrived in time, or fetching failed."""
        with self._came:
            return self._came.wait_for(
                lambda: self.version > newer_than or self._error is not None, timeout_seconds
            )

    def get_variables(self, names: Sequence[str]) -> list[types.NestedArray]:
        answer = self.poll_variables(names)
        assert answer is not None
        return answer.values

    def poll_variables(
        self, names: Sequence[str], newer_than: int | None = None
    ) -> core.VersionedVariables | None:
        """Returns the newest weights that have arrived, without waiting.

        Raises:
            KeyError: `names` differs from the names that it follows.
            TimeoutError: Nothing has arrived yet, or the learner has been silent for ten minutes.
        """
        if list(names) != self._names:
            raise KeyError(f"Unknown variables {list(names)}; there are {self._names}.")
        if self._error is not None:
            raise self._error
        newest = self._newest
        if newest is None or self.age_seconds > _MAX_SILENCE_SECONDS:
            raise TimeoutError(f"The learner has not answered for {self.age_seconds:.0f} s.")
        if newest.version == newer_than:
            return None
        self.taken = self.version
        return newest

    def _run(self) -> None:
        warned_at = self._newest_at
        while not (self._stop.is_set() or self._closed.is_set()):
            asked_at = time.monotonic()
            try:
                answer = self._handle.call("poll", self._names, self.version)
            except graph.NodeSilence as error:
                self.num_failures += 1
                if self.age_seconds > _WARN_SECONDS and asked_at - warned_at > _WARN_SECONDS:
                    warned_at = asked_at
                    _logger.warning(
                        "the learner has given no weights for %.0f s: %s", self.age_seconds, error
                    )
            except Exception as error:  # raised by the next `poll_variables`
                self._error = error
                with self._came:
                    self._came.notify_all()
                return
            else:
                self._newest_at = asked_at
                if answer is not None and answer[0] > self.version:
                    with self._came:
                        self._newest = core.VersionedVariables(answer[0], _writable(answer[1]))
                        self._came.notify_all()
            self._closed.wait(self._period_seconds)


class Fixed(core.VariableSource):
    """The weights that another source had at one moment."""

    def __init__(self, source: core.VariableSource, names: Sequence[str]) -> None:
        """Takes the source's newest weights.

        Args:
            source: The other source.
            names: The names of the variables.

        Raises:
            TimeoutError: The source has no weights, or has not answered.
        """
        self._names = list(names)
        newest = source.poll_variables(names)
        assert newest is not None
        self._newest = newest

    def get_variables(self, names: Sequence[str]) -> list[types.NestedArray]:
        if list(names) != self._names:
            raise KeyError(f"Unknown variables {list(names)}; there are {self._names}.")
        return self._newest.values

    def poll_variables(
        self, names: Sequence[str], newer_than: int | None = None
    ) -> core.VersionedVariables | None:
        values = self.get_variables(names)
        is_same = newer_than is not None and newer_than == self._newest.version
        return None if is_same else self._newest._replace(values=values)


def _writable(values: Any) -> list[types.NestedArray]:
    """Copies arrays in memory that several processes share."""

    def own(leaf: Any) -> Any:
        return leaf if not isinstance(leaf, np.ndarray) or leaf.flags.writeable else leaf.copy()

    copied: list[types.NestedArray] = tree.map_structure(own, list(values))
    return copied
