"""Runs a program in threads of this process: for debugging and for tests."""

import importlib
import queue
import threading
import time
from typing import Any

from minerva_acme.distributed import graph

_STOP_SECONDS = 5.0


def build(node: graph.Node, context: graph.Context) -> graph.Part:
    """Makes a node's part."""
    module, _, name = node.factory.partition(":")
    part: graph.Part = getattr(importlib.import_module(module), name)(context, **node.arguments)
    return part


def call(node: str, part: graph.Part | None, method: str, arguments: tuple[Any, ...]) -> Any:
    """Calls a method of a node by its name.

    Raises:
        NodeSilence: The node is not built.
        ValueError: The node exports no such method.
    """
    if part is None:
        raise graph.NodeSilence(f"Node {node} is starting.")
    if method not in part.exports:
        raise ValueError(f"Node {node} has no `{method}`; it exports {', '.join(part.exports) or 'nothing'}.")
    return getattr(part, method)(*arguments)


class InlineEngine:
    """An engine in which every node is a thread. None can be killed, and a part that never returns stays."""

    def connect(self, num_cpus: int) -> str:
        del num_cpus
        return "localhost"

    def close(self) -> None:
        pass

    def launch(self, program: graph.Program) -> "InlineProgram":
        """Prepares a program."""
        return InlineProgram(program)


class InlineProgram:
    """A program in threads; see `graph.Launched`."""

    def __init__(self, program: graph.Program) -> None:
        self._program = program
        self._parts: dict[str, graph.Part] = {}
        self._stops: dict[str, threading.Event] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._ended: queue.Queue[graph.Ended] = queue.Queue()

    def start(self, name: str, incarnation: int) -> None:
        self._stops[name] = threading.Event()
        self._threads[name] = threading.Thread(
            target=self._run, args=(self._program[name], incarnation), name=name, daemon=True
        )
        self._threads[name].start()

    def wait(self, timeout_seconds: float) -> list[graph.Ended]:
        try:
            ended = [self._ended.get(timeout=timeout_seconds)]
        except queue.Empty:
            return []
        while not self._ended.empty():
            ended.append(self._ended.get())
        return ended

    def handle(self, name: str) -> graph.Handle:
        return _Handle(name, self._parts)

    def stop(self, name: str) -> None:
        if name in self._stops:
            self._stops[name].set()

    def endure(self) -> None:
        pass

    def silence(self, name: str) -> float:
        del name
        return 0.0

    def about(self) -> dict[str, dict[str, float]]:
        return {}

    def close(self) -> None:
        deadline = time.monotonic() + _STOP_SECONDS
        for name, thread in self._threads.items():
            self._stops[name].set()
            thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self, node: graph.Node, incarnation: int) -> None:
        error: Exception | None = None
        context = graph.Context(node, incarnation, self.handle, self._stops[node.name])
        try:
            part = build(node, context)
            self._parts[node.name] = part
            part.run()
        except Exception as raised:
            error = raised
        self._parts.pop(node.name, None)
        self._ended.put(graph.Ended(node.name, error, died=False))


class _Handle:
    def __init__(self, name: str, parts: dict[str, graph.Part]) -> None:
        self._name = name
        self._parts = parts

    def call(self, method: str, *arguments: Any, timeout_seconds: float = 10.0) -> Any:
        del timeout_seconds  # the caller's own thread makes the call
        answer = call(self._name, self._parts.get(self._name), method, arguments)
        return answer.value if isinstance(answer, graph.Shared) else answer
