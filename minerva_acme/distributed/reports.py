"""Sends a node's counts to the counter, and receives the counts of the other nodes."""

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from minerva_acme import counting, loggers
from minerva_acme.distributed import counter_node, graph
from minerva_acme.loggers import base
from minerva_acme.machine import memory

_logger = logging.getLogger(__name__)

PERIOD_SECONDS = 0.5
"""The time between two reports of a node."""

_MAX_ROWS = 10_000  # the most rows that wait while the counter does not answer
_SILENCE_SECONDS = 10.0  # without an answer of the counter, after which a warning is logged
_RETRY_SECONDS = 0.1
_LAST_SECONDS = 3.0  # for the last report to arrive
_LOOK_SECONDS = 0.1  # between checks whether a node that waits for steps should stop


class SharedCounter(counting.Counter):
    """A counter that adds the counts of the other nodes as they become known."""

    def __init__(self) -> None:
        super().__init__()
        self._others: counter_node.Counts = {}

    def own(self) -> counter_node.Counts:
        """Returns the counts made here."""
        with self._lock:
            return {name: value - self._others.get(name, 0) for name, value in self._counts.items()}

    def own_number(self, name: str) -> counting.Number:
        """Returns one of the counts made here; fast enough for every step."""
        with self._lock:
            return self._counts.get(name, 0) - self._others.get(name, 0)

    def set_others(self, others: counter_node.Counts) -> None:
        """Sets the counts of the other nodes."""
        with self._lock:
            for name in others.keys() | self._others.keys():
                change = others.get(name, 0) - self._others.get(name, 0)
                self._counts[name] = self._counts.get(name, 0) + change
            self._others = dict(others)


class Reporter:
    """Reports in its own thread, by default twice a second. No counts are lost while the counter is silent.

    Attributes:
        counter: The counter that is shared with the other nodes.
        facts: The program's facts, from the last reply.
        status: Returns further numbers to report about the node.
        has_worked: Whether the node has made a step, an update or an evaluation since its start.
        wants: The environment steps that the node makes at a time while it wants to play; otherwise 0.
    """

    def __init__(
        self,
        context: graph.Context,
        *,
        alone: bool = False,
        period_seconds: float = PERIOD_SECONDS,
    ) -> None:
        """Reports nothing yet.

        Args:
            context: The node's context.
            alone: As in `Report`.
            period_seconds: The time between two reports.
        """
        self.counter = SharedCounter()
        self.facts: dict[str, Any] = {}
        self._context = context
        self.status: Callable[[], dict[str, float]] = dict
        self.has_worked = False
        self.wants = 0
        self._lease = 0  # the total number of environment steps that this incarnation may make
        self._leased = threading.Condition()
        self._wake = threading.Event()
        self._alone = alone
        self._period_seconds = period_seconds
        self._handle = context.handle("counter")
        self._number = 0
        self._rows: list[tuple[str, dict[str, Any]]] = []
        self._dropped = 0
        self._unsent: counter_node.Report | None = None
        self._lock = threading.Lock()  # guards the rows
        self._sending = threading.Lock()
        self._answered_at = time.monotonic()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"reports-{context.name}", daemon=True)

    def start(self) -> None:
        """Begins to report. Waits for the first reply, which has the counts of the other nodes.

        If the node is asked to stop meanwhile, this returns without a reply, and nothing is reported.
        """
        while not self._context.stop.is_set():
            try:
                self.send()
            except graph.NodeSilence:
                self._context.stop.wait(_RETRY_SECONDS)
            else:
                self._thread.start()
                return

    def logger(self, label: str) -> loggers.Logger:
        """Returns a logger whose rows the counter writes.

        Args:
            label: The label of the log, as in `RunLogs`.
        """
        return _RemoteLogger(lambda row: self._add_row(label, row))

    def may_play(self, num_env_steps: int) -> bool:
        """Returns whether the node may make an environment step; waits for a lease if its own is used up.

        Args:
            num_env_steps: The environment steps of the whole run.

        Returns:
            False once the run has made its steps or the node is asked to stop.
        """
        is_asked = False
        while not self._has_lease():
            if self._context.stop.is_set() or self.counter.get_count("actor_steps") >= num_env_steps:
                return False
            if not is_asked:
                is_asked = True
                self._wake.set()
            with self._leased:
                self._leased.wait_for(self._has_lease, _LOOK_SECONDS)
        return not self._context.stop.is_set()

    def send(self) -> None:
        """Reports now.

        Raises:
            NodeSilence: The counter did not answer; the next call sends the same report again.
        """
        with self._sending:
            if self._unsent is None:
                status = self.status()
                with self._lock:
                    rows, self._rows = self._rows, []
                self._number += 1
                wants = self.wants
                if not wants:  # the rest of the lease is returned and must not be used any more
                    self._lease = 0
                self._unsent = counter_node.Report(
                    self._context.name,
                    self._context.incarnation,
                    self._number,
                    self.counter.own(),
                    {"memory_mb": memory.resident_bytes() / 1e6, "pid": os.getpid(), **status},
                    rows,
                    self._alone,
                    wants,
                    self.has_worked,
                )
            reply = self._handle.call("report", self._unsent)
            self._unsent = None
            self._answered_at = time.monotonic()
            self.counter.set_others(reply.others)
            self.facts = reply.facts
            with self._leased:
                self._lease = reply.lease
                self._leased.notify_all()

    def close(self) -> None:
        """Sends the last report, if it has begun to report and the counter answers within a few seconds."""
        self.wants = 0
        self._closed.set()
        self._wake.set()
        if self._thread.ident is None:
            return
        if self._thread.is_alive():
            self._thread.join(_LAST_SECONDS)
        deadline = time.monotonic() + _LAST_SECONDS
        with self._lock:
            is_old = self._unsent is not None
        for _ in range(1 + is_old):  # a lost report is sent again first
            while True:
                try:
                    self.send()
                    break
                except graph.NodeSilence as error:
                    if time.monotonic() > deadline:
                        _logger.warning("the last report of %s is lost: %s", self._context.name, error)
                        return
                    time.sleep(_RETRY_SECONDS)

    def _run(self) -> None:
        while True:
            self._wake.wait(self._period_seconds)
            self._wake.clear()
            if self._closed.is_set():
                return
            try:
                self.send()
            except Exception as error:  # a thread that ended would let its node wait for ever
                silent = time.monotonic() - self._answered_at
                if silent > _SILENCE_SECONDS:
                    self._answered_at = time.monotonic()
                    is_silence = isinstance(error, graph.NodeSilence)
                    _logger.warning(
                        "the counter has not answered: %s", error, exc_info=None if is_silence else error
                    )

    def _has_lease(self) -> bool:
        return self.counter.own_number("actor_steps") < self._lease

    def _add_row(self, label: str, row: Mapping[str, Any]) -> None:
        with self._lock:
            self._rows.append((label, base.to_plain(row)))
            if len(self._rows) > _MAX_ROWS:
                del self._rows[0]
                self._dropped += 1
                if self._dropped == 1:
                    _logger.warning("the counter does not answer; the oldest log rows are dropped")


class _RemoteLogger(loggers.Logger):
    def __init__(self, add: Callable[[Mapping[str, Any]], None]) -> None:
        self._add = add

    def write(self, values: Mapping[str, Any]) -> None:
        self._add(values)

    def close(self) -> None:
        pass
