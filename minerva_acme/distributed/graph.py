"""A program: nodes that run side by side and call each other, as a value.

It can be printed, pickled and looked at without any engine. An engine makes of each node a thread (`inline`)
or a process (`ray_engine`), and of each name a handle.
"""

import abc
import dataclasses
import threading
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, NamedTuple, Protocol


class NodeSilence(ConnectionError):
    """A node does not answer: it is not built yet, starts again, or is gone."""


class NodeLeft(RuntimeError):
    """A node has ended because its process was asked to, by the system: it is to be started again."""


class NodeDoomed(RuntimeError):
    """A node's `run` raises this where starting it again would lose more than it mends: the run ends."""


class EngineLost(RuntimeError):
    """The engine cannot run the program any more; the message says why."""


class Shared(NamedTuple):
    """What a call returns to many: an engine may hand over `value` once for each `key`."""

    key: int
    value: Any


class Handle(Protocol):
    """Calls a node by its name, wherever it is and however often it was started again."""

    def call(self, method: str, *arguments: Any, timeout_seconds: float = 10.0) -> Any:
        """Calls one of the methods that the node exports.

        Raises:
            NodeSilence: there was no answer in time; the next call tries anew. The method may have run.
            Exception: what the method raised.
        """


class Context:
    """What a node knows of the program around it."""

    def __init__(
        self, node: "Node", incarnation: int, handle: Callable[[str], Handle], stop: threading.Event
    ) -> None:
        """Args: node: itself. incarnation: how often it was started before. handle: finds another node.
        stop: set once `run` is to return."""
        self.name = node.name
        self.index = node.index
        self.incarnation = incarnation
        self.handle = handle
        self.stop = stop


class Part(abc.ABC):
    """What a node is made of: made in its own thread or process by the node's factory, then run."""

    exports: ClassVar[tuple[str, ...]] = ()
    """The methods that others may call, from any thread. A call may come twice."""

    @abc.abstractmethod
    def run(self) -> None:
        """Works until the context's `stop` is set, and releases what it holds."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Node:
    """One node of a program."""

    name: str
    """Of this node alone."""
    kind: Literal["replay", "learner", "counter", "actor", "evaluator"]
    """What it does."""
    factory: str
    """`module:name` of what makes its `Part`: factory(context, **arguments)."""
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Specs, configs, numbers and paths, never arrays of data. They are sent again with each start."""
    index: int = 0
    """Its number among those of its kind."""
    calls: tuple[str, ...] = ()
    """The names of the nodes that it calls; circles are fine, for handles look a node up when they call."""
    at_home: bool = False
    """Whether it must be on the machine of the run's folder, that of the caller."""
    num_cpus: float = 1.0
    """CPU cores that it takes up."""
    num_gpus: float = 0.0
    """GPUs that it takes up; without one it sees none."""
    num_threads: int = 1
    """Threads that torch computes with."""
    max_errors: int = 5
    """Failures that are put up with; after one more the node is given up. See `supervisor.Supervisor`."""
    needed: Literal["each", "one", "none"] = "each"
    """Of the nodes of its kind, those without which the run ends: each, the last one, or none."""
    leave_seconds: float = 10.0
    """Time to return from `run` when the system asks the node's process to end."""


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
        """The nodes that do the same."""
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
    """A node's `run` is over."""

    name: str
    error: Exception | None  # None: it returned
    died: bool  # its process is gone, which says nothing about its code


class Launched(Protocol):
    """A program that an engine holds; used by one thread."""

    def start(self, name: str, incarnation: int) -> None:
        """Builds a node and runs it."""

    def wait(self, timeout_seconds: float) -> list[Ended]:
        """Waits until a node has ended, at most so long; returns those that have since the last call."""

    def handle(self, name: str) -> Handle:
        """Returns a handle to call a node by."""

    def stop(self, name: str) -> None:
        """Asks a node to return from `run`. Does not wait."""

    def endure(self) -> None:
        """Looks after the machines that the nodes are on; called often.

        Raises:
            EngineLost: The program cannot run any more. Raised once.
        """

    def about(self) -> dict[str, dict[str, float]]:
        """What the processes of the nodes take, by name, as far as they have one of their own."""

    def close(self) -> None:
        """Ends what is left of all nodes."""


class Engine(Protocol):
    """Launches programs."""

    def connect(self, num_cpus: int) -> str:
        """Gets ready for nodes that take up so many CPUs; returns how others reach this machine: `localhost`
        where all nodes are on it."""

    def launch(self, program: Program) -> Launched:
        """Makes room for the nodes of a program, of which none is started yet."""

    def close(self) -> None:
        """Undoes `connect`."""
