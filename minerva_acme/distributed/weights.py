"""The learner's weights in another process: fetched in the background, taken by a `VariableClient`."""

import logging
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import tree

from minerva_acme import core, types
from minerva_acme.distributed import graph

_logger = logging.getLogger(__name__)

# The bits of a version that count learner steps; those above them count the learner's starts.
_STEP_BITS = 40
_MAX_SILENCE_SECONDS = 600.0
_WARN_SECONDS = 20.0


def version(incarnation: int, learner_steps: int) -> int:
    """The version of weights: it grows also where a learner that was started again has made fewer steps."""
    return (incarnation << _STEP_BITS) | learner_steps


def learner_steps(version: int) -> int:
    """The learner steps in a version."""
    return version & ((1 << _STEP_BITS) - 1)


class Follower(core.VariableSource):
    """Keeps the newest weights at hand, so that nobody waits for the network to act.

    A thread asks the learner's node for newer ones, again and again; `poll_variables` gives what has come.

    Attributes:
        taken: the version last given by `poll_variables`; -1 before the first.
        num_failures: questions without an answer.
    """

    def __init__(
        self, handle: graph.Handle, names: Sequence[str], *, period_seconds: float, stop: threading.Event
    ) -> None:
        """Starts to ask.

        Args:
            handle: of the learner's node.
            names: of the variables.
            period_seconds: between two questions.
            stop: ends them, as `close` does.
        """
        self.taken = -1
        self.num_failures = 0
        self._handle = handle
        self._names = list(names)
        self._period_seconds = period_seconds
        self._stop = stop
        self._closed = threading.Event()
        self._newest: core.VersionedVariables | None = None
        self._newest_at = time.monotonic()  # when the newest were last known to be that
        self._came = threading.Condition()
        self._error: Exception | None = None
        threading.Thread(target=self._run, name="weights", daemon=True).start()

    @property
    def version(self) -> int:
        """Of the newest that has come; -1 before the first."""
        newest = self._newest
        return -1 if newest is None or newest.version is None else newest.version

    @property
    def age_seconds(self) -> float:
        """Seconds since the newest were last known to be that."""
        return time.monotonic() - self._newest_at

    def close(self) -> None:
        """Asks no more."""
        self._closed.set()

    def wait(self, newer_than: int, timeout_seconds: float) -> bool:
        """Waits for weights of a newer version; whether they have come in time."""
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
        """Returns what has come, at once.

        Raises:
            KeyError: others are asked for than it follows.
            TimeoutError: nothing has come yet, or the learner has been silent for ten minutes.
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
            except Exception as error:  # surfaces where weights are taken
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


def _writable(values: Any) -> list[types.NestedArray]:
    """Copies what lies in memory that several processes read."""

    def own(leaf: Any) -> Any:
        return leaf if not isinstance(leaf, np.ndarray) or leaf.flags.writeable else leaf.copy()

    copied: list[types.NestedArray] = tree.map_structure(own, list(values))
    return copied
