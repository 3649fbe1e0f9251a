"""Frames of an admitted peer: a wrong one is counted under its reason, and nothing else happens."""

from __future__ import annotations

import msgspec
import pytest

from torpor_protocol.limits import MAX_FRAME_BYTES, MAX_REFUSED_FRAMES
from torpor_protocol.rpc import (
    HEADER_BYTES,
    NO_GROUP,
    Call,
    Disbanded,
    Hello,
    RankHello,
    Reply,
    SupervisorStatus,
    encode,
    new_group_id,
    pack_header,
)
from torpor_protocol.transport import PeerGone
from wire import Wire

HELLO = Hello("uid", 0, "revision", "pod", "pod-0", "127.0.0.1", 1, 1)
BODY = encode(Reply(rank=0))


def packed(**fields: object) -> bytes:
    return msgspec.msgpack.encode(fields)


BAD_BODIES = {
    "empty": b"",
    "not msgpack": b"\xc1",
    "random bytes": bytes(range(200, 256)) * 9,
    "no struct": msgspec.msgpack.encode([1, 2, 3]),
    "no tag": packed(rank=0),
    "unknown command": packed(type="exec", code="import os"),
    "command of the other side": encode(Call("step")),
    "unknown field": packed(type="reply", rank=0, extra=1),
    "missing field": packed(type="rank_hello", rank=0),
    "wrong type": packed(type="reply", rank="0"),
    "rank out of range": packed(type="rank_hello", rank=-1, pid=1),
    "list too long": packed(type="status", ranks=[0] * 1025, resident=[]),
    "text too long": packed(type="rank_exited", rank=0, pid=1, status=0, log_tail="x" * 40_000),
    "deep nesting": packed(type="reply", rank=0)[:1] + b"\x91" * 100_000,
    "deep value": b"\x82\xa4type\xa5reply\xa5value" + b"\x91" * 100_000 + b"\xc0",
    "array of four billion": b"\x83\xa4type\xa6status\xa5ranks\xdd\xff\xff\xff\xff",
    "trailing bytes": BODY + b"\x00",
    "pickle": b"\x80\x04cos\nsystem\n(S'true'\ntR.",
}


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES.keys())
def test_a_bad_body_is_refused(wire: Wire, body: bytes) -> None:
    wire.raw_peer(b"rank-0").send_multipart([pack_header(wire.group, 1), body])
    wire.refused("bad_body")
    wire.is_well()


HEADER = pack_header(NO_GROUP, 1)


@pytest.mark.parametrize(
    ("reason", "parts"),
    [
        ("bad_parts", [HEADER]),
        ("bad_parts", [HEADER, BODY, b""]),
        ("bad_parts", [b"x"] * 200),
        ("bad_header", [b"", BODY]),
        ("bad_header", [HEADER[:-1], BODY]),
        ("bad_header", [HEADER + b"\0", BODY]),
        ("bad_version", [b"\x02" + HEADER[1:], BODY]),
        ("bad_version", [b"\xff" * HEADER_BYTES, BODY]),
    ],
)
def test_a_bad_shape_or_header_is_refused(wire: Wire, reason: str, parts: list[bytes]) -> None:
    wire.raw_peer(b"rank-0").send_multipart(parts)
    wire.refused(reason)
    wire.is_well()


def test_a_frame_just_over_the_limit_is_counted_as_oversized(wire: Wire) -> None:
    peer = wire.raw_peer(b"rank-0")
    peer.send_multipart([pack_header(wire.group, 1), bytes(MAX_FRAME_BYTES + 1)])
    wire.refused("oversized")
    wire.is_well()


def test_a_frame_far_over_the_limit_ends_its_connection(wire: Wire) -> None:
    peer = wire.raw_peer(b"rank-0")
    peer.send_multipart([pack_header(wire.group, 1), bytes(2 * MAX_FRAME_BYTES + 1)])
    assert wire.pump(lambda _: wire.router.disconnects == 1) == []
    wire.is_well()
    peer.send_multipart(wire.good_frame())  # the peer has connected anew
    assert [frame.peer for frame in wire.pump(bool)] == [b"rank-0"]


def test_frames_of_another_group_are_stale(wire: Wire) -> None:
    old = wire.group
    peer = wire.peer(b"rank-0")
    wire.round_trip(b"rank-0", peer)
    wire.group = wire.router.current_group = new_group_id()
    peer.send(old, 1, Reply(rank=0))
    wire.refused("stale_group")
    wire.router.current_group = NO_GROUP
    peer.send(old, 2, Reply(rank=0))
    wire.refused("stale_group", 2)
    wire.router.current_group = wire.group
    wire.is_well()
    wire.round_trip(b"rank-0", peer)


def test_only_a_supervisor_may_speak_without_a_group(wire: Wire) -> None:
    peer = wire.peer(b"supervisor-0")
    for message in (HELLO, SupervisorStatus([0], [1]), Disbanded()):
        peer.send(NO_GROUP, 7, message)
        (frame,) = wire.pump(bool)
        assert frame == (b"supervisor-0", NO_GROUP, 7, message)
    peer.send(NO_GROUP, 8, RankHello(rank=0, pid=1))
    wire.refused("stale_group")
    wire.router.current_group = NO_GROUP
    peer.send(NO_GROUP, 9, Reply(rank=0))
    wire.refused("stale_group", 2)
    wire.router.current_group = wire.group
    wire.is_well()


def test_who_goes_on_sending_nonsense_is_cut_off(wire: Wire) -> None:
    peer = wire.raw_peer(b"rank-0")
    peer.send_multipart(wire.good_frame())
    wire.pump(bool)
    for _ in range(MAX_REFUSED_FRAMES):
        peer.send_multipart([b"nonsense", b""])
    wire.refused("bad_header", MAX_REFUSED_FRAMES)
    wire.router.send(b"rank-0", wire.group, 1, Call("step"))
    assert wire.router.disconnects == 0
    peer.send_multipart([b"nonsense", b""])
    wire.refused("bad_header", MAX_REFUSED_FRAMES + 1)
    wire.pump(lambda _: wire.router.disconnects == 1)
    with pytest.raises(PeerGone):
        wire.router.send(b"rank-0", wire.group, 2, Call("step"))
    peer.send_multipart(wire.good_frame())  # it connects anew, and is not known any more
    reason = "handshake" if wire.kind == "tcp" else "unknown_peer"
    assert wire.pump(lambda _: wire.router.rejected[reason] > 0) == []
    wire.is_well()


def test_stale_frames_do_not_cut_a_peer_off(wire: Wire) -> None:
    peer = wire.peer(b"rank-0")
    count = 2 * MAX_REFUSED_FRAMES
    for sequence in range(count):
        peer.send(new_group_id(), sequence, Reply(rank=0))
    wire.refused("stale_group", count)
    wire.round_trip(b"rank-0", peer)
