"""An engine's router with peers around it, in one thread: good ones, and raw sockets that are bad.

Handshakes go on only while the router receives, so everything that waits here pumps the router.
"""

from __future__ import annotations

import itertools
import shutil
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import zmq

from torpor_protocol.rpc import Call, Reply, encode, new_group_id, pack_header
from torpor_protocol.transport import (
    CurveClient,
    CurveKeys,
    CurveServer,
    Dealer,
    IpcSecurity,
    Received,
    Router,
)
from torpor_protocol.transport.identity import make_identity

PATIENCE_SECONDS = 30.0  # only ever waited for by a test that fails


class Wire:
    """``kind``: "tcp" (with CURVE) or "ipc". The group is formed: ``router.current_group`` is set.
    ``good`` is a peer that is connected already."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.folder = Path(tempfile.mkdtemp())
        self.server_keys = CurveKeys.generate()
        self.keys: dict[bytes, CurveKeys] = {}
        self.context = zmq.Context()
        self.dealers: list[Dealer] = []
        self.raw: list[zmq.SyncSocket] = []
        self.connections: list[socket.socket] = []
        self.sequence = itertools.count(1)
        self.router, self.endpoint = self.new_router()
        self.group = self.router.current_group
        self.good = self.peer(b"good")
        self.round_trip(b"good", self.good)

    def new_router(self, endpoint: str = "") -> tuple[Router, str]:
        if self.kind == "tcp":
            router = Router(CurveServer(self.server_keys))
            endpoint = router.bind(endpoint or "tcp://127.0.0.1:0")
        else:
            router = Router(IpcSecurity())
            endpoint = router.bind(f"ipc://{self.folder}/wire")
        router.current_group = new_group_id()
        return router, endpoint

    # Good peers

    def admit(self, name: bytes) -> None:
        self.keys[name] = CurveKeys.generate()
        self.router.admit(name, self.keys[name].public if self.kind == "tcp" else "")

    def connect(self, name: bytes) -> Dealer:
        security = (
            CurveClient(self.keys[name], self.server_keys.public)
            if self.kind == "tcp"
            else IpcSecurity()
        )
        dealer = Dealer.connect(self.endpoint, name, security)
        self.dealers.append(dealer)
        return dealer

    def peer(self, name: bytes) -> Dealer:
        self.admit(name)
        return self.connect(name)

    def round_trip(self, name: bytes, dealer: Dealer) -> None:
        """A frame there and back again, and nothing else received meanwhile."""
        sequence = next(self.sequence)
        dealer.send(self.group, sequence, Reply(rank=0))
        (received,) = self.pump(lambda frames: bool(frames))
        assert (received.peer, received.sequence) == (name, sequence)
        self.router.send(name, self.group, sequence, Call("step"))
        delivered = dealer.receive(int(PATIENCE_SECONDS * 1000))
        assert delivered is not None and delivered.sequence == sequence

    def is_well(self) -> None:
        """The service is unaffected: the good peer still gets through, both ways."""
        self.round_trip(b"good", self.good)

    # Waiting

    def pump(self, enough: Callable[[list[Received]], bool]) -> list[Received]:
        """Receive until ``enough`` of the frames so far; all of them."""
        frames: list[Received] = []
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not enough(frames):
            assert time.monotonic() < deadline, f"got {frames}, rejected {self.router.rejected}"
            frames += self.router.receive(20)
        return frames

    def refused(self, reason: str, count: int = 1) -> None:
        """Wait until ``count`` were refused for this reason; nothing is received meanwhile."""
        assert self.pump(lambda _: self.router.rejected[reason] >= count) == []
        assert self.router.rejected[reason] == count

    # Bad peers

    def raw_dealer(
        self,
        identity: bytes | None = None,
        keys: CurveKeys | None = None,
        server_public: str = "",
        kind: int = zmq.DEALER,
    ) -> zmq.SyncSocket:
        """A socket without our checks; its keys are those of CURVE or none at all."""
        dealer = self.context.socket(kind)
        self.raw.append(dealer)
        dealer.linger = 0
        if identity is not None:
            dealer.routing_id = identity
        if keys is not None:
            dealer.curve_publickey = keys.public.encode()
            dealer.curve_secretkey = keys.secret.encode()
            dealer.curve_serverkey = (server_public or self.server_keys.public).encode()
        dealer.connect(self.endpoint)
        return dealer

    def raw_peer(self, name: bytes) -> zmq.SyncSocket:
        """An admitted peer, connected under its own name, that can send anything."""
        self.admit(name)
        return self.raw_dealer(make_identity(name), self.keys[name] if self.kind == "tcp" else None)

    def connection(self) -> socket.socket:
        """A plain connection that speaks no ZeroMQ."""
        if self.kind == "tcp":
            connection = socket.create_connection(
                ("127.0.0.1", int(self.endpoint.rpartition(":")[2]))
            )
        else:
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(self.endpoint.removeprefix("ipc://"))
        self.connections.append(connection)
        return connection

    def good_frame(self) -> list[bytes]:
        return [pack_header(self.group, next(self.sequence)), encode(Reply(rank=0))]

    def close(self) -> None:
        for connection in self.connections:
            connection.close()
        for dealer in self.dealers:
            dealer.close()
        for raw in self.raw:
            raw.close()
        self.context.term()
        self.router.close()
        shutil.rmtree(self.folder)
