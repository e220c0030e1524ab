"""Finds, checks and protects the port that a server listens on."""

import os
import pathlib
import socket

from minerva_acme.replay import base

_handed_out: set[int] = set()


def free_port() -> int:
    """Returns a port that nobody listens on, and that was not returned before in this process.

    After a failure gRPC retries an address only after up to 30 seconds, for all clients of a process: a
    server on the port of an earlier one would seem not to answer for that long.
    """
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    while True:
        with socket.create_server(("", 0), family=family, dualstack_ipv6=dual) as server:
            port: int = server.getsockname()[1]
        if port not in _handed_out:
            _handed_out.add(port)
            return port


def check_free(port: int) -> None:
    """Checks that nobody listens on a port.

    Reverb itself would share it without a warning, and the kernel would send clients to either server.

    Raises:
        ReplayError: the port is in use.
    """
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            probe = socket.socket(family, socket.SOCK_STREAM)
        except OSError:  # no such protocol on this machine
            continue
        with probe:
            # Connections of an earlier server that are still closing are no obstacle.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                probe.bind((address, port))
            except OSError as error:
                raise base.ReplayError(
                    f"`port` must be a free one, got {port}: {error.strerror}. Stop what listens there, "
                    "choose another, or pass None for a free one."
                ) from None


def keep_to_this_machine(port: int) -> bool:
    """Closes this process's listening sockets on a port to other machines; returns whether that worked.

    Reverb always listens on every interface. Binding its socket to the loopback device afterwards
    lets in only what comes from this machine, whichever address it uses.
    """
    bound = False
    for descriptor in pathlib.Path("/proc/self/fd").iterdir():
        try:
            copy = os.dup(int(descriptor.name))
        except OSError:  # closed meanwhile
            continue
        try:
            duplicate = socket.socket(fileno=copy)
        except OSError:  # no socket
            os.close(copy)
            continue
        with duplicate:
            if not _listens_on(duplicate, port):
                continue
            try:
                duplicate.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo\0")
            except OSError:  # kernels before 5.7 want privileges
                return False
            bound = True
    return bound


def _listens_on(candidate: socket.socket, port: int) -> bool:
    return (
        candidate.family in (socket.AF_INET, socket.AF_INET6)
        and candidate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
        and candidate.getsockname()[1] == port
    )
