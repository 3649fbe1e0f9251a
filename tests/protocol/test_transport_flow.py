"""Traffic with peers that are slow, gone or back again: nobody waits for another one."""

from __future__ import annotations

import pytest
import zmq

from torpor_protocol import limits
from torpor_protocol.errors import GroupLost, WireError
from torpor_protocol.methods import encode_call
from torpor_protocol.rpc import NO_GROUP, Call, Reply, SupervisorStatus, unpack_header
from torpor_protocol.transport import Dealer, IpcSecurity, PeerGone, Received
from torpor_protocol.transport.frames import receive_parts
from torpor_protocol.transport.identity import make_identity
from torpor_protocol.transport.refusals import hang_up
from wire import Wire

CALL = Call("step")
KERNEL_BYTES = 32 * 2**20  # more than a connection's buffers in the kernel hold


def test_a_silent_reader_fills_its_own_bound_and_loses_nothing(wire: Wire) -> None:
    silent = wire.raw_peer(b"silent")
    silent.send_multipart(wire.good_frame())
    wire.pump(bool)
    size = 10_000
    call = encode_call("step", ("x" * size,), {}, -1)
    sent = refusals = 0
    while refusals < 10:  # the connection takes a moment to be as full as the queue
        try:
            wire.router.send(b"silent", wire.group, sent, call)
            sent += 1
            refusals = 0
        except PeerGone as gone:
            assert isinstance(gone, GroupLost) and gone.reason == "PeerGone"
            assert "reads nothing" in gone.cause
            refusals += 1
            wire.router.receive(50)
    assert sent >= limits.PEER_QUEUE_FRAMES
    assert sent <= limits.PEER_QUEUE_FRAMES + silent.rcvhwm + KERNEL_BYTES // size
    wire.is_well()
    with pytest.raises(PeerGone, match="silent"):
        wire.router.broadcast([b"silent", b"good"], wire.group, 7, CALL)
    delivered = wire.good.receive(30_000)
    assert delivered is not None and delivered.sequence == 7
    for sequence in range(sent):
        assert unpack_header(silent.recv_multipart()[0]).sequence == sequence
    wire.router.send(b"silent", wire.group, sent, CALL)
    assert unpack_header(silent.recv_multipart()[0]).sequence == sent


def test_a_peer_that_was_never_heard_cannot_be_sent_to(wire: Wire) -> None:
    wire.peer(b"rank-0")
    for peer in (b"rank-0", b"nobody"):
        with pytest.raises(PeerGone, match=peer.decode()):
            wire.router.send(peer, wire.group, 1, CALL)
    wire.is_well()


def test_a_peer_that_has_left_is_gone(wire: Wire) -> None:
    peer = wire.peer(b"rank-0")
    wire.round_trip(b"rank-0", peer)
    peer.close()
    wire.pump(lambda _: wire.router.disconnects == 1)
    with pytest.raises(PeerGone, match="rank-0"):
        wire.router.send(b"rank-0", wire.group, 1, CALL)
    wire.is_well()


def test_a_broken_connection_is_made_anew_under_the_same_identity(wire: Wire) -> None:
    peer = wire.peer(b"rank-0")
    wire.round_trip(b"rank-0", peer)
    peer.send(wire.group, 1, Reply(rank=0))
    assert wire.router.socket.poll(30_000)
    hang_up(receive_parts(wire.router.socket, 3)[0], wire.endpoint)
    wire.pump(lambda _: wire.router.disconnects == 1)
    wire.round_trip(b"rank-0", peer)
    wire.is_well()


def test_a_peer_is_heard_again_before_its_old_connection_is_known_to_be_dead(wire: Wire) -> None:
    """As when a network broke in between: the old connection is still open on the engine's side."""
    wire.admit(b"rank-0")
    identity = make_identity(b"rank-0")
    keys = wire.keys[b"rank-0"] if wire.kind == "tcp" else None
    for _ in range(2):
        connection = wire.raw_dealer(identity, keys)
        connection.send_multipart(wire.good_frame())
        assert [frame.peer for frame in wire.pump(bool)] == [b"rank-0"]
        wire.router.send(b"rank-0", wire.group, 1, CALL)
        assert connection.poll(30_000)
    assert wire.router.disconnects == 0
    wire.is_well()


def test_an_engine_that_starts_late_or_again_is_found(wire: Wire) -> None:
    early = wire.peer(b"early")
    wire.router.close()
    early.send(NO_GROUP, 5, SupervisorStatus([], []))
    wire.router, _ = wire.new_router(wire.endpoint)
    wire.router.current_group = wire.group
    for name, keys in wire.keys.items():
        wire.router.admit(name, keys.public)
    (frame,) = wire.pump(bool)
    assert (frame.peer, frame.sequence) == (b"early", 5)
    wire.is_well()
    wire.round_trip(b"early", early)


def test_receive_takes_a_bounded_number_and_keeps_each_peers_order(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_FRAMES_PER_RECEIVE", 10)
    peers = {name: wire.peer(name) for name in (b"rank-0", b"rank-1")}
    for name, peer in peers.items():
        wire.round_trip(name, peer)
    for peer in peers.values():
        for sequence in range(50):
            peer.send(wire.group, sequence, Reply(rank=0))
    sequences: dict[bytes, list[int]] = {name: [] for name in peers}
    while sum(map(len, sequences.values())) < 100:
        frames = wire.router.receive(30_000)
        assert 1 <= len(frames) <= 10
        for frame in frames:
            sequences[frame.peer].append(frame.sequence)
    assert sequences == {name: list(range(50)) for name in peers}


def test_a_dealer_whose_engine_reads_nothing_does_not_wait(wire: Wire) -> None:
    lonely = Dealer.connect(f"ipc://{wire.folder}/nobody", b"rank-0", IpcSecurity())
    wire.dealers.append(lonely)
    for sequence in range(limits.PEER_QUEUE_FRAMES):
        lonely.send(wire.group, sequence, Reply(rank=0))
    with pytest.raises(PeerGone, match="the engine"):
        lonely.send(wire.group, 0, Reply(rank=0))
    assert lonely.receive(0) is None


def test_a_message_of_our_own_that_is_too_large_is_our_own_error(wire: Wire) -> None:
    huge = encode_call("step", ("x" * (limits.MAX_FRAME_BYTES + 1),), {}, -1)
    with pytest.raises(WireError) as raised:
        wire.router.send(b"good", wire.group, 1, huge)
    assert raised.value.reason == "oversized"
    wire.is_well()


def test_receive_returns_when_nothing_comes(wire: Wire) -> None:
    assert wire.router.receive(0) == []
    assert wire.router.receive(30) == []
    assert wire.good.receive(30) is None


def test_the_sockets_wake_a_poller_for_handshakes_too(tcp_wire: Wire) -> None:
    poller = zmq.Poller()
    for socket in tcp_wire.router.sockets:
        poller.register(socket, zmq.POLLIN)
    assert tcp_wire.router.socket in tcp_wire.router.sockets
    tcp_wire.peer(b"rank-0").send(tcp_wire.group, 1, Reply(rank=0))
    frames: list[Received] = []
    while not frames:
        assert poller.poll(30_000)
        frames = tcp_wire.router.receive(0)
    assert frames[0].peer == b"rank-0"


def test_both_ends_can_be_closed_twice(wire: Wire) -> None:
    wire.good.close()
    wire.good.close()
    wire.router.close()
    wire.router.close()
