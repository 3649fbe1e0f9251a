"""Sockets to listen on, bound before anything else starts: a port in use is said at once."""

from __future__ import annotations

import errno
import socket

from torpor_protocol.errors import PortError

BACKLOG = 2048


def bind(host: str, port: int, flag: str) -> socket.socket:
    """A bound TCP socket; port 0 takes a free one. ``flag`` names the port's option in the fix.

    Raises PortError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError, OverflowError) as error:
        raise PortError(
            f"The address {host}:{port} is not one that this machine can find.",
            "Give --host an address of this machine, such as 127.0.0.1 or 0.0.0.0.",
        ) from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise _port_error(error, host, port, flag) from error
    return listener


def url_of(listener: socket.socket) -> str:
    """Of a bound socket, as a client on this machine would write it."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _port_error(error: OSError, host: str, port: int, flag: str) -> PortError:
    if error.errno == errno.EADDRINUSE:
        return PortError(
            f"Port {port} on {host} is in use.",
            f"Stop what uses it, or choose another port with {flag}.",
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return PortError(
            f"Port {port} on {host} needs rights that this process lacks.",
            f"Choose a port from 1024 on with {flag}.",
        )
    return PortError(
        f"The address {host}:{port} cannot be bound: {error.strerror}.",
        "Give --host an address of this machine, such as 127.0.0.1 or 0.0.0.0.",
    )
