"""A connection to a Reverb server on which no call waits forever.

Reverb's own calls ignore Ctrl-C while they wait, and most of them wait without a limit, whether the server
is busy or gone. Here every wait is split into slices and has a limit.
"""

import os
import time
from typing import Any

from minerva_acme.replay import base, messages, waiting
from minerva_acme.replay.reverb import loader, wire_format

_PROXY_VARIABLES = ("grpc_proxy", "https_proxy", "http_proxy")
_BYPASS_VARIABLE = "no_grpc_proxy"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class ReverbConnection:
    """A connection through Reverb's own client, with time limits."""

    def __init__(self, address: str, answer_seconds: float) -> None:
        """Makes the connection.

        Args:
            address: The server's address, `host:port`.
            answer_seconds: The time for which the server may be silent.
        """
        if answer_seconds <= 0:
            raise ValueError(f"`answer_seconds` must be > 0, got {answer_seconds}.")
        _bypass_proxy(address)
        loader.ensure_descriptors()
        self.address = address
        self.answer_seconds = answer_seconds
        self.pybind = loader.load()
        self.client: Any = self.pybind.Client(address)

    def tables(self, timeout_seconds: float | None = None) -> dict[str, messages.TableDescription]:
        """Asks the server for its tables.

        Raises:
            ReplaySilence: The server did not answer in time.
        """
        wait = waiting.Wait(timeout_seconds or self.answer_seconds)
        while True:
            try:
                # In whole seconds; 0 would mean no limit.
                encoded = self.client.ServerInfo(1)
            except RuntimeError:
                wait.go_on(self.silence())
                time.sleep(0.05)  # The error may have come immediately.
                continue
            descriptions = map(wire_format.decode_table_info, encoded)
            return {description.name: description for description in descriptions}

    def table(self, name: str, timeout_seconds: float | None = None) -> messages.TableDescription:
        """Asks the server for one table.

        Raises:
            ReplaySilence: The server did not answer in time.
            ReplayError: There is no such table.
        """
        tables = self.tables(timeout_seconds)
        if name not in tables:
            raise base.ReplayError(messages.unknown_table(name, f"at {self.address}", tables))
        return tables[name]

    def silence(self) -> base.ReplaySilence:
        """Returns the error that the server does not answer."""
        proxies = [name for name in _PROXY_VARIABLES if os.environ.get(name)]
        hint = f", and that no_proxy covers it (${proxies[0]} is set)" if proxies else ""
        return base.ReplaySilence(
            f"The replay server at {self.address} does not answer. "
            f"Check that it runs and can be reached{hint}."
        )


def _bypass_proxy(address: str) -> None:
    """Makes connections to this machine bypass a proxy, in which they would hang."""
    host = address.rpartition(":")[0].strip("[]")
    if host in _LOOPBACK and any(os.environ.get(name) for name in _PROXY_VARIABLES):
        bypassed = os.environ.get(_BYPASS_VARIABLE) or os.environ.get("no_proxy") or ""
        hosts = [*filter(None, bypassed.split(",")), *(name for name in _LOOPBACK if name not in bypassed)]
        os.environ[_BYPASS_VARIABLE] = ",".join(hosts)
