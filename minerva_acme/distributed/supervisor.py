"""Starts the nodes of a program, and starts again those that end before their time."""

import collections
import logging
import time
from collections.abc import Callable, Iterable

from minerva_acme.distributed import graph

_logger = logging.getLogger(__name__)

_WINDOW_SECONDS = 600.0  # in which errors are counted
_MAX_BACKOFF_SECONDS = 30.0
_GIVEN_UP_AFTER = 5  # errors of a node without which the run goes on


class ProgramFailed(RuntimeError):
    """A node raised an exception again and again; the message says which and the last of them."""


class Supervisor:
    """Keeps the nodes of a program alive.

    A node whose process died is started again, whatever the number of times, after a pause that doubles while
    it dies within ten seconds of its start. So is one that raised an exception, which is its own fault, but
    not more often than its `max_errors` in ten minutes.

    Attributes:
        restarts: how often each node was started again.
    """

    def __init__(self, launched: graph.Launched, program: graph.Program) -> None:
        """Starts nothing yet."""
        self.restarts: dict[str, int] = {node.name: 0 for node in program.nodes}
        self._launched = launched
        self._program = program
        self._incarnations: dict[str, int] = {}
        self._running: set[str] = set()
        self._started_at: dict[str, float] = {}
        self._quick_ends: collections.Counter[str] = collections.Counter()
        self._errors: dict[str, list[float]] = collections.defaultdict(list)
        self._due: dict[str, float] = {}  # when nodes are to be started again
        self._returned: set[str] = set()
        self._stopping: set[str] = set()
        self.on_restart: Callable[[str], None] = lambda name: None

    def start(self, name: str) -> None:
        """Starts a node, again if it was started before."""
        incarnation = self._incarnations.get(name, -1) + 1
        self._incarnations[name] = incarnation
        self._started_at[name] = time.monotonic()
        self._running.add(name)
        self._returned.discard(name)
        self._launched.start(name, incarnation)
        if incarnation:
            self.restarts[name] += 1
            self.on_restart(name)

    def is_running(self, name: str) -> bool:
        """Whether a node was started and has not ended."""
        return name in self._running

    def is_expected(self, name: str) -> bool:
        """Whether a node runs, or is going to be started again."""
        return name in self._running or name in self._due

    def has_returned(self, name: str) -> bool:
        """Whether a node ended by itself, with its work done."""
        return name in self._returned

    def watch(self, timeout_seconds: float) -> None:
        """Looks after the nodes, for at most so long or until one has ended.

        Raises:
            ProgramFailed: a node failed too often.
        """
        self._launched.endure()
        for name, error, died in self._launched.wait(timeout_seconds):
            self._running.discard(name)
            if error is None:
                self._returned.add(name)
            elif name not in self._stopping:
                self._take_up(name, error, died)
        now = time.monotonic()
        for name in [name for name, due in self._due.items() if due <= now]:
            del self._due[name]
            self.start(name)

    def stop(self, names: Iterable[str], timeout_seconds: float) -> list[str]:
        """Asks nodes to end and waits for them; returns those that have not ended in time."""
        names = list(names)
        self._stopping.update(names)
        for name in names:
            self._due.pop(name, None)
            if name in self._running:
                self._launched.stop(name)
        deadline = time.monotonic() + timeout_seconds
        while (left := [name for name in names if name in self._running]) and time.monotonic() < deadline:
            self.watch(0.1)
        for name in left:
            _logger.warning("%s has not ended within %.0f s and is ended", name, timeout_seconds)
        return left

    def _take_up(self, name: str, error: Exception, died: bool) -> None:
        node = self._program[name]
        now = time.monotonic()
        is_quick = now - self._started_at[name] < 10.0
        self._quick_ends[name] = self._quick_ends[name] + 1 if is_quick else 0
        pause = min(0.5 * 2 ** self._quick_ends[name] - 0.5, _MAX_BACKOFF_SECONDS)
        if not died:
            errors = [at for at in self._errors[name] if now - at < _WINDOW_SECONDS] + [now]
            self._errors[name] = errors
            if node.max_errors is not None and len(errors) > node.max_errors:
                raise ProgramFailed(
                    f"Node {name} failed {len(errors)} times within {_WINDOW_SECONDS / 60:.0f} minutes, the "
                    f"last time with {type(error).__name__}: {error}"
                ) from error
            if node.max_errors is None and len(errors) >= _GIVEN_UP_AFTER:
                _logger.error("%s failed %d times, the run goes on without it: %r", name, len(errors), error)
                return
        what = "its process died" if died else f"{type(error).__name__}: {error}"
        _logger.warning("%s ended (%s); it is started again in %.1f s", name, what, pause)
        self._due[name] = now + pause
