"""Starts the nodes of a program, and starts again those that end before their time."""

import collections
import logging
import time
from collections.abc import Callable, Iterable

from minerva_acme.distributed import graph

_logger = logging.getLogger(__name__)

_WINDOW_SECONDS = 600.0  # in which failures after work are counted
_QUICK_SECONDS = 10.0
_MAX_BACKOFF_SECONDS = 30.0


class ProgramFailed(RuntimeError):
    """The program has ended without its result; the message says why and what is left of the run."""


class Supervisor:
    """Keeps the nodes of a program alive.

    A node that ends before its time is started again, after a pause that doubles while it ends within ten
    seconds of its start or has done no work since. It fails if it raises an exception, or if its process dies
    before it has done any work: a step, an update or an evaluation. One that fails more often than its
    `max_errors`, within ten minutes or without any work in between, is given up, and the program ends if it
    cannot do without it.

    Attributes:
        restarts: How often each node was started again.
        given_up: Why nodes were given up, by their names.
        end_errors: Why nodes that were asked to end have ended otherwise, by their names.
        on_restart: Called with the name of a node that is started again.
        has_worked: Called with a node's name and incarnation; returns whether that has done any work.
    """

    def __init__(self, launched: graph.Launched, program: graph.Program) -> None:
        """Starts nothing yet."""
        self.restarts: dict[str, int] = {node.name: 0 for node in program.nodes}
        self.given_up: dict[str, str] = {}
        self.end_errors: dict[str, str] = {}
        self.on_restart: Callable[[str], None] = lambda name: None
        self.has_worked: Callable[[str, int], bool] = lambda name, incarnation: False
        self._launched = launched
        self._program = program
        self._incarnations: dict[str, int] = {}
        self._running: set[str] = set()
        self._started_at: dict[str, float] = {}
        self._quick_ends: collections.Counter[str] = collections.Counter()
        self._idle_ends: collections.Counter[str] = collections.Counter()  # in a row, without any work
        self._failures: dict[str, list[float]] = collections.defaultdict(list)  # when
        self._due: dict[str, float] = {}  # when nodes are to be started again
        self._returned: set[str] = set()
        self._stopping: set[str] = set()

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
            ProgramFailed: A node that the program needs has failed too often, or the engine is lost.
        """
        try:
            self._launched.endure()
        except graph.EngineLost as lost:
            self._stopping.update(self.restarts)  # nothing can be started again
            self._due.clear()
            raise ProgramFailed(str(lost)) from lost
        ended = self._launched.wait(timeout_seconds)
        for name, _, _ in ended:
            self._running.discard(name)
        failed: ProgramFailed | None = None
        for name, error, died in ended:
            if error is None:
                self._returned.add(name)
            elif name in self._stopping:
                self._note_end(name, error, died)
            else:
                try:
                    self._take_up(name, error, died)
                except ProgramFailed as failure:  # once all ends are noted
                    failed = failed or failure
        if failed is not None:
            raise failed
        now = time.monotonic()
        for name in [name for name, due in self._due.items() if due <= now]:
            del self._due[name]
            self.start(name)

    def ask_to_end(self, names: Iterable[str]) -> None:
        """Asks nodes to end; those that wait to be started again are not."""
        for name in names:
            self._stopping.add(name)
            self._due.pop(name, None)
            if name in self._running:
                self._launched.stop(name)

    def wait_for_end(self, names: Iterable[str], timeout_seconds: float) -> list[str]:
        """Waits until nodes have ended; returns those that have not in time."""
        deadline = time.monotonic() + timeout_seconds
        while (left := [name for name in names if name in self._running]) and time.monotonic() < deadline:
            self.watch(0.1)
        return left

    def stop(self, names: Iterable[str], timeout_seconds: float) -> list[str]:
        """Asks nodes to end and waits for them; returns those that have not ended in time."""
        names = list(names)
        self.ask_to_end(names)
        left = self.wait_for_end(names, timeout_seconds)
        for name in left:
            _logger.warning("%s has not ended within %.0f s and is left behind", name, timeout_seconds)
        return left

    def _note_end(self, name: str, error: Exception, died: bool) -> None:
        """Notes how a node has ended that was asked to."""
        if isinstance(error, graph.NodeLeft):  # it returned first
            return
        self.end_errors[name] = _describe(error, died)
        _logger.warning("%s failed while it ended: %s", name, self.end_errors[name])

    def _take_up(self, name: str, error: Exception, died: bool) -> None:
        if isinstance(error, graph.NodeDoomed):
            raise ProgramFailed(str(error)) from error
        node = self._program[name]
        now = time.monotonic()
        has_left = isinstance(error, graph.NodeLeft)  # as the system wished
        is_idle = not (has_left or self.has_worked(name, self._incarnations[name]))
        is_quick = is_idle or now - self._started_at[name] < _QUICK_SECONDS
        self._quick_ends[name] = self._quick_ends[name] + 1 if is_quick else 0
        what = _describe(error, died)
        what += " before it had done any work" * (died and is_idle)
        if not has_left:
            self._idle_ends[name] = self._idle_ends[name] + 1 if is_idle else 0
        if is_idle or not died:
            recent = [at for at in self._failures[name] if now - at < _WINDOW_SECONDS] + [now]
            self._failures[name] = recent
            times = max(len(recent), self._idle_ends[name])
            if times > node.max_errors:
                self._give_up(node, f"failed {times} times, the last time: {what}", error)
                return
        pause = min(0.5 * 2 ** self._quick_ends[name] - 0.5, _MAX_BACKOFF_SECONDS)
        _logger.warning("%s ended (%s); it is started again in %.1f s", name, what, pause)
        self._due[name] = now + pause

    def _give_up(self, node: graph.Node, why: str, error: Exception) -> None:
        others = {other.name for other in self._program.of_kind(node.kind)} - {node.name, *self.given_up}
        if node.needed == "each" or (node.needed == "one" and not others):
            raise ProgramFailed(f"Node {node.name} {why}") from error
        self.given_up[node.name] = why
        _logger.error("%s %s; the run continues without it", node.name, why)


def _describe(error: Exception, died: bool) -> str:
    if died:  # what the engine says of it is long, and seldom why
        return "its process died"
    return str(error) if isinstance(error, graph.NodeDoomed) else f"{type(error).__name__}: {error}"
