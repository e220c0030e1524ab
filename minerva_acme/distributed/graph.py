"""A program: a value that describes nodes which run in parallel and call each other.

It can be printed, pickled and inspected without an engine. An engine turns each node into a thread (`inline`)
or a process (`ray_engine`), and each name into a handle.
"""

import abc
import dataclasses
import threading
from collections.abc import Callable, Hashable, Mapping
from typing import Any, ClassVar, Literal, NamedTuple, Protocol


class NodeSilence(ConnectionError):
    """A node does not answer: it is not built yet, is restarting, or is gone."""


class CannotWrite(NodeSilence):
    """A node answers, but cannot do what it was asked, since it cannot write to the disk."""


class NodeLeft(RuntimeError):
    """A node has ended because the system asked its process to end, or because it has lost a node that it
    works with: it should be started again."""


class NodeDoomed(RuntimeError):
    """Raised by a node's `run` if a restart would do more harm than good: the whole run ends."""


class EngineLost(RuntimeError):
    """The engine can no longer run the program; the message says why."""


class Shared(NamedTuple):
    """A return value for many callers: an engine may transfer `value` only once for each `name` and `key`."""

    key: int
    value: Any
    name: Hashable = ()
    """Distinguishes several values of one method, each with keys of its own."""


class Handle(Protocol):
    """Calls a node by its name, wherever it is and however often it was restarted."""

    def call(self, method: str, *arguments: Any, timeout_seconds: float = 10.0) -> Any:
        """Calls one of the methods that the node exports.

        Raises:
            NodeSilence: There was no answer in time; the next call tries again. The method may have run.
            Exception: The exception that the method raised.
        """


@dataclasses.dataclass(frozen=True, eq=False)
class Context:
    """The context of a node in its program."""

    node: "Node"
    incarnation: int
    """The number of times that the node was started before."""
    handle: Callable[[str], Handle]
    """Returns a handle to another node by its name."""
    stop: threading.Event
    """Set when `run` should return."""

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.name

    @property
    def index(self) -> int:
        """The node's index among the nodes of its kind."""
        return self.node.index


@dataclasses.dataclass(eq=False)
class Part(abc.ABC):
    """The object that a node runs. The node's factory makes it in the node's own thread or process."""

    exports: ClassVar[tuple[str, ...]] = ()
    """The methods that others may call, from any thread. A call may be repeated."""

    context: Context
    """The context of the node."""

    @abc.abstractmethod
    def run(self) -> None:
        """Works until the context's `stop` is set, then releases its resources."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Node:
    """One node of a program."""

    name: str
    """The node's unique name: its kind or, of several of a kind, the kind and an index, as in actor/3."""
    factory: str
    """`module:name` of the factory of its `Part`, called as factory(context, **arguments)."""
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Specs, configs, numbers and paths, never arrays of data. They are sent again with each start."""
    calls: tuple[str, ...] = ()
    """The names of the nodes that it calls; cycles are fine, since handles look nodes up when they call."""
    at_home: bool = False
    """Whether it must be on the caller's machine, which has the run's folder."""
    num_cpus: float = 1.0
    """The number of CPU cores that it occupies."""
    num_gpus: float = 0.0
    """The number of GPUs that it occupies; with 0 it sees none."""
    num_threads: int = 1
    """The number of torch's threads."""
    max_errors: int = 5
    """The number of tolerated failures; after one more the node is given up. See `supervisor.Supervisor`."""
    needed: Literal["each", "one", "none"] = "each"
    """Which nodes of its kind the run needs: each of them, at least one, or none."""
    leave_seconds: float = 10.0
    """The time to return from `run` when the system asks the node's process to end."""

    @property
    def kind(self) -> str:
        """The task of the node: replay, learner, counter, actor or evaluator."""
        return self.name.partition("/")[0]

    @property
    def index(self) -> int:
        """The node's index among the nodes of its kind."""
        return int(self.name.partition("/")[2] or 0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program:
    """Nodes by their names, in the order in which they are started."""

    nodes: tuple[Node, ...]

    def __post_init__(self) -> None:
        names = [node.name for node in self.nodes]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"The names of nodes must differ, got {twice[0]} twice.")
        for node in self.nodes:
            if missing := sorted(set(node.calls) - set(names)):
                raise ValueError(f"{node.name} calls {missing[0]}, but the program has {', '.join(names)}.")

    def __getitem__(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    def of_kind(self, kind: str) -> tuple[Node, ...]:
        """Returns the nodes of a kind."""
        return tuple(node for node in self.nodes if node.kind == kind)

    def __str__(self) -> str:
        lines = [f"{'node':12} {'cpus':>5} {'gpus':>5} {'threads':>7}  {'place':8} calls"]
        for node in self.nodes:
            place = "home" if node.at_home else "anywhere"
            lines.append(
                f"{node.name:12} {node.num_cpus:5g} {node.num_gpus:5g} {node.num_threads:7}  {place:8} "
                f"{', '.join(node.calls) or '-'}"
            )
        return "\n".join(lines)


class Ended(NamedTuple):
    """The end of a node's `run`."""

    name: str
    error: Exception | None  # None if it returned
    died: bool  # whether its process is gone, which need not be an error of its code


class Launched(Protocol):
    """A program that an engine has launched; used by one thread."""

    def start(self, name: str, incarnation: int) -> None:
        """Builds a node and runs it."""

    def wait(self, timeout_seconds: float) -> list[Ended]:
        """Waits until a node ends or the time is up; returns the nodes that ended since the last call."""

    def handle(self, name: str) -> Handle:
        """Returns a handle to call a node by."""

    def stop(self, name: str) -> None:
        """Asks a node to return from `run`. Does not wait."""

    def endure(self) -> None:
        """Checks the machines that the nodes are on; called often.

        Raises:
            EngineLost: The program cannot run any more. Raised once.
        """

    def silence(self, name: str) -> float:
        """Returns for how many seconds a running node has given no sign of life, although all do so often.

        Then its process was stopped, or its machine is lost. 0 if it is not running, or if an engine cannot
        tell.
        """

    def about(self) -> dict[str, dict[str, float]]:
        """Returns the resource use of the nodes that have their own processes, by name."""

    def close(self) -> None:
        """Ends all remaining nodes."""


class Engine(Protocol):
    """Launches programs."""

    def connect(self, num_cpus: int) -> str:
        """Prepares for nodes that occupy `num_cpus` CPUs in total. Returns the name by which others reach
        this machine: `localhost` if all nodes are on it."""

    def launch(self, program: Program) -> Launched:
        """Allocates the nodes of a program, without starting any."""

    def close(self) -> None:
        """Undoes `connect`."""
