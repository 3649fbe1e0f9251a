"""Options of the wire's sockets, every one before bind or connect."""

from __future__ import annotations

import zmq

from torpor_protocol import limits
from torpor_protocol.transport.endpoints import wants_ipv6


def set_common(socket: zmq.SyncSocket) -> None:
    """Bounds for both ends.

    libzmq closes a connection over MAXMSGSIZE without a word. It gets twice our own limit, so that
    a frame just over the limit is still read, counted and named."""
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.MAXMSGSIZE, 2 * limits.MAX_FRAME_BYTES)
    socket.setsockopt(zmq.SNDHWM, limits.PEER_QUEUE_FRAMES)
    socket.setsockopt(zmq.RCVHWM, limits.UNREAD_FRAMES)
    socket.setsockopt(zmq.HANDSHAKE_IVL, limits.HANDSHAKE_TIMEOUT_MS)


def set_router(socket: zmq.SyncSocket) -> None:
    """A send to an absent peer or to a full queue fails instead of being dropped.

    Handover lets a peer whose connection broke reconnect under its identity before the engine has
    noticed the break. Nobody else can use it: an identity holds a nonce that only its peer knows.
    """
    socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
    socket.setsockopt(zmq.ROUTER_HANDOVER, 1)


def set_dealer(socket: zmq.SyncSocket) -> None:
    """Frames sent before the engine listens wait for it, up to the queue's bound."""
    socket.setsockopt(zmq.IMMEDIATE, 0)
    socket.setsockopt(zmq.RECONNECT_IVL, limits.RECONNECT_MS)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, limits.RECONNECT_MAX_MS)
    socket.setsockopt(zmq.CONNECT_TIMEOUT, limits.HANDSHAKE_TIMEOUT_MS)


def set_heartbeats(socket: zmq.SyncSocket) -> None:
    """For tcp, where a machine can vanish without closing its connections. They say nothing about
    a process that hangs: the I/O thread answers for it."""
    socket.setsockopt(zmq.HEARTBEAT_IVL, limits.HEARTBEAT_INTERVAL_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, limits.HEARTBEAT_TIMEOUT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TTL, limits.HEARTBEAT_TIMEOUT_MS)


def set_address_family(socket: zmq.SyncSocket, endpoint: str) -> None:
    """With IPv6 on, IPv4 addresses would be shown in their mapped form: on only where needed."""
    socket.setsockopt(zmq.IPV6, int(wants_ipv6(endpoint)))
