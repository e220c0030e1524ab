"""Starts the nodes of a program, and restarts those that end too early."""

import collections
import logging
import time
from collections.abc import Callable, Iterable

from minerva_acme.distributed import graph

_logger = logging.getLogger(__name__)

_WINDOW_SECONDS = 600.0  # failures after some work are counted over this time
_QUICK_SECONDS = 10.0
_FIRST_ERRORS = 1  # tolerated deaths of an actor's process while all actors fail and none has ever worked
_MAX_BACKOFF_SECONDS = 30.0


class ProgramFailed(RuntimeError):
    """The program has ended without its result; the message gives the reason and what is left of the run."""


class Supervisor:
    """Keeps the nodes of a program alive.

    A node that ends too early is restarted after a pause, which doubles each time that the node ends within
    ten seconds of its start or without having done any work. A node fails if it raises an exception, or if
    its process dies before it has done any work: a step, an update or an evaluation. A node that fails more
    than `max_errors` times, within ten minutes or without any work in between, is given up, and the program
    ends if it needs that node. If every actor has failed and none has ever worked, one whose process dies is
    given up after two failures: the environment ends the processes, which does not pass.

    Attributes:
        restarts: The number of restarts of each node.
        given_up: The reasons why nodes were given up, by name.
        end_errors: The errors of nodes that failed after they were asked to end, by name.
        on_restart: Called with the name of each node that is restarted.
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
        self._due: dict[str, float] = {}  # when nodes are to be restarted
        self._returned: set[str] = set()
        self._stopping: set[str] = set()

    def start(self, name: str) -> None:
        """Starts a node, or restarts it."""
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
        """Returns whether a node was started and has not ended."""
        return name in self._running

    def is_expected(self, name: str) -> bool:
        """Returns whether a node runs, or is going to be restarted."""
        return name in self._running or name in self._due

    def has_returned(self, name: str) -> bool:
        """Returns whether a node ended without an error."""
        return name in self._returned

    def watch(self, timeout_seconds: float) -> None:
        """Watches the nodes until one has ended or the time is up, and restarts nodes that are due.

        Raises:
            ProgramFailed: A node that the program needs has failed too often, or the engine is lost.
        """
        try:
            self._launched.endure()
        except graph.EngineLost as lost:
            self._stopping.update(self.restarts)  # nothing can be restarted
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
                except ProgramFailed as failure:  # raised after all ended nodes are recorded
                    failed = failed or failure
        if failed is not None:
            raise failed
        now = time.monotonic()
        for name in [name for name, due in self._due.items() if due <= now]:
            del self._due[name]
            self.start(name)

    def ask_to_end(self, names: Iterable[str]) -> None:
        """Asks nodes to end; nodes that are waiting to be restarted stay ended."""
        for name in names:
            self._stopping.add(name)
            self._due.pop(name, None)
            if name in self._running:
                self._launched.stop(name)

    def wait_for_end(self, names: Iterable[str], timeout_seconds: float) -> list[str]:
        """Waits until nodes have ended; returns those that have not ended in time."""
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
            _logger.warning("%s has not ended within %.0f s; no longer waiting for it", name, timeout_seconds)
        return left

    def _note_end(self, name: str, error: Exception, died: bool) -> None:
        """Records the error of a node that was asked to end."""
        if isinstance(error, graph.NodeLeft):  # its `run` returned first
            return
        self.end_errors[name] = _describe(error, died)
        _logger.warning("%s failed while it ended: %s", name, self.end_errors[name])

    def _take_up(self, name: str, error: Exception, died: bool) -> None:
        if isinstance(error, graph.NodeDoomed):
            raise ProgramFailed(str(error)) from error
        node = self._program[name]
        now = time.monotonic()
        has_left = isinstance(error, graph.NodeLeft)  # by no fault of its own
        is_idle = not (has_left or self.has_worked(name, self._incarnations[name]))
        is_quick = is_idle or now - self._started_at[name] < _QUICK_SECONDS
        self._quick_ends[name] = self._quick_ends[name] + 1 if is_quick else 0
        what = _describe(error, died)
        what += " before it had done any work" * (died and is_idle)
        if not has_left:
            self._idle_ends[name] = self._idle_ends[name] + 1 if is_idle else 0
        if is_idle or not (died or has_left):
            recent = [at for at in self._failures[name] if now - at < _WINDOW_SECONDS] + [now]
            self._failures[name] = recent
            times = max(len(recent), self._idle_ends[name])
            if times > (_FIRST_ERRORS if died and self._is_hopeless(node.kind) else node.max_errors):
                self._give_up(node, f"failed {times} times, the last time: {what}", error)
                return
        pause = min(0.5 * 2 ** self._quick_ends[name] - 0.5, _MAX_BACKOFF_SECONDS)
        _logger.warning("%s ended (%s); restarting it in %.1f s", name, what, pause)
        self._due[name] = now + pause

    def _is_hopeless(self, kind: str) -> bool:
        """Returns whether all nodes of this kind are actors that have failed and never worked."""
        names = [node.name for node in self._program.of_kind(kind)]
        return kind == "actor" and all(self._idle_ends[x] and not self.has_worked(x, 0) for x in names)

    def _give_up(self, node: graph.Node, why: str, error: Exception) -> None:
        others = {other.name for other in self._program.of_kind(node.kind)} - {node.name, *self.given_up}
        if node.needed == "each" or (node.needed == "one" and not others):
            need = f"The run needs each {node.kind}, but node" if others else "Node"
            raise ProgramFailed(f"{need} {node.name} {why}") from error
        self.given_up[node.name] = why
        _logger.error("%s %s; the run continues without it", node.name, why)


def _describe(error: Exception, died: bool) -> str:
    if isinstance(error, graph.NodeLeft):
        return str(error)
    if died:  # the engine's message is long and seldom gives the reason
        return "its process died"
    return str(error) if isinstance(error, graph.NodeDoomed) else f"{type(error).__name__}: {error}"
