"""A supervisor's or rank's end of the wire: one DEALER socket to the engine.

It reconnects by itself under the same identity. The engine is authenticated by its key (or by the
private directory), and yet its frames are checked like any others.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import NamedTuple

import zmq

from torpor_protocol.errors import PeerGone, WireError
from torpor_protocol.rpc import (
    EngineMessage,
    WorkerMessage,
    decode_engine_message,
    encode,
    pack_header,
    unpack_header,
)
from torpor_protocol.transport import refusals
from torpor_protocol.transport.endpoints import check_endpoint
from torpor_protocol.transport.frames import polled, receive_parts, send_parts
from torpor_protocol.transport.identity import make_identity
from torpor_protocol.transport.options import (
    set_address_family,
    set_common,
    set_dealer,
    set_heartbeats,
)
from torpor_protocol.transport.security import ClientSecurity

_PARTS = 2  # header, body
_ENGINE = "the engine"


class Delivered(NamedTuple):
    """One good frame from the engine."""

    group: bytes
    sequence: int
    message: EngineMessage


class Dealer:
    """Made by ``Dealer.connect``."""

    def __init__(self, context: zmq.Context[zmq.SyncSocket], socket: zmq.SyncSocket) -> None:
        self._context = context
        self._socket = socket
        self._refusals = refusals.Refusals()
        self._poller = polled(socket)

    @classmethod
    def connect(cls, endpoint: str, identity: bytes, security: ClientSecurity) -> Dealer:
        """Connect as the peer called ``identity``; does not wait for the engine.

        Raises ConfigError for an address that is not safe or a name that is none."""
        check_endpoint(endpoint, security)
        routing_identity = make_identity(identity)
        context: zmq.Context[zmq.SyncSocket] = zmq.Context()
        socket = context.socket(zmq.DEALER)
        set_common(socket)
        set_dealer(socket)
        set_heartbeats(socket)
        set_address_family(socket, endpoint)
        security.secure(socket)
        socket.routing_id = routing_identity
        socket.connect(endpoint)
        return cls(context, socket)

    @property
    def socket(self) -> zmq.SyncSocket:
        """For polling together with others."""
        return self._socket

    @property
    def rejected(self) -> Counter[str]:
        """What was refused so far, by reason."""
        return self._refusals.counts

    def send(self, group: bytes, sequence: int, message: WorkerMessage) -> None:
        """Never blocks. Raises PeerGone when the queue to the engine is full, WireError when the
        message itself is too large."""
        try:
            send_parts(self._socket, pack_header(group, sequence), encode(message))
        except zmq.Again:
            raise PeerGone(_ENGINE, "it reads nothing and its queue is full") from None

    def receive(self, timeout_ms: int) -> Delivered | None:
        """The next frame; None when none comes within ``timeout_ms``."""
        deadline = time.monotonic() + timeout_ms / 1000
        while self._poller.poll(max(timeout_ms, 0)):
            try:
                return self._next()
            except zmq.Again:  # the frame that was polled went with its connection
                pass
            except WireError as error:
                self._refusals.add(error.reason, _ENGINE, error.cause)
            timeout_ms = int((deadline - time.monotonic()) * 1000)
        return None

    def _next(self) -> Delivered:
        parts = receive_parts(self._socket, _PARTS)
        if len(parts) != _PARTS:
            raise WireError(refusals.BAD_PARTS, "A frame is not one header and one body.")
        header = unpack_header(parts[0].bytes)
        return Delivered(header.group, header.sequence, decode_engine_message(parts[1].bytes))

    def close(self) -> None:
        """Drops what was not sent yet. Safe to call twice."""
        if not self._context.closed:
            self._socket.close()
            self._context.term()
