"""Real Reverb servers, in this process and in others."""

import contextlib
import dataclasses
import pathlib
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from minerva_acme import replay

WINDOW = 3

# Rows of two floats at every step, an image at some steps, an integer at every step.
SIGNATURE = replay.ItemSignature(
    columns={
        "float32": replay.ColumnSpec((2,), np.dtype(np.float32)),
        "image": replay.ColumnSpec((2, 2, 1), np.dtype(np.uint8)),
        "int32": replay.ColumnSpec((), np.dtype(np.int32)),
    },
    fields={
        "step": replay.FieldSpec("float32", WINDOW),
        "image": replay.FieldSpec("image", 1),
        "count": replay.FieldSpec("int32", 1),
    },
)
TABLE = replay.TableConfig(name="replay", signature=SIGNATURE, max_size=1000, rate_limiter=replay.MinSize(1))

_SERVER_SCRIPT = """
    import sys, time
    sys.path.insert(0, {folder!r})
    import conftest
    from minerva_acme import replay
    server = replay.ReverbServer([conftest.TABLE], port={port})
    print(server.port, flush=True)
    time.sleep(600)
"""


@pytest.fixture(scope="session")
def table() -> Callable[..., replay.TableConfig]:
    """Makes a table's description: `table(max_size=10)`."""
    return lambda **changes: dataclasses.replace(TABLE, **changes)


@pytest.fixture
def serve() -> Iterator[Callable[..., replay.ReverbServer]]:
    """Starts servers that are stopped with the test: `serve(table, port=None, ...)`."""
    with contextlib.ExitStack() as servers:
        yield lambda *tables, **options: servers.enter_context(replay.ReverbServer(tables, **options))


@pytest.fixture(scope="session")
def write() -> Callable[..., None]:
    """Writes an episode: `write(client, first, num_items)`; item i begins at the row of number i."""

    def function(client: replay.ReplayClient, first: int = 0, num_items: int = 1, **options: Any) -> None:
        with client.writer(WINDOW) as writer:
            write_items(writer, first, num_items, **options)
            writer.end_episode()

    return function


@pytest.fixture(scope="session")
def write_with() -> Callable[..., None]:
    """Writes items with a writer of the test's own: `write_with(writer, first, num_items)`."""
    return write_items


def write_items(
    writer: replay.Writer, first: int = 0, num_items: int = 1, table: str = "replay", priority: float = 1.0
) -> None:
    """Row t holds the number `first + t`; every second row has an image."""
    for t in range(num_items + WINDOW - 1):
        number = first + t
        rows = {"float32": np.array([number, -number], np.float32), "int32": np.array(number, np.int32)}
        if t % 2 == 0:
            rows["image"] = np.full((2, 2, 1), number % 256, np.uint8)
        writer.append(rows)
        start = t - WINDOW + 1
        if start >= 0:
            fields = {
                "step": replay.Window("float32", start, WINDOW),
                "image": replay.Window("image", t // 2, 1),
                "count": replay.Window("int32", t, 1),
            }
            writer.create_item(table, priority, fields)


class ServerProcess:
    """A server in a process of its own, to be killed."""

    def __init__(self, folder: str, port: int | None = None) -> None:
        script = textwrap.dedent(_SERVER_SCRIPT).format(folder=folder, port=port)
        self._process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        self.address = f"localhost:{self.port}"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self.kill()
        self._process.stdout.close()


@pytest.fixture
def server_process(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    """A server, with the table `replay`, in a process of its own."""
    process = ServerProcess(str(pathlib.Path(__file__).parent))
    yield process
    process.close()
