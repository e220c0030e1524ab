"""A node that answers, for tests of engines."""

import logging
import os

import numpy as np

from minerva_acme.distributed import graph

_logger = logging.getLogger("minerva_acme.tests")


class Echo(graph.Part):
    """Answers, and ends when it is told to."""

    exports = ("about", "array", "ask", "fail")

    def __init__(self, context: graph.Context, *, error: str = "", farewell: str = "") -> None:
        self._context = context
        self._error = error
        self._farewell = farewell

    def run(self) -> None:
        _logger.warning("run %d begins", self._context.incarnation)
        if self._error:
            raise ValueError(self._error)
        self._context.stop.wait()
        if self._farewell:
            with open(self._farewell, "a", encoding="utf-8") as file:
                file.write(f"{self._context.incarnation}\n")

    def about(self) -> dict[str, object]:
        """Says who it is."""
        return {
            "incarnation": self._context.incarnation,
            "pid": os.getpid(),
            "threads": os.environ.get("OMP_NUM_THREADS"),
            "gpus": os.environ.get("CUDA_VISIBLE_DEVICES"),
        }

    def array(self, key: int, name: str = "") -> graph.Shared:
        """Returns an array that is another one for each key and name."""
        return graph.Shared(key, (np.full(100_000, float(key)), os.urandom(8)), name)

    def ask(self, name: str) -> object:
        """Asks another node who it is."""
        return self._context.handle(name).call("about")

    def fail(self) -> None:
        """Fails."""
        raise KeyError("no such thing")
