"""Connections that must not get in: each is refused in its handshake, counted, and harms nobody."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import zmq

from torpor_protocol import limits
from torpor_protocol.transport import CurveKeys
from torpor_protocol.transport.identity import make_identity
from wire import Wire

HTTP = b"GET /health HTTP/1.1\r\nHost: engine\r\n\r\n"
GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00"


def noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)


PLAIN_TEXT = {
    "http": HTTP,
    "long http": HTTP * 1_000,
    "noise": noise(5_000),
    "other version": b"\xff" + noise(500),
    "no mechanism": GREETING + b"NULL".ljust(20, b"\0") + bytes(32) + noise(500),
    "bad command": GREETING + b"CURVE".ljust(20, b"\0") + bytes(32) + noise(500),
}


@pytest.fixture
def hasty_wire(monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    """Handshakes may take 0.2 s."""
    monkeypatch.setattr(limits, "HANDSHAKE_TIMEOUT_MS", 200)
    made = Wire("tcp")
    yield made
    made.close()


def knock(wire: Wire, keys: CurveKeys | None, server_public: str = "") -> None:
    """Try to send a good frame as an admitted rank, once."""
    wire.admit(b"rank-0")
    dealer = wire.raw_dealer(make_identity(b"rank-0"), keys, server_public)
    dealer.send_multipart(wire.good_frame())
    assert wire.pump(lambda _: wire.router.rejected["handshake"] > 0) == []
    dealer.close()
    assert wire.router.rejected.keys() == {"handshake"}
    wire.is_well()


def test_a_peer_without_a_key_is_refused(tcp_wire: Wire) -> None:
    knock(tcp_wire, keys=None)


def test_a_key_that_is_not_admitted_is_refused(tcp_wire: Wire) -> None:
    knock(tcp_wire, CurveKeys.generate())


def test_a_peer_that_expects_another_engine_is_refused(tcp_wire: Wire) -> None:
    tcp_wire.admit(b"rank-1")
    knock(tcp_wire, tcp_wire.keys[b"rank-1"], CurveKeys.generate().public)


def test_an_admitted_public_key_without_its_secret_is_refused(tcp_wire: Wire) -> None:
    tcp_wire.admit(b"rank-1")
    public = tcp_wire.keys[b"rank-1"].public
    knock(tcp_wire, CurveKeys(public, CurveKeys.generate().secret))


def test_a_revoked_key_is_refused(tcp_wire: Wire) -> None:
    tcp_wire.admit(b"rank-1")
    keys = tcp_wire.keys[b"rank-1"]
    tcp_wire.router.revoke(b"rank-1")
    knock(tcp_wire, keys)


@pytest.mark.parametrize("kind", [zmq.PUB, zmq.PUSH, zmq.ROUTER, zmq.PAIR])
def test_a_socket_of_another_kind_is_not_heard(tcp_wire: Wire, kind: int) -> None:
    tcp_wire.admit(b"rank-0")
    tcp_wire.raw_dealer(make_identity(b"rank-0"), tcp_wire.keys[b"rank-0"], kind=kind)
    tcp_wire.is_well()
    assert tcp_wire.router.rejected.total() == tcp_wire.router.rejected["handshake"]


@pytest.mark.parametrize("sent", PLAIN_TEXT.values(), ids=PLAIN_TEXT.keys())
def test_plain_text_is_refused(hasty_wire: Wire, sent: bytes) -> None:
    hasty_wire.connection().sendall(sent)
    hasty_wire.refused("handshake")
    hasty_wire.is_well()


@pytest.mark.parametrize("sent", PLAIN_TEXT.values(), ids=PLAIN_TEXT.keys())
def test_plain_text_on_ipc_harms_nobody(wire: Wire, sent: bytes) -> None:
    """Without keys some noise passes for frames of a very old ZeroMQ; its sender is unknown."""
    wire.connection().sendall(sent)
    wire.connections.pop().close()
    assert wire.pump(lambda _: wire.router.rejected["handshake"] > 0) == []
    assert wire.router.rejected.keys() <= {"handshake", "unknown_peer"}
    wire.is_well()


def test_who_connects_and_stays_silent_is_dropped(hasty_wire: Wire) -> None:
    connection = hasty_wire.connection()
    hasty_wire.refused("handshake")
    connection.settimeout(30)
    while connection.recv(1024):  # the engine's greeting, then the end
        pass
    hasty_wire.is_well()


def test_a_hundred_garbage_connections_harm_nobody(wire: Wire) -> None:
    count = 100
    for number in range(count):
        wire.connection().sendall(HTTP if number % 2 else b"\xff" + noise(number + 20))
    wire.is_well()
    for connection in wire.connections:
        connection.close()
    assert wire.pump(lambda _: wire.router.rejected["handshake"] >= count) == []
    assert wire.router.rejected == {"handshake": count}
    wire.round_trip(b"rank-1", wire.peer(b"rank-1"))
    wire.is_well()


def test_failing_handshakes_do_not_stop_traffic_while_the_engine_is_busy(tcp_wire: Wire) -> None:
    """libzmq's monitor would block its I/O thread when nobody reads it and it has a bound."""
    count = 1_500  # two events each; the default bound is 1,000 events on either side
    for _ in range(count):
        tcp_wire.connection().sendall(HTTP)
        tcp_wire.connections.pop().close()
    tcp_wire.is_well()
    tcp_wire.refused("handshake", count)
