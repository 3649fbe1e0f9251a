"""The engine's end of the wire: one ROUTER socket with its own context, gate and monitor.

Nothing that a peer sends raises here: what the intake refuses is counted and dropped, and a peer
that goes on with it is cut off. Nothing blocks longer than the caller asks for either.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable

import zmq

from torpor_protocol import limits
from torpor_protocol.errors import PeerGone, PortError, WireError
from torpor_protocol.rpc import EngineMessage, encode, pack_header
from torpor_protocol.transport import refusals
from torpor_protocol.transport.admission import Admission
from torpor_protocol.transport.endpoints import check_bind_address, check_endpoint
from torpor_protocol.transport.frames import polled, receive_parts, send_parts
from torpor_protocol.transport.handshakes import Handshakes
from torpor_protocol.transport.identity import claimed_name, printable
from torpor_protocol.transport.intake import PARTS, Intake, Received
from torpor_protocol.transport.options import (
    set_address_family,
    set_common,
    set_heartbeats,
    set_router,
)
from torpor_protocol.transport.security import ServerSecurity

log = logging.getLogger(__name__)


class Router:
    """A peer can be sent to once a good frame of it was received."""

    def __init__(self, security: ServerSecurity) -> None:
        self._security = security
        self._endpoint = ""
        self._admission = Admission()
        self._refusals = refusals.Refusals()
        self._strikes = refusals.Strikes()
        self._context: zmq.Context[zmq.SyncSocket] = zmq.Context()
        self._gate = security.gate(self._context, self._admission)
        self._intake = Intake(self._gate)
        self._socket = self._context.socket(zmq.ROUTER)
        set_common(self._socket)
        set_router(self._socket)
        set_heartbeats(self._socket)
        security.secure(self._socket)
        self._handshakes = Handshakes(self._context, self._socket)
        self._frames = polled(self._socket)
        self._everything = polled(*self.sockets)

    @property
    def current_group(self) -> bytes:
        """The group whose frames are taken, 16 bytes; NO_GROUP while there is none."""
        return self._intake.current_group

    @current_group.setter
    def current_group(self, group: bytes) -> None:
        self._intake.current_group = group

    @property
    def socket(self) -> zmq.SyncSocket:
        """The data socket, to be polled for frames together with others."""
        return self._socket

    @property
    def sockets(self) -> tuple[zmq.SyncSocket, ...]:
        """All that is to be polled: a handshake goes on only when ``receive`` is called for it."""
        return (self._socket, *self._gate.sockets, self._handshakes.socket)

    @property
    def rejected(self) -> Counter[str]:
        """What was refused so far, by reason."""
        return self._refusals.counts

    @property
    def disconnects(self) -> int:
        """Authenticated connections that have ended, also for a frame far over the limit."""
        return self._handshakes.disconnects

    def bind(self, endpoint: str, *, all_interfaces: bool = False) -> str:
        """Listen, and return the endpoint with its real port. ``all_interfaces``: the address may
        be 0.0.0.0 or [::]; since tcp is never without keys, still only admitted peers come in.

        Raises ConfigError for an address that is not safe, PortError for one that is not free."""
        check_endpoint(endpoint, self._security)
        check_bind_address(endpoint, all_interfaces)
        set_address_family(self._socket, endpoint)
        try:
            self._socket.bind(endpoint)
        except zmq.ZMQError as error:
            raise PortError(
                f"The worker wire cannot listen on {endpoint}: {error.strerror}.",
                "Free the address, or choose another one.",
            ) from None
        self._endpoint = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        return self._endpoint

    def admit(self, name: bytes, public_key: str = "") -> None:
        """Take a peer from now on, under CURVE with this key only. Raises ConfigError.

        A name that was admitted before starts anew: it can be sent to after its next frame."""
        self._admission.admit(name, self._security.checked(public_key))
        self._intake.forget(name)
        self._strikes.forgive(name)

    def revoke(self, name: bytes) -> None:
        """Take nothing from the peer any more and send it nothing, whether connected or not."""
        self._admission.revoke(name)
        self._intake.forget(name)

    def count_refused(self, reason: str, peer: bytes, cause: str) -> None:
        """Count a good frame whose content its taker refuses. No strike: the peer means well."""
        self._refusals.add(reason, printable(peer), cause)

    def send(self, peer: bytes, group: bytes, sequence: int, message: EngineMessage) -> None:
        """Never blocks. Raises PeerGone; WireError when the message itself is too large."""
        self.broadcast((peer,), group, sequence, message)

    def broadcast(
        self, peers: Iterable[bytes], group: bytes, sequence: int, message: EngineMessage
    ) -> None:
        """Send one message to several peers, encoded once. The others get it also when one is
        gone; the first that is gone is then raised as PeerGone."""
        header = pack_header(group, sequence)
        body = encode(message)
        first: PeerGone | None = None
        for peer in peers:
            try:
                self._send(peer, header, body)
            except PeerGone as gone:
                first = first or gone
        if first is not None:
            raise first

    def _send(self, peer: bytes, header: bytes, body: bytes) -> None:
        identity = self._intake.route(peer)
        if identity is None:
            raise PeerGone(printable(peer), "no frame of it has come")
        try:
            send_parts(self._socket, identity, header, body)
        except zmq.Again:
            raise PeerGone(printable(peer), "it reads nothing and its queue is full") from None
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            raise PeerGone(printable(peer), "its connection has ended") from None

    def receive(self, timeout_ms: int) -> list[Received]:
        """The frames that wait, or else the first that come within ``timeout_ms``; [] when none do.

        Answers handshakes meanwhile. Takes a bounded number, in turns between the peers."""
        deadline = time.monotonic() + timeout_ms / 1000
        while True:
            ready = dict(self._everything.poll(max(timeout_ms, 0)))
            received = self._drain() if ready.pop(self._socket, 0) else []
            if ready:
                self._gate.answer()
                self._count_handshakes()
            timeout_ms = int((deadline - time.monotonic()) * 1000)
            if received or timeout_ms <= 0:
                return received

    def _drain(self) -> list[Received]:
        received: list[Received] = []
        for _ in range(limits.MAX_FRAMES_PER_RECEIVE):
            try:
                parts = receive_parts(self._socket, PARTS)
            except zmq.Again:  # the frame that was polled went with its connection
                break
            try:
                received.append(self._intake.accepted(parts))
            except WireError as error:
                self._refuse(parts[0], error)
            if not self._frames.poll(0):
                break
        return received

    def _refuse(self, frame: zmq.Frame, error: WireError) -> None:
        """Only the one whose key it was is struck, never the one whose name was used."""
        claimed = claimed_name(frame.bytes)
        peer = self._gate.name_of(frame, claimed)
        shown = printable(claimed if peer is None else peer)
        self._refusals.add(error.reason, shown, error.cause)
        if error.reason in refusals.HARMLESS:
            return
        if self._strikes.out(frame.bytes if peer is None else peer):
            log.warning("Cut off %s: too many of its frames were refused.", shown)
            if peer is not None:
                self.revoke(peer)
            refusals.hang_up(frame, self._endpoint)

    def _count_handshakes(self) -> None:
        failed = self._handshakes.failures()
        if failed:
            self._refusals.add(
                refusals.HANDSHAKE, "a connection", "No admitted key was proved.", failed
            )

    def close(self) -> None:
        """Drops what was not sent yet. Safe to call twice."""
        if not self._context.closed:
            self._handshakes.close()
            self._socket.close()
            self._gate.close()
            self._context.term()
