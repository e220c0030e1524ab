"""Replay on Reverb: the server that holds the tables and the client that reaches them."""

import contextlib
import errno
import logging
import os
import pathlib
import re
import time
from collections.abc import Collection, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from minerva_acme.machine import reading, writing
from minerva_acme.replay import base, messages, selectors, sizes, waiting
from minerva_acme.replay.reverb import loader, log, ports, wire_format
from minerva_acme.replay.reverb import sampler as samplers
from minerva_acme.replay.reverb.connection import ReverbConnection
from minerva_acme.replay.reverb.sampler import ReverbSampler
from minerva_acme.replay.reverb.writer import ReverbWriter

_logger = logging.getLogger(__name__)

# Longer than gRPC waits before it retries an address that an earlier server used.
_START_SECONDS = 40.0
_WAKE_SECONDS = 2.0
ITEM_BYTES = 1000  # approximately, without rows; measured: 870 for items of 20 rows, 1,600 for items of one


class ReverbServer(base.ReplayServer):
    """A Reverb server in this process that holds tables.

    Reverb listens on every network interface, without authentication. Unless `public` is set, only this
    machine can reach it; see `ports.kept_to_this_machine`.
    """

    def __init__(
        self,
        tables: Sequence[base.TableConfig],
        port: int | None = None,
        checkpoint_directory: str | None = None,
        restore_from: str | None = None,
        public: bool = False,
    ) -> None:
        """Starts the server.

        Args:
            tables: The tables to hold.
            port: The port to listen on; None for a free port.
            checkpoint_directory: The folder for `ReplayClient.checkpoint`. Each server writes into its own
                subfolder and keeps only the newest checkpoint. None for the parent folder of
                `restore_from`; without either, no checkpoints are written.
            restore_from: The checkpoint to start from, as `ReplayClient.checkpoint` returned it; None
                to start empty, whatever is in `checkpoint_directory`.
            public: Whether other machines can connect.

        Raises:
            ReplayError: The port is in use, the process may open too few files, the checkpoint is missing,
                unfinished or of other tables, or Reverb cannot sample a table as its config says.
        """
        messages.check_names(tables)
        check_selectors(tables)
        loader.ensure_descriptors()
        sizes.report(tables, ITEM_BYTES)
        if port is None:
            port = ports.free_port()
        else:
            ports.check_free(port)
        pybind = loader.load()
        reverb_tables = [_make_table(pybind, table) for table in tables]
        checkpoint = None
        if restore_from is not None:
            # Reverb would start empty, or with the checkpoint's own settings, without a warning.
            checkpoint = pathlib.Path(restore_from).resolve()
            messages.check_finished(checkpoint, "reverb")
            with messages.explain_damage(checkpoint):
                for path in checkpoint.iterdir():
                    reading.open_file(path).close()  # Reverb would wait for a pipe
                described = {table.name: table for table in wire_format.read_checkpoint(checkpoint)}
                found = {name: table.settings() for name, table in described.items()}
            messages.check_checkpoint(checkpoint, found, map(messages.describe, tables))
        # Reverb prefers any checkpoint in its folder to `restore_from`, so each server uses a new folder.
        # Reverb creates it when it writes the first checkpoint.
        folder = checkpoint_directory or (checkpoint and checkpoint.parent)
        reach = contextlib.nullcontext() if public else ports.kept_to_this_machine(port)
        damage = messages.explain_damage(checkpoint) if checkpoint else contextlib.nullcontext()
        with log.quiet(), reach, damage:
            checkpointer = folder and pybind.create_default_checkpointer(
                str(pathlib.Path(folder).resolve() / f"server-{time.time_ns()}"),
                "",
                str(checkpoint) if checkpoint else None,
            )
            self._server: Any = waiting.call(
                lambda: pybind.Server(reverb_tables, port, checkpointer),
                base.ReplayTimeout(f"Waiting for Reverb to restore {checkpoint or 'nothing'}."),
            )
        self._port = port
        self._tables = {table.name: table for table in tables}
        samplers.begin_keeping(self.address)
        try:
            with ReverbClient(self.address, answer_seconds=_START_SECONDS) as client:
                for table in tables:
                    info = client.table_info(table.name)
                    if checkpoint is not None:
                        expected = described[table.name].size
                        if info.size != expected:
                            raise base.ReplayError(
                                f"The checkpoint '{checkpoint}' is damaged: table '{table.name}' must have "
                                f"{expected} items, got {info.size}. Restore an older one."
                            )
                        _logger.info("restored table '%s' with %d items", table.name, info.size)
        except BaseException:
            self.close()
            raise

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return self._port

    @property
    def address(self) -> str:
        return f"localhost:{self._port}"

    def client(self, timeout_seconds: float = base.TIMEOUT_SECONDS) -> "ReverbClient":
        """Returns a client; see `ReplayServer.client`. It reads the tables without using the network."""
        return ReverbClient(self.address, timeout_seconds)

    def close(self) -> None:
        if self._server is not None:
            self._wake_samplers()
            with log.quiet():
                self._server.Stop()
                self._server = None
            samplers.end_keeping(self.address)

    def _wake_samplers(self) -> None:
        """Closes this process's samplers, and wakes those that wait inside Reverb for items.

        Otherwise they would wait for ever. Without a server, Reverb tries again without a pause, which takes
        a whole core, and keeps the table's items. Nothing but an item wakes them, so some of zeros are
        written.
        """
        for sampler in samplers.close_all_of(self.address):
            signature = self._tables[sampler.table].signature
            longest = max(field.length for field in signature.fields.values())
            windows = {name: base.Window(f.column, 0, f.length) for name, f in signature.fields.items()}
            deadline = time.monotonic() + _WAKE_SECONDS
            client = ReverbClient(self.address, _WAKE_SECONDS, _WAKE_SECONDS)
            with contextlib.suppress(base.ReplayError), client.writer(longest) as writer:
                for _ in range(longest):
                    writer.append({name: np.zeros(*column) for name, column in signature.columns.items()})
                while sampler.is_running() and time.monotonic() < deadline:
                    writer.create_item(sampler.table, 1.0, windows)
                    writer.flush()
            if sampler.is_running():
                _logger.warning(
                    "a sampler of table '%s' still waits for items; it may occupy a core until this process "
                    "ends",
                    sampler.table,
                )


class ReverbClient(base.ReplayClient):
    """A client that reads and writes the tables of a `ReverbServer`, in this process or another."""

    def __init__(
        self, address: str, timeout_seconds: float = base.TIMEOUT_SECONDS, answer_seconds: float = 10.0
    ) -> None:
        """Makes a client. The server is not contacted before it is needed.

        Args:
            address: The server's address, `host:port`.
            timeout_seconds: The time for which a rate limiter or an absent server may hold a writer back.
            answer_seconds: The time for which a server may be silent before it counts as gone.
        """
        base.check_timeout(timeout_seconds)
        self._connection = ReverbConnection(address, answer_seconds)
        self._timeout_seconds = timeout_seconds

    @property
    def address(self) -> str:
        """The server's address."""
        return self._connection.address

    def writer(self, max_window: int, narrow_columns: Collection[str] = ()) -> ReverbWriter:
        return ReverbWriter(self._connection, max_window, self._timeout_seconds, narrow_columns)

    def sampler(self, table: str, exact: bool | None = None) -> ReverbSampler:
        """Returns a sampler of one table.

        Args:
            table: The table's name.
            exact: Whether to take only the requested items from the server; otherwise more are fetched
                ahead, which is faster. None is exact only if it matters: if the order is fixed, or if an
                item can be sampled only a limited number of times.
        """
        return ReverbSampler(self._connection, table, exact)

    def check_table(self, config: base.TableConfig) -> None:
        found = self._connection.table(config.name).settings()
        messages.check_same(f"at {self.address}", found, messages.describe(config))

    def table_info(self, table: str) -> base.TableInfo:
        return self._connection.table(table).info()

    def update_priorities(self, table: str, keys: np.ndarray, priorities: np.ndarray) -> None:
        keys, priorities = messages.check_priorities(keys, priorities)
        updates = list(zip(keys.tolist(), priorities.tolist(), strict=True))
        connection = self._connection
        try:
            waiting.call(
                lambda: connection.client.MutatePriorities(table, updates, []),
                connection.silence(),
                connection.answer_seconds,
            )
        except base.ReplayError:
            raise
        except (RuntimeError, ValueError) as error:
            connection.table(table)  # Raises an error if there is no such table, or no server.
            raise base.ReplayError(f"Table '{table}' did not take the priorities: {error}") from error

    def checkpoint(self) -> str:
        self._connection.tables()
        reason = base.ReplayTimeout(f"Waiting for a checkpoint of the replay server at {self.address}.")
        try:
            with log.quiet():
                folder = str(waiting.call(self._connection.client.Checkpoint, reason))
            # Reverb does not notice a full disk if only the last kilobytes of a file do not fit.
            for path in sorted(pathlib.Path(folder).glob("*.tfrecord")):
                if not wire_format.is_whole(path):
                    raise OSError(f"{path}; {os.strerror(errno.ENOSPC)}, so that its end is missing")
            return folder
        except base.ReplayError:
            raise
        except Exception as error:  # Reverb's error codes have different types: a full disk is an IndexError
            cause = messages.NO_DIRECTORY if "no Checkpointer" in str(error) else _explain_failure(str(error))
            raise base.ReplayError(messages.no_checkpoint(f"at {self.address}", cause)) from error

    def close(self) -> None:
        """Does nothing. Writers and samplers are closed separately."""


def check_selectors(tables: Sequence[base.TableConfig]) -> None:
    """Checks that Reverb can select items as the tables say.

    An item's priority on Reverb is a number that clients set one by one. It cannot fall with every insert,
    and a new item's priority is set where it is written, which is not where the largest one is known.

    Raises:
        ReplayError: It cannot; the message names the table and what to do instead.
    """
    for table in tables:
        if table.ring is not None:
            raise base.ReplayError(
                f"Table '{table.name}' must hold items that writers create one by one to be on Reverb, got "
                "batched steps in tensors. Replay in memory can do that, in a run of one process: --replay "
                "memory, in Python replay='memory'."
            )
        if table.sampler.reverb is None or table.remover.reverb is None:
            raise base.ReplayError(
                f"Table '{table.name}' must be sampled uniformly, in order or by priorities that clients set "
                f"to be on Reverb, got {messages.describe(table).sampler}. Replay in memory can do that, in "
                "a run of one process: --replay memory, in Python replay='memory'."
            )


def _explain_failure(found: str) -> str:
    """Returns why a checkpoint was not written, and removes the incomplete one that Reverb leaves behind."""
    path, has_path, reason = found.partition("; ")
    folder = pathlib.Path(path).parent
    if not (has_path and folder.parent.is_dir()):  # on another machine, or an error of another kind
        return found.strip().rstrip(".")
    # The name comes from a server, so only files that Reverb leaves behind are removed.
    if re.fullmatch("server-[0-9]+", folder.parent.name):
        with contextlib.suppress(OSError):
            for file in (*folder.glob("*.tfrecord"), *folder.glob("DONE")):
                file.unlink()
            folder.rmdir()
    full = OSError(errno.ENOSPC, reason)
    said = writing.cannot_write(path, full if os.strerror(errno.ENOSPC) in reason else OSError(reason))
    return f"{said}. Free some space or check the permissions there"


def _make_table(pybind: ModuleType, config: base.TableConfig) -> Any:
    def make_selector(selector: selectors.Selector) -> Any:
        return getattr(pybind, f"{type(selector).__name__}Selector")(*selector.reverb or ())

    return pybind.Table(
        name=config.name,
        sampler=make_selector(config.sampler),
        remover=make_selector(config.remover),
        max_size=config.max_size,
        max_times_sampled=config.max_times_sampled,
        rate_limiter=pybind.RateLimiter(*messages.limits(config.rate_limiter)),
        extensions=[],
        signature=wire_format.encode_signature(config.signature, messages.describe(config).contents),
    )
