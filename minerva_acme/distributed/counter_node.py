"""The node that counts: it adds up, stores and logs the reports of all nodes."""

import contextlib
import dataclasses
import json
import logging
import os
import pathlib
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from minerva_acme import counting
from minerva_acme.distributed import graph
from minerva_acme.machine import reading
from minerva_acme.runs import config as experiment_config
from minerva_acme.runs import run_logs

_logger = logging.getLogger(__name__)

Counts = dict[str, counting.Number]

BEFORE = "before"
"""The name under which the counts of the checkpoint are kept that the run resumed from."""


class Report(NamedTuple):
    """A report that a node sends regularly."""

    node: str
    incarnation: int
    number: int  # counted from 1; a report that was lost is sent again with the same number
    counts: Counts  # all counts of this incarnation so far, so that nothing is counted twice
    status: dict[str, float]
    rows: list[tuple[str, dict[str, Any]]]  # rows of logs, each with the label of its logger
    alone: bool = False  # whether it resumed its counts from a checkpoint: older incarnations do not count
    wants: int = 0  # environment steps that it makes at a time, if it wants more of them; 0 for none now
    has_worked: bool = False  # whether this incarnation has made a step, an update or an evaluation


class Reply(NamedTuple):
    """The counter's reply to a report."""

    others: Counts  # the counts of the program without this incarnation
    facts: dict[str, Any]
    lease: int = 0  # the total number of environment steps that this incarnation may make


OVER = "over"
"""The fact that no more environment steps are counted."""

GIVEN_UP = "given_up"
"""The fact that holds the nodes that were given up, and the reasons."""

_LOOK_SECONDS = 0.5
_FAILING_SECONDS = 30.0  # for which writing may fail before the node ends
_AHEAD = 4  # a lease covers the steps since the node's last report, times this


@dataclasses.dataclass(eq=False, kw_only=True)
class CounterNode(graph.Part):
    """Holds the counts, the facts and the logs of a run.

    Every report is stored before it is answered. So whichever process is killed, including this one, no
    answered report is lost and none is counted twice. If a node is killed, its steps since its last report,
    up to half a second, are not counted.

    The counter leases environment steps to the actors, no more than the run has left, so that together they
    make `num_env_steps` and, with vectors of environments, at most one more step of each environment. A lease
    covers the next few reports, and near the end a small share of the remaining steps. Steps that an
    incarnation has not used are returned when the next one reports, when the actor is given up, or when it
    reports that it wants no steps for now.
    """

    exports = ("report", "overview", "put", "write_film")

    config: experiment_config.ExperimentConfig
    """The run's config."""
    description: Mapping[str, Any]
    """The run's description, for its logs."""
    journal: str
    """The file that reports are stored in."""
    counts: Counts
    """The counts that the run begins with."""
    facts: Mapping[str, Any]
    """The facts that it begins with."""
    num_actors: int
    """The number of actors that share the run's steps."""
    cut: Mapping[str, int]
    """The last step to keep of each log, see `RunLogs.cut`."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._path = pathlib.Path(self.journal)
        own = {name: value for name, value in self.counts.items() if name.startswith("learner_")}
        rest = {name: value for name, value in self.counts.items() if name not in own}
        # By node and incarnation; the learner's first report replaces its entry.
        self._counts: dict[str, dict[int, Counts]] = {BEFORE: {0: rest}, "learner": {-1: own}}
        self._numbers: dict[str, int] = {}  # the numbers of the last reports, by node and incarnation
        self._leases: dict[str, tuple[int, int]] = {}  # by node: the incarnation, and its total leased steps
        self._worked: dict[str, int] = {}  # the newest incarnation of each node that has done any work
        self._facts: dict[str, Any] = dict(self.facts)
        self._status: dict[str, dict[str, float]] = {}
        self._episode_return: float | None = None  # the last one that was reported
        self._logs: run_logs.RunLogs | None = None
        self._num_rows: dict[str, tuple[int, int]] = {}  # the newest report's number, and its rows written
        self._failing_since: float | None = None
        self._error: Exception | None = None  # ends the node
        self._is_new = not self._path.exists()
        if not self._is_new:
            self._read_journal()

    def run(self) -> None:
        with contextlib.ExitStack() as resources:
            with self._lock:
                logs = run_logs.RunLogs(self.config, self.description, resources)
                if self._is_new:
                    logs.cut(**self.cut)
                    self._write_journal()
                self._logs = logs
            while self._error is None and not self.context.stop.wait(_LOOK_SECONDS):
                pass
            with self._lock:
                self._logs = None
            if self._error is not None:
                raise self._error

    def report(self, report: Report) -> Reply:
        """Processes a report.

        Raises:
            NodeSilence: The logs are not open, or something could not be written. Send it again.
        """
        with self._lock, self._writing():
            logs = self._open_logs()
            slot = f"{report.node}#{report.incarnation}"
            of_node = self._counts.setdefault(report.node, {})
            made = _env_steps(report.counts) - _env_steps(of_node.get(report.incarnation, {}))
            is_late = made > 0 and OVER in self._facts
            if report.number > self._numbers.get(slot, 0) and not is_late:
                if not report.alone:
                    of_node[report.incarnation] = report.counts
                elif report.incarnation >= max(of_node, default=-1):
                    self._counts[report.node] = {report.incarnation: report.counts}
                self._status[report.node] = report.status
                if report.has_worked:
                    self._worked[report.node] = max(report.incarnation, self._worked.get(report.node, 0))
                self._lease(report, made)
                self._write_rows(report, slot, logs)
                self._write_journal({**self._numbers, slot: report.number})
            incarnation, lease = self._leases.get(report.node, (-1, 0))
            return Reply(
                self._total(but=(report.node, report.incarnation)),
                self._facts,
                lease if incarnation == report.incarnation else 0,
            )

    def overview(self) -> dict[str, Any]:
        """Returns the state of the run: counts, facts, each node's last status and newest incarnation with
        any work done, the newest return and the learner's newest row."""
        with self._lock:
            row = dict(self._logs.newest_row.row) if self._logs is not None else {}
            return {
                "counts": self._total(),
                "facts": self._facts,
                "status": self._status,
                "worked": self._worked,
                "episode_return": self._episode_return,
                "row": {name: value for name, value in row.items() if not isinstance(value, str)},
            }

    def put(self, name: str, value: Any) -> None:
        """Stores a fact, a value that JSON can hold.

        Raises:
            NodeSilence: It could not be written.
        """
        with self._lock, self._writing():
            self._facts = {**self._facts, name: value}
            self._write_journal()

    def write_film(self, gif: bytes, step: int) -> None:
        """Logs the video of an evaluation.

        Raises:
            NodeSilence: The logs are not open, or it could not be written.
        """
        with self._lock, self._writing():
            self._open_logs().write_film(gif, step=step)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Wraps writing. The disk may be full for a moment: then the caller tries again.

        Any other error, and one that lasts, ends the node, and with it, after a few restarts, the run.

        Raises:
            CannotWrite: Something could not be written.
        """
        try:
            yield
        except graph.NodeSilence:
            raise
        except Exception as error:
            now = time.monotonic()
            self._failing_since = self._failing_since or now
            if not isinstance(error, OSError) or now - self._failing_since > _FAILING_SECONDS:
                self._error = error
            raise graph.CannotWrite(f"The counts and logs of the run cannot be written: {error}") from None
        self._failing_since = None

    def _write_rows(self, report: Report, slot: str, logs: run_logs.RunLogs) -> None:
        """Writes the rows of a report, without those that were written before an error."""
        number, written = self._num_rows.get(slot, (0, 0))
        for index in range(written if number == report.number else 0, len(report.rows)):
            label, row = report.rows[index]
            if label == "actor":
                self._episode_return = row.get("episode_return")
            getattr(logs, label).write(row)
            self._num_rows[slot] = report.number, index + 1

    def _lease(self, report: Report, made: int) -> None:
        """Leases steps to a node.

        Args:
            report: The node's report.
            made: The steps that it has made since the previous report.
        """
        incarnation, lease = self._leases.get(report.node, (-1, 0))
        if report.incarnation < incarnation or not (report.wants or lease):
            return
        own = _env_steps(report.counts)
        if report.incarnation > incarnation or not report.wants:
            lease = own
        if report.wants:
            left = self.config.num_env_steps - _env_steps(self._total())
            for node, (other, steps) in self._leases.items():
                if node != report.node and node not in self._facts.get(GIVEN_UP, ()):
                    left -= max(0, steps - _env_steps(self._counts[node][other]))
            share = max(report.wants, left // (2 * self.num_actors))
            lease = max(lease, own + min(max(report.wants, _AHEAD * made), share, max(0, left)))
        self._leases[report.node] = report.incarnation, lease

    def _open_logs(self) -> run_logs.RunLogs:
        if self._logs is None:
            raise graph.NodeSilence("The counter has not opened its logs, or has closed them.")
        return self._logs

    def _total(self, but: tuple[str, int] | None = None) -> Counts:
        total: Counts = {}
        for node, incarnations in self._counts.items():
            for incarnation, counts in incarnations.items():
                # The learner's current counts include the counts of its earlier incarnations.
                if (node, incarnation) == but or (but and node == but[0] == "learner"):
                    continue
                for name, value in counts.items():
                    total[name] = total.get(name, 0) + value
        return total

    def _write_journal(self, numbers: dict[str, int] | None = None) -> None:
        """Writes the file. Args: numbers: The new `_numbers`, or None for no change."""
        content = {
            "counts": self._counts,
            "numbers": numbers or self._numbers,
            "facts": self._facts,
            "leases": self._leases,
            "worked": self._worked,
        }
        new = self._path.with_name(f"{self._path.name}.new")
        new.write_text(json.dumps(content), encoding="utf-8")
        os.replace(new, self._path)
        self._numbers = numbers or self._numbers

    def _read_journal(self) -> None:
        content = reading.json_file(self._path, infinite=True)
        self._counts = {
            node: {int(incarnation): counts for incarnation, counts in of_node.items()}
            for node, of_node in content["counts"].items()
        }
        self._numbers, self._facts = content["numbers"], content["facts"]
        self._leases = {node: tuple(lease) for node, lease in content["leases"].items()}
        self._worked = content["worked"]
        _logger.info("the counter continues from %s", self._path)


def _env_steps(counts: Counts) -> int:
    return int(counts.get("actor_steps", 0))
