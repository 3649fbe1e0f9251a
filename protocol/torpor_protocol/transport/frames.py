"""One message off a socket: all its parts, without copying them.

A part is a ``zmq.Frame`` whose memory libzmq owns; the decoder reads it in place.
"""

from __future__ import annotations

import zmq


def receive_parts(socket: zmq.SyncSocket, expected: int) -> list[zmq.Frame]:
    """The parts of the next message; at most one more than ``expected``, the rest is thrown away.

    Raises zmq.Again when no message waits."""
    part = socket.recv(zmq.NOBLOCK, copy=False)
    parts = [part]
    while part.more:
        part = socket.recv(copy=False)
        if len(parts) <= expected:
            parts.append(part)
    return parts
