"""A rank's end checks what it gets as well, whoever the engine is."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from torpor_protocol.limits import MAX_FRAME_BYTES
from torpor_protocol.rpc import NO_GROUP, Call, Reply, encode, pack_header
from torpor_protocol.transport import Dealer, IpcSecurity

CALL = encode(Call("step"))
HEADER = pack_header(NO_GROUP, 3)
REFUSED = {
    "bad_parts": [HEADER],
    "bad_header": [b"", CALL],
    "bad_version": [b"\x09" + HEADER[1:], CALL],
    "oversized": [HEADER, bytes(MAX_FRAME_BYTES + 1)],
    "bad_body": [HEADER, encode(Reply(rank=0))],
}


class Engine:
    """A raw ROUTER that can send anything to its one dealer."""

    def __init__(self, folder: Path) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.ROUTER)
        self.socket.linger = 0
        self.socket.bind(f"ipc://{folder}/wire")
        self.dealer = Dealer.connect(f"ipc://{folder}/wire", b"rank-0", IpcSecurity())
        self.dealer.send(NO_GROUP, 1, Reply(rank=0))
        self.identity = self.socket.recv_multipart()[0]

    def send(self, parts: list[bytes]) -> None:
        self.socket.send_multipart([self.identity, *parts])

    def close(self) -> None:
        self.dealer.close()
        self.socket.close()
        self.context.term()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    tmp_path.chmod(0o700)
    made = Engine(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("reason", REFUSED)
def test_a_bad_frame_of_the_engine_is_counted_and_skipped(engine: Engine, reason: str) -> None:
    engine.send(REFUSED[reason])
    engine.send([HEADER, CALL])
    delivered = engine.dealer.receive(30_000)
    assert delivered is not None
    assert (delivered.group, delivered.sequence) == (NO_GROUP, 3)
    assert isinstance(delivered.message, Call) and delivered.message.method == "step"
    assert engine.dealer.rejected == {reason: 1}


def test_a_refusal_is_logged_once_in_a_while_and_never_as_it_came(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    evil = b"\x82\xa4type\xa4call\xaaa\nb\x1b[31mcde\xc0"
    for _ in range(50):
        engine.send([HEADER, evil])
    engine.send([HEADER, CALL])
    assert engine.dealer.receive(30_000) is not None
    assert engine.dealer.rejected == {"bad_body": 50}
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.isprintable() and line.isascii() and "bad_body" in line
