"""Functions that find, check and protect the port that a server listens on."""

import contextlib
import ctypes
import logging
import os
import pathlib
import socket
import struct
from collections.abc import Collection, Iterator

from minerva_acme.replay import base

_logger = logging.getLogger(__name__)

_SO_ATTACH_REUSEPORT_CBPF = 51  # Linux's; Python has no name for it
# A `struct sock_filter`, "return 0": connections go to the socket that listened first.
_FIRST_OF_GROUP = ctypes.create_string_buffer(struct.pack("=HBBI", 0x06, 0, 0, 0))

_handed_out: set[int] = set()


def free_port() -> int:
    """Returns a port that is not in use, and that was not returned before in this process.

    After a failure, gRPC waits up to 30 seconds before it retries an address, for all clients of a process.
    A server on the port of an earlier one would therefore not seem to answer for that long.
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
    """Checks that a port is not in use.

    Reverb itself would share it without a warning, and the kernel would send clients to either server.

    Raises:
        ReplayError: The port is in use.
    """
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            probe = socket.socket(family, socket.SOCK_STREAM)
        except OSError:  # no such protocol on this machine
            continue
        with probe:
            # Connections of an earlier server that are still closing do not matter.
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


@contextlib.contextmanager
def kept_to_this_machine(port: int) -> Iterator[None]:
    """Protects a server that is started inside this context, so that other machines can never reach it.

    Reverb always listens on every interface, from its start. Sockets that listen there first, and that
    the kernel is told to prefer, meanwhile take all connections and answer none. At the end the server's own
    sockets are bound to the loopback device, which accepts only connections from this machine. A warning is
    logged if the system cannot do that.
    """
    with contextlib.ExitStack() as guards:
        held = [guards.enter_context(guard) for guard in _guard(port)]
        yield
        if not _bind_to_loopback(port, but={guard.fileno() for guard in held}):
            _logger.warning(
                "other machines can reach port %d, without authentication; close it with a firewall", port
            )


def _guard(port: int) -> Iterator[socket.socket]:
    """Yields sockets that take the connections to a port, for each protocol on which gRPC may listen."""
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        dual = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        try:
            # With the same options as gRPC, so that the kernel treats the sockets as a group.
            guard = socket.create_server((address, port), family=family, dualstack_ipv6=dual, reuse_port=True)
        except OSError:  # no such protocol on this machine
            continue
        try:
            # A `struct sock_fprog`: the number of instructions and their address.
            program = struct.pack("@HP", 1, ctypes.addressof(_FIRST_OF_GROUP))
            guard.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_REUSEPORT_CBPF, program)
        except OSError as error:  # Linux before 4.5
            _logger.warning("other machines can reach port %d while its server starts: %s", port, error)
        yield guard


def _bind_to_loopback(port: int, but: Collection[int]) -> bool:
    """Binds this process's sockets that listen on a port to the loopback device; returns whether it worked.

    Args:
        port: The port.
        but: The file descriptors to leave unchanged.
    """
    bound = False
    for descriptor in pathlib.Path("/proc/self/fd").iterdir():
        if int(descriptor.name) in but:
            continue
        try:
            copy = os.dup(int(descriptor.name))
        except OSError:  # closed meanwhile
            continue
        try:
            duplicate = socket.socket(fileno=copy)
        except OSError:  # not a socket
            os.close(copy)
            continue
        with duplicate:
            if not _listens_on(duplicate, port):
                continue
            try:
                duplicate.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo\0")
            except OSError:  # kernels before 5.7 require privileges
                return False
            bound = True
    return bound


def _listens_on(candidate: socket.socket, port: int) -> bool:
    return (
        candidate.family in (socket.AF_INET, socket.AF_INET6)
        and candidate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
        and candidate.getsockname()[1] == port
    )
