"""Who a peer is: nobody unknown is heard, nobody speaks or listens in another one's name."""

from __future__ import annotations

import pytest

from torpor_protocol.errors import ConfigError
from torpor_protocol.limits import MAX_PEER_NAME, MAX_REFUSED_FRAMES
from torpor_protocol.rpc import NO_GROUP, Call, RankHello, Reply, SupervisorStatus
from torpor_protocol.transport import CurveKeys, PeerGone
from torpor_protocol.transport.identity import NONCE_BYTES, claimed_name, make_identity
from wire import Wire

CALL = Call("step")


def test_an_unknown_rank_is_refused(wire: Wire) -> None:
    """With keys nobody gets so far without a name: there it is a known key under a wrong one."""
    wire.admit(b"rank-0")
    keys = wire.keys[b"rank-0"] if wire.kind == "tcp" else None
    wire.raw_dealer(make_identity(b"rank-99"), keys).send_multipart(wire.good_frame())
    wire.refused("wrong_identity" if wire.kind == "tcp" else "unknown_peer")
    with pytest.raises(PeerGone):
        wire.router.send(b"rank-99", wire.group, 1, CALL)
    wire.is_well()


@pytest.mark.parametrize("identity", [None, b"rank-0", b"x" * 255, b"rank-0" + b"x" * 15])
def test_an_identity_that_is_no_name_and_nonce_is_refused(
    wire: Wire, identity: bytes | None
) -> None:
    wire.admit(b"rank-0")
    keys = wire.keys[b"rank-0"] if wire.kind == "tcp" else None
    wire.raw_dealer(identity, keys).send_multipart(wire.good_frame())
    wire.refused("wrong_identity" if wire.kind == "tcp" else "unknown_peer")
    wire.is_well()


def test_a_key_is_good_for_its_own_name_only(tcp_wire: Wire) -> None:
    """Rank 1 claims to be rank 0, before and after the real one, as often as it likes."""
    wire = tcp_wire
    wire.admit(b"rank-0")
    wire.admit(b"rank-1")
    liar = wire.raw_dealer(make_identity(b"rank-0"), wire.keys[b"rank-1"])
    liar.send_multipart(wire.good_frame())
    wire.refused("wrong_identity")
    with pytest.raises(PeerGone):
        wire.router.send(b"rank-0", wire.group, 1, CALL)
    rank = wire.connect(b"rank-0")
    wire.round_trip(b"rank-0", rank)
    for _ in range(MAX_REFUSED_FRAMES):
        liar.send_multipart(wire.good_frame())
    wire.refused("wrong_identity", MAX_REFUSED_FRAMES + 1)
    assert not liar.poll(0)
    wire.pump(lambda _: wire.router.rejected["handshake"] > 0)  # the liar was cut off
    wire.round_trip(b"rank-0", rank)
    wire.is_well()


def test_a_revoked_peer_is_cut(wire: Wire) -> None:
    peer = wire.peer(b"rank-0")
    wire.round_trip(b"rank-0", peer)
    wire.router.revoke(b"rank-0")
    with pytest.raises(PeerGone, match="rank-0"):
        wire.router.send(b"rank-0", wire.group, 1, CALL)
    peer.send(wire.group, 1, Reply(rank=0))
    wire.refused("unknown_peer")
    assert peer.receive(0) is None
    wire.is_well()


def test_a_name_given_to_a_new_key_is_closed_to_the_old_one(tcp_wire: Wire) -> None:
    wire = tcp_wire
    old = wire.peer(b"rank-0")
    wire.round_trip(b"rank-0", old)
    new = wire.peer(b"rank-0")
    with pytest.raises(PeerGone):
        wire.router.send(b"rank-0", wire.group, 1, CALL)
    wire.round_trip(b"rank-0", new)
    old.send(wire.group, 1, RankHello(rank=0, pid=1))
    wire.refused("unknown_peer")
    wire.round_trip(b"rank-0", new)


def test_a_restarted_process_takes_over_from_the_one_before(wire: Wire) -> None:
    """The old process may still be connected, as after SIGSTOP or when its machine vanished."""
    old = wire.peer(b"supervisor-0")
    wire.round_trip(b"supervisor-0", old)
    new = wire.connect(b"supervisor-0")
    status = SupervisorStatus([], [])
    new.send(NO_GROUP, 1, status)
    wire.refused("superseded")
    new.send(wire.group, 2, RankHello(rank=0, pid=2))
    assert [frame.sequence for frame in wire.pump(bool)] == [2]
    wire.round_trip(b"supervisor-0", new)
    old.send(NO_GROUP, 3, status)
    wire.refused("superseded", 2)
    assert old.receive(0) is None
    wire.round_trip(b"supervisor-0", new)


def test_two_names_never_share_a_key(tcp_wire: Wire) -> None:
    wire = tcp_wire
    wire.admit(b"rank-0")
    public = wire.keys[b"rank-0"].public
    with pytest.raises(ConfigError, match="belongs to another peer"):
        wire.router.admit(b"rank-1", public)
    wire.router.admit(b"rank-0", public)
    wire.round_trip(b"rank-0", wire.connect(b"rank-0"))
    wire.router.revoke(b"rank-0")
    wire.router.admit(b"rank-1", public)


@pytest.mark.parametrize("name", [b"", b"rank 0", b"rank\n0", b"rank-\xff", b"x" * 201])
def test_a_name_that_is_none_is_not_admitted(wire: Wire, name: bytes) -> None:
    with pytest.raises(ConfigError, match="is not a name for a peer"):
        wire.router.admit(name, CurveKeys.generate().public)


def test_a_peer_without_a_key_is_not_admitted_on_tcp(tcp_wire: Wire) -> None:
    with pytest.raises(ConfigError, match="not a CURVE key"):
        tcp_wire.router.admit(b"rank-0")


def test_every_connection_has_an_identity_of_its_own() -> None:
    name = b"n" * MAX_PEER_NAME
    first, second = make_identity(name), make_identity(name)
    assert first != second and len(first) == MAX_PEER_NAME + NONCE_BYTES <= 255
    assert claimed_name(first) == claimed_name(second) == name
