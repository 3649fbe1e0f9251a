"""How a socket is secured: by CURVE keys, or (null object) by the directory its ipc file is in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import zmq

from torpor_protocol.transport.admission import Admission
from torpor_protocol.transport.gate import CurveGate, Gate, OpenGate
from torpor_protocol.transport.keys import CurveKeys, check_key

_ZAP_DOMAIN = b"torpor"


class ClientSecurity(Protocol):
    """``schemes``: the kinds of endpoint on which this security is enough."""

    schemes: ClassVar[frozenset[str]]

    def secure(self, socket: zmq.SyncSocket) -> None:
        """Set the options of a socket that is neither bound nor connected yet."""


class ServerSecurity(ClientSecurity, Protocol):
    def gate(self, context: zmq.Context[zmq.SyncSocket], admission: Admission) -> Gate:
        """What tells who stands behind a connection; open before the socket is bound."""

    def checked(self, public_key: str) -> str:
        """The key under which a peer is admitted. Raises ConfigError when it is no key."""


@dataclass(frozen=True)
class IpcSecurity:
    """No encryption and no keys: only for ipc sockets in a directory of mode 0700."""

    schemes: ClassVar[frozenset[str]] = frozenset({"ipc"})

    def secure(self, socket: zmq.SyncSocket) -> None:
        """The directory does it."""

    def gate(self, context: zmq.Context[zmq.SyncSocket], admission: Admission) -> Gate:
        return OpenGate(admission)

    def checked(self, public_key: str) -> str:
        return ""


@dataclass(frozen=True)
class CurveServer:
    """The engine's side. ``keys`` are its own; those of its peers come with ``Router.admit``."""

    keys: CurveKeys

    schemes: ClassVar[frozenset[str]] = frozenset({"tcp", "ipc"})

    def secure(self, socket: zmq.SyncSocket) -> None:
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt(zmq.CURVE_SECRETKEY, self.keys.secret.encode("ascii"))
        socket.setsockopt(zmq.ZAP_DOMAIN, _ZAP_DOMAIN)
        # Without an answer from the ZAP handler a handshake fails instead of being waved through.
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)

    def gate(self, context: zmq.Context[zmq.SyncSocket], admission: Admission) -> Gate:
        return CurveGate(context, admission)

    def checked(self, public_key: str) -> str:
        check_key(public_key, "peer's public key")
        return public_key


@dataclass(frozen=True)
class CurveClient:
    """A peer's side: its own ``keys``, and the public key that the engine has to prove."""

    keys: CurveKeys
    server_public: str

    schemes: ClassVar[frozenset[str]] = frozenset({"tcp", "ipc"})

    def __post_init__(self) -> None:
        check_key(self.server_public, "engine's public key")

    def secure(self, socket: zmq.SyncSocket) -> None:
        socket.setsockopt(zmq.CURVE_PUBLICKEY, self.keys.public.encode("ascii"))
        socket.setsockopt(zmq.CURVE_SECRETKEY, self.keys.secret.encode("ascii"))
        socket.setsockopt(zmq.CURVE_SERVERKEY, self.server_public.encode("ascii"))
