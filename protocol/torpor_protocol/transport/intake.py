"""Which frames the engine takes, and where a peer can be reached.

A frame passes, in this order: who sent it (admitted, and under its own name), its shape and header,
its group, its body, and whether its sender is the latest one of that name.
"""

from __future__ import annotations

from typing import NamedTuple

import zmq

from torpor_protocol.errors import WireError
from torpor_protocol.rpc import (
    NO_GROUP,
    Disbanded,
    Hello,
    RankHello,
    SupervisorStatus,
    WorkerMessage,
    decode_worker_message,
    unpack_header,
)
from torpor_protocol.transport import refusals
from torpor_protocol.transport.gate import Gate
from torpor_protocol.transport.identity import claimed_name, printable

PARTS = 3  # routing identity, header, body
_GROUPLESS = (Hello, SupervisorStatus, Disbanded)
_ARRIVALS = (Hello, RankHello)


class Received(NamedTuple):
    """One good frame. ``peer``: the authenticated name of its sender."""

    peer: bytes
    group: bytes
    sequence: int
    message: WorkerMessage


class Intake:
    """``current_group``: frames of any other group are refused; NO_GROUP while there is none.

    When a second connection of one name says Hello or RankHello, it takes the place of the first,
    whose frames are refused from then on.
    """

    def __init__(self, gate: Gate) -> None:
        self.current_group = NO_GROUP
        self._gate = gate
        self._routes: dict[bytes, bytes] = {}

    def route(self, peer: bytes) -> bytes | None:
        """The routing identity of a peer; None before a frame of it was taken."""
        return self._routes.get(peer)

    def forget(self, peer: bytes) -> None:
        self._routes.pop(peer, None)

    def accepted(self, parts: list[zmq.Frame]) -> Received:
        """Raises WireError, and nothing else, for a frame that is refused."""
        identity = parts[0].bytes
        peer = self._authenticated(parts[0], claimed_name(identity))
        if len(parts) != PARTS:
            raise WireError(refusals.BAD_PARTS, "A frame is not one header and one body.")
        header = unpack_header(parts[1].bytes)
        if header.group != self.current_group and header.group != NO_GROUP:
            raise WireError(refusals.STALE_GROUP, "The frame is of another group.")
        message = decode_worker_message(parts[2].bytes)
        if header.group == NO_GROUP and not isinstance(message, _GROUPLESS):
            raise WireError(refusals.STALE_GROUP, "The frame needs a group and has none.")
        if self._routes.setdefault(peer, identity) != identity:
            if not isinstance(message, _ARRIVALS):
                raise WireError(refusals.SUPERSEDED, "A newer process has the sender's name.")
            self._routes[peer] = identity
        return Received(peer, header.group, header.sequence, message)

    def _authenticated(self, frame: zmq.Frame, claimed: bytes) -> bytes:
        peer = self._gate.name_of(frame, claimed)
        if peer is None:
            raise WireError(refusals.UNKNOWN_PEER, "The sender is not admitted.")
        if peer != claimed:
            raise WireError(refusals.WRONG_IDENTITY, f"It calls itself {printable(claimed)}.")
        return peer
