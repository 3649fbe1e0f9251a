"""Who stands behind a connection.

``CurveGate`` answers libzmq's authentication requests (ZAP, RFC 27) and reads the key that libzmq
attached to every frame of a connection. Without a ZAP handler CURVE accepts any client key.
``OpenGate`` belongs to ipc sockets in a private directory, where file permissions authenticate
the user and the name alone is checked.
"""

from __future__ import annotations

from typing import Protocol

import zmq
from zmq.utils import z85

from torpor_protocol.transport.admission import Admission
from torpor_protocol.transport.keys import KEY_BYTES

_ZAP_ENDPOINT = "inproc://zeromq.zap.01"
_ZAP_VERSION = b"1.0"
_USER_ID = "User-Id"
_MAX_ANSWERS = 256


class Gate(Protocol):
    """``sockets``: what has to be polled besides the data socket for handshakes to go on."""

    sockets: tuple[zmq.SyncSocket, ...]

    def answer(self) -> None:
        """Answer the handshakes that wait; never blocks."""

    def name_of(self, frame: zmq.Frame, claimed: bytes) -> bytes | None:
        """The admitted name of the peer that sent ``frame``; None when it is not admitted."""

    def close(self) -> None: ...


class OpenGate:
    def __init__(self, admission: Admission) -> None:
        self.sockets: tuple[zmq.SyncSocket, ...] = ()
        self._admission = admission

    def answer(self) -> None:
        """There is nothing to answer."""

    def name_of(self, frame: zmq.Frame, claimed: bytes) -> bytes | None:
        return claimed if claimed in self._admission else None

    def close(self) -> None:
        """There is nothing to close."""


class CurveGate:
    """The ZAP handler of one context. It has to exist before the data socket is bound."""

    def __init__(self, context: zmq.Context[zmq.SyncSocket], admission: Admission) -> None:
        self._admission = admission
        self._socket = context.socket(zmq.REP)
        self._socket.linger = 0
        self._socket.bind(_ZAP_ENDPOINT)
        self.sockets: tuple[zmq.SyncSocket, ...] = (self._socket,)

    def answer(self) -> None:
        for _ in range(_MAX_ANSWERS):
            try:
                request = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._socket.send_multipart(self._reply(request))

    def _reply(self, request: list[bytes]) -> list[bytes]:
        """``request``: version, id, domain, address, identity, mechanism, credentials. The user id
        of the answer is the key, not the name: a name may be given to another key later."""
        request_id = request[1] if len(request) > 1 else b""
        if len(request) == 7 and request[5] == b"CURVE" and len(request[6]) == KEY_BYTES:
            key = z85.encode(request[6])
            if self._admission.name_of(key.decode("ascii")) is not None:
                return [_ZAP_VERSION, request_id, b"200", b"OK", key, b""]
        return [_ZAP_VERSION, request_id, b"400", b"Not admitted", b"", b""]

    def name_of(self, frame: zmq.Frame, claimed: bytes) -> bytes | None:
        try:
            return self._admission.name_of(str(frame.get(_USER_ID)))
        except zmq.ZMQError:  # the frame carries no user id
            return None

    def close(self) -> None:
        self._socket.close()
