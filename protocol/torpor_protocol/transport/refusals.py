"""What becomes of refused frames: a count by reason, a log line now and then, and for a peer that
goes on and on the end of its connection."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections import Counter

import zmq

from torpor_protocol import limits
from torpor_protocol.transport.endpoints import is_unspecified

log = logging.getLogger(__name__)

BAD_PARTS = "bad_parts"
HANDSHAKE = "handshake"
STALE_GROUP = "stale_group"
SUPERSEDED = "superseded"
UNKNOWN_PEER = "unknown_peer"
WRONG_DEPLOYMENT = "wrong_deployment"
WRONG_IDENTITY = "wrong_identity"
WRONG_POD = "wrong_pod"
WRONG_REPLICA = "wrong_replica"
WRONG_REVISION = "wrong_revision"

# Honest peers cause these too: frames cross with the end of a group or of a process.
HARMLESS = frozenset({STALE_GROUP, SUPERSEDED})

_CAUSE_CHARACTERS = 200


class Refusals:
    """``counts``: refused frames (and handshakes) by reason."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._next_line: dict[str, float] = {}

    def add(self, reason: str, peer: str, cause: str, count: int = 1) -> None:
        """``cause`` may quote the peer: it is logged as one line of ASCII of bounded length."""
        self.counts[reason] += count
        now = time.monotonic()
        if now >= self._next_line.get(reason, now):
            self._next_line[reason] = now + limits.REFUSAL_LOG_SECONDS
            total = self.counts[reason]
            quoted = ascii(cause[:_CAUSE_CHARACTERS])[1:-1]
            log.warning("Refused %s: %s (%s, %d so far)", peer, quoted, reason, total)


class Strikes:
    """Refused frames of each peer, up to a limit."""

    def __init__(self) -> None:
        self._strikes: Counter[bytes] = Counter()

    def out(self, peer: bytes) -> bool:
        """Count one more against ``peer``; True when that is one too many (it starts anew)."""
        if len(self._strikes) > 2 * limits.MAX_RANKS:  # made-up names; real ones are fewer
            self._strikes.clear()
        self._strikes[peer] += 1
        if self._strikes[peer] <= limits.MAX_REFUSED_FRAMES:
            return False
        self.forgive(peer)
        return True

    def forgive(self, peer: bytes) -> None:
        self._strikes.pop(peer, None)


def hang_up(frame: zmq.Frame, endpoint: str) -> None:
    """Shut down the connection that ``frame`` came over; libzmq then closes it.

    libzmq has no call for it, but tells the connection's descriptor. That could meanwhile belong
    to something else, so only a connection accepted at ``endpoint`` is touched."""
    with contextlib.suppress(OSError, zmq.ZMQError):
        descriptor = int(frame.get(zmq.SRCFD))
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            local = _local_endpoint(connection)
            if is_unspecified(endpoint) and local.startswith("tcp://"):
                # Bound to all interfaces: the address is whichever the peer used.
                local, endpoint = local.rpartition(":")[2], endpoint.rpartition(":")[2]
            if local == endpoint:
                connection.shutdown(socket.SHUT_RDWR)


def _local_endpoint(connection: socket.socket) -> str:
    address = connection.getsockname()
    if connection.family == socket.AF_UNIX:
        return f"ipc://{address}"
    host, port = address[:2]
    return (
        f"tcp://[{host}]:{port}" if connection.family == socket.AF_INET6 else f"tcp://{host}:{port}"
    )
