"""One message on and off a socket, part by part, never blocking.

This is the step path. pyzmq's own helpers for several parts combine flags by slow enum arithmetic
and learn of an empty socket by an exception, which costs more than the frame itself; so flags are
plain integers here, and callers poll before they receive.
"""

from __future__ import annotations

import zmq

_NOW = int(zmq.NOBLOCK)
_NOW_AND_MORE = int(zmq.NOBLOCK) | int(zmq.SNDMORE)


def polled(*sockets: zmq.SyncSocket) -> zmq.Poller:
    """A poller for what comes in on these sockets."""
    poller = zmq.Poller()
    for socket in sockets:
        poller.register(socket, zmq.POLLIN)
    return poller


def receive_parts(socket: zmq.SyncSocket, expected: int) -> list[zmq.Frame]:
    """The parts of the next message; at most one more than ``expected``, the rest is thrown away.

    Raises zmq.Again when no message waits."""
    part = socket.recv(_NOW, copy=False)
    parts = [part]
    while part.more:
        part = socket.recv(_NOW, copy=False)
        if len(parts) <= expected:
            parts.append(part)
    return parts


def send_parts(socket: zmq.SyncSocket, first: bytes, *others: bytes) -> None:
    """Raises zmq.Again, before anything was sent, when there is no room for the message."""
    part = first
    for following in others:
        socket.send(part, _NOW_AND_MORE)
        part = following
    socket.send(part, _NOW)
